"""A port that is equal in float64, and rounds worse than PyTorch: which module, and which line."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

import graphmode.nn as gnn


class Reference(torch.nn.Module):
    """A norm of what has a mean of many standard deviations, between two linear layers."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = torch.nn.Linear(32, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 32)

    def forward(self, x):
        return torch.softmax(self.b(torch.relu(self.norm(self.a(x) + 20))), 1)


class Port(nnx.Module):
    def __init__(self, rngs):
        self.a, self.norm, self.b = (
            gnn.Linear(32, 64, rngs=rngs),
            gnn.LayerNorm(64, rngs=rngs),
            gnn.Linear(64, 32, rngs=rngs),
        )

    shifted = staticmethod(lambda h: h + 20)
    softmax = staticmethod(functools.partial(jax.nn.softmax, axis=1))

    def __call__(self, x):
        return self.softmax(self.b(jax.nn.relu(self.norm(self.shifted(self.a(x))))))


class FastVariance(Port):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.norm = nnx.LayerNorm(64, epsilon=1e-5, rngs=rngs)


def narrow_in_float32(h):
    return (h.astype(jnp.bfloat16) if h.dtype == jnp.float32 else h).astype(h.dtype) + 20


class Casts(Port):
    shifted = staticmethod(narrow_in_float32)


@jax.custom_jvp
def rounded_tangent(h):
    return jax.nn.relu(h)


@rounded_tangent.defjvp
def _(primals, tangents):
    (h,), (t,) = primals, tangents
    rough = t.astype(jnp.bfloat16).astype(t.dtype) if t.dtype == jnp.float32 else t
    return jax.nn.relu(h), rough * (h > 0)


class RoughGradient(Port):
    def __call__(self, x):
        return self.softmax(self.b(rounded_tangent(self.norm(self.shifted(self.a(x))))))


def case(model, **fields) -> Case:
    return Case(
        name="digits",
        summary="",
        reference=Reference,
        model=model,
        inputs=lambda rng: (rng.standard_normal((16, 32)),),
        **fields,
    )


def line_of(function) -> str:
    return f"test_imprecise.py:{inspect.getsourcelines(function)[1] + 1}"


def test_a_right_port_loses_nothing():
    report = check(case(Port))
    assert report.passed, str(report)
    assert not report.divergences


@pytest.mark.parametrize(
    ("model", "module", "cause", "words"),
    [
        (FastVariance, "norm", "cancellation", "use_fast_variance=False"),
        (Casts, "", "hidden-cast", f"casts float32 to bfloat16 at {line_of(narrow_in_float32)}"),
    ],
)
def test_the_module_and_the_line_are_named(model, module, cause, words):
    report = check(case(model))
    assert report.equal, str(report)
    assert not report.precise
    (found,) = report.divergences
    assert (found.module, found.dtype) == (module, "float32"), str(report)
    assert [each.id for each in found.causes] == [cause], str(report)
    assert words in found.causes[0].says + found.causes[0].fix
    assert "times PyTorch's error in float32" in str(report)
    assert "digits are lost in float32" in str(report)


def test_two_at_once_are_both_named():
    class Both(FastVariance, Casts):
        pass

    report = check(case(Both))
    assert {d.module for d in report.divergences} == {"", "norm"}, str(report)


def test_digits_lost_in_a_gradient_alone():
    """Nothing explains it: only the forward pass is searched for the line."""
    report = check(case(RoughGradient))
    assert report.equal, str(report)
    assert not report.precise
    assert [d.module for d in report.divergences] == [""], str(report)
    assert {f.what for f in report.divergences[0].findings} == {"received_cotangent"}


def overflowing(softmax) -> Case:
    """Of logits that are too large for float32's exp on an edge input."""

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(32, 32)

        def forward(self, x):
            return torch.softmax(self.fc(x) / 50, 1)

    class Overflows(nnx.Module):
        def __init__(self, rngs):
            self.fc = gnn.Linear(32, 32, rngs=rngs)

        def __call__(self, x):
            return softmax(self.fc(x) / 50)

    return Case(
        name="overflows",
        summary="",
        reference=Plain,
        model=Overflows,
        inputs=lambda rng: (rng.standard_normal((16, 32)),),
        edge_inputs={"large": lambda rng: (1e4 * rng.standard_normal((16, 32)),)},
        modes=("inference",),
    )


def test_an_overflow_on_an_edge_is_named():
    report = check(overflowing(lambda x: jnp.exp(x) / jnp.exp(x).sum(1, keepdims=True)))
    assert report.equal, str(report)
    assert not report.precise
    (found,) = report.divergences
    assert (found.module, found.input) == ("", "large")
    assert [each.id for each in found.causes] == ["overflow"], str(report)
    assert "in exp at test_imprecise.py" in found.causes[0].says


def narrow(h):
    return h.astype(jnp.bfloat16).astype(h.dtype) if h.dtype == jnp.float32 else h


class TwiceInALine(Port):
    shifted = staticmethod(lambda h: narrow(h) / 2 + narrow(h[:, ::-1])[:, ::-1] / 2 + 20)


class InTwoLines(Port):
    @staticmethod
    def shifted(h):
        left = h.astype(jnp.bfloat16 if h.dtype == jnp.float32 else h.dtype).astype(h.dtype)
        right = h[:, ::-1].astype(jnp.bfloat16 if h.dtype == jnp.float32 else h.dtype).astype(h.dtype)
        return left / 2 + right[:, ::-1] / 2 + 20


@pytest.mark.parametrize(("model", "causes"), [(TwiceInALine, ["hidden-cast"]), (InTwoLines, [])])
def test_a_line_is_named_where_it_is_the_only_one(model, causes):
    (found,) = check(case(model)).divergences
    assert found.module == ""
    assert [each.id for each in found.causes] == causes


class Peaks(torch.nn.Module):
    """A loss of what a heatmap has at its peaks, which are found by their number, and of the rest."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(12, 12)

    def forward(self, x, heat):
        p = torch.sigmoid(self.fc(x))
        return -torch.where(heat == 1, p.log() * (1 - p) ** 2, (1 - p).log() * p**2 * (1 - heat) ** 4).sum()


class RoughPeaks(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(12, 12, rngs=rngs)

    def __call__(self, x, heat):
        p = jax.nn.sigmoid(self.fc(x))
        large = 3000 + x[0, 0]
        p = (p + large) - large
        return -jnp.where(heat == 1, jnp.log(p) * (1 - p) ** 2, jnp.log(1 - p) * p**2 * (1 - heat) ** 4).sum()


def test_a_number_that_inputs_are_compared_with_moves_no_yardstick():
    """Were the peaks moved by a rounding, the reference's gradients would jump, and none be too rough beside that."""

    def inputs(rng):
        heat = 0.9 * rng.random((6, 12))
        heat[np.arange(6), rng.integers(0, 12, 6)] = 1
        return rng.standard_normal((6, 12)), heat

    fields = {"modes": ("forward_backward",), "adversarial": ()}
    report = check(Case(name="c", summary="", reference=Peaks, model=RoughPeaks, inputs=inputs, **fields), locate=False)
    assert report.equal, str(report)
    assert not next(t for t in report.parity[0].tensors if t.name == "fc.weight").precise
