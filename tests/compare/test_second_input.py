"""A cause that fits on one input by coincidence does not fit on the next, and is not told."""

import dataclasses

import block_sample
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from block_sample import becomes, sets
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.draw import check_inputs, edge_input
from graphmode.compare.parity import diagnosis
from graphmode.compare.parity.causes import Elsewhere, explain
from graphmode.compare.parity.examination import Examination
from graphmode.compare.parity.inside.localise import Look
from looked_into import look
from test_causes import scaled, tanh_gelu

WIDTH = 4


class Sum(torch.nn.Module):
    """Two branches through the same layers, all of whose hidden units are dead where the input is negative."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Parameter(torch.rand(WIDTH, WIDTH))
        self.outer = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.bias = torch.nn.Parameter(torch.randn(WIDTH))

    def forward(self, x):
        a, b = x, x.flip(0)
        first = torch.addmm(self.bias, torch.relu(a @ self.inner), self.outer)
        return first + torch.addmm(self.bias, torch.relu(b @ self.inner), self.outer)


class PortOfSum(nnx.Module):
    def __init__(self, rngs, *, missing=False):
        del rngs
        self.inner, self.outer = (nnx.Param(jnp.zeros((WIDTH, WIDTH))) for _ in range(2))
        self.bias = nnx.Param(jnp.zeros(WIDTH))
        self.missing = missing

    def layers(self, x):
        return jax.nn.relu(x @ self.inner[...]) @ self.outer[...] + self.bias[...]

    def __call__(self, x):
        other = x[::-1]
        return self.layers(x) if self.missing else self.layers(x + other)


def of_one_sign(rng):
    return (rng.choice([-1, 1]) * rng.uniform(0.1, 1, (3, WIDTH)),)


def summed(**settings):
    def make(rngs):
        return PortOfSum(rngs, **settings)

    return Case(name="sum", summary="s", reference=Sum, model=make, inputs=of_one_sign, modes=("inference",))


def question(case, seed=0):
    judge = Examination(case, seed=seed, draws=1, locate=False).judge
    (first,) = judge.questions([("random 0", check_inputs(case, seed, 0), True)], ["inference"])
    return judge, first


def seed_of(case, *signs):
    """The first seed with which both draws are of these signs."""

    def drawn(seed):
        judge, first = question(case, seed)
        return tuple(np.sign(each.inputs[0]).mean() for each in (first, judge.another(first)))

    return next(seed for seed in range(30) if drawn(seed) == signs)


@pytest.mark.parametrize(
    ("missing", "signs", "causes"),
    [
        (False, (-1, 1), []),
        (True, (-1, 1), ["residual-missing"]),
        (True, (1, -1), ["residual-missing"]),
    ],
)
def test_a_cause_has_to_fit_on_a_second_draw(missing, signs, causes):
    case = summed(missing=missing)
    report = check(case, seed=seed_of(case, *signs), draws=1, compiled=False, hasty=True)
    assert [cause.id for cause in report.first_divergence.causes] == causes


def test_a_cause_that_is_found_late_has_to_fit_there_too(monkeypatch):
    usual = diagnosis._Looks._elsewhere
    monkeypatch.setattr(diagnosis._Looks, "_elsewhere", lambda self, look, deadline: usual(self, look, -np.inf))
    case = summed(missing=False)
    report = check(case, seed=seed_of(case, -1, 1), draws=1, compiled=False, hasty=True)
    assert not report.passed
    assert not report.causes, str(report)


@pytest.mark.parametrize(
    ("plant", "mode", "cause"),
    [
        (becomes("mixers.0", __call__=tanh_gelu), "inference", "gelu-form"),
        (sets("mixers.1.norm", eps=3e-4), "inference", "epsilon"),
        (sets("bn", momentum=0.25), "forward_backward", "momentum"),
    ],
)
def test_a_right_cause_stays(plant, mode, cause):
    exam, asked = Examination(block_sample.case(plant), seed=0, draws=1, locate=False), []
    first = next(t.question for t in exam.truths if t.question.mode == mode)
    found = Look(exam.port_side("default", "float64"), exam.judge.exact, first)
    (divergence,) = found.divergences()

    def second():
        asked.append(Look(found.port, found.judge, exam.judge.another(first)))
        return asked[0]

    assert explain(found, divergence, elsewhere=Elsewhere(second, tuple)).causes[0].id == cause
    assert [each.divergences()[0].module for each in asked] == [divergence.module]


class Mean(torch.nn.Module):
    def forward(self, x):
        return x.mean() * 0.5


class PortOfMean(nnx.Module):
    def __call__(self, x):
        return x.mean() * 0.51234


def test_a_second_input_tells_a_number_that_one_element_does_not():
    def model(rngs):
        return PortOfMean()

    case = Case(name="mean", summary="s", reference=Mean, model=model, inputs=lambda rng: (rng.uniform(1, 2, (2, 3)),))
    judge, first = question(case)
    found = look(case, "inference")
    (divergence,) = found.divergences()
    assert explain(found, divergence).causes == []
    again = Look(found.port, found.judge, judge.another(first))
    (cause,) = explain(found, divergence, elsewhere=Elsewhere(lambda: again, tuple)).causes
    assert "0.51234" in cause.says


def fails():
    raise RuntimeError("not defined there")


@pytest.mark.parametrize(
    ("second", "stays"),
    [
        (lambda: look(block_sample.case(becomes("mixers.0", __call__=scaled)), "inference"), False),
        (lambda: look(block_sample.case(), "inference"), False),
        (lambda: look(block_sample.case(becomes("mixers.1", __call__=scaled)), "inference"), False),
        (lambda: None, True),
        (fails, True),
    ],
)
def test_a_second_input_speaks_against_a_cause_where_the_suspect_is_right_or_wrong_otherwise(second, stays):
    found = look(block_sample.case(becomes("mixers.0", __call__=tanh_gelu)), "inference")
    (divergence,) = found.divergences()
    assert bool(explain(found, divergence, elsewhere=Elsewhere(second, tuple)).causes) == stays


class Larger(torch.nn.Module):
    def forward(self, a, b):
        return torch.maximum(a, b)


class Flipped(torch.nn.Module):
    def forward(self, a, b):
        return a.flip(0) % 4


def where_small(reference, of_small, of_large):
    """A look at integers below a limit, where the port does one thing with those up to 5, and another with larger."""

    class Port(nnx.Module):
        def __call__(self, a, b):
            return jnp.where(a > 5, of_large(a, b), of_small(a, b))

    def below(limit):
        case = Case(
            name="c",
            summary="s",
            reference=reference,
            model=lambda rngs: Port(),
            inputs=lambda rng: (rng.integers(0, limit, 8), rng.integers(0, limit, 8)),
        )
        return look(case, "inference")

    return below


@pytest.mark.parametrize(
    ("below", "cause"),
    [
        (where_small(Larger, lambda a, b: a, lambda a, b: b), "layer-missing"),
        (where_small(Flipped, lambda a, b: a % 4, lambda a, b: b), "reversed"),
    ],
)
def test_what_few_integers_tell_is_held_against_further_inputs(below, cause):
    found = below(5)
    (divergence,) = found.divergences()
    told = explain(found, divergence, elsewhere=Elsewhere(lambda: below(5), tuple, further=lambda: (below(4),))).causes
    assert [each.id for each in told] == [cause]
    others = Elsewhere(lambda: below(5), tuple, further=lambda: (below(4), below(12)))
    assert explain(found, divergence, elsewhere=others).causes == []


def test_no_second_look_is_taken_where_no_cause_is_found():
    def odd(self, x):
        h = type(self).__mro__[1].__call__(self, x)
        return h + 1e-3 * jnp.sin(1e3 * h)

    found = look(block_sample.case(becomes("bn", __call__=odd)), "inference")
    (divergence,) = found.divergences()
    assert explain(found, divergence, elsewhere=Elsewhere(lambda: pytest.fail("it was"), tuple)).causes == []


def test_another_draw_is_of_the_same_kind_or_none():
    judge, first = question(block_sample.case())
    again = judge.another(first)
    assert again.mode == first.mode
    assert again.inputs[0].shape == first.inputs[0].shape
    assert not np.array_equal(again.inputs[0], first.inputs[0])
    assert judge.another(dataclasses.replace(first, label="zeros", is_random=False)) is None


def test_of_inputs_that_are_always_the_same_there_is_no_other():
    judge, first = question(block_sample.case(inputs=lambda rng: (np.ones((4, 3, 7, 6)),)))
    assert judge.another(first) is None


def test_an_edge_is_drawn_again_as_that_edge():
    def large(rng):
        return (1e3 + rng.standard_normal((4, 3, 7, 6)),)

    judge, first = question(block_sample.case(edge_inputs={"large": large}))
    drawn = edge_input(judge.case, 0, "large")
    (edge,) = judge.questions([("large", drawn, False)], ["forward_backward"])
    again = judge.another(edge)
    assert again.inputs[0].mean() > 900
    assert again.mode == "forward_backward"
    assert again.cotangents is not None
    assert judge.another(first).inputs[0].mean() < 1
