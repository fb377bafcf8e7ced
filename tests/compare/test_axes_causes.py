"""Causes among axes and pieces: windows, patches, repeats and cuts, each made by the known difference that names it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from graphmode.compare import Case
from graphmode.compare.parity.causes import explain
from graphmode.compare.parity.causes.change import Site
from graphmode.compare.parity.causes.composite import composites
from graphmode.compare.parity.causes.sites import constructs, groups, instruction, numbers, widest_first
from graphmode.compare.parity.causes.variants import variants
from looked_into import look
from test_causes import forms
from told_causes import causes

COUNT = np.arange(48).reshape(1, 2, 2, 3, 4, 1)
X = torch.arange(24).reshape(2, 3, 4)
HERE = (slice(None), 0)
ALL = slice(None)
ENDS, COUNTS = torch.tensor([0, 3]), torch.tensor([2, 1, 2])


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "cause", "wrong"),
    [
        (torch.permute, (torch.tensor(COUNT), (0, 1, 3, 2, 4, 5)), {}, "axes-order", COUNT.transpose(0, 3, 1, 2, 4, 5)),
        (torch.permute, (torch.tensor(COUNT), (0, 1, 3, 2, 4, 5)), {}, "axes-order", COUNT),
        (torch.reshape, (X, (2, 3, 2, 2)), {}, "head-order", X.numpy().reshape(2, 3, 2, 2).swapaxes(2, 3)),
        (
            torch.reshape,
            (torch.arange(12), (2, 3, 2)),
            {},
            "split-order",
            np.arange(12).reshape(3, 2, 2).transpose(1, 0, 2),
        ),
        (
            torch.Tensor.unflatten,
            (torch.arange(6), 0, (2, 3)),
            {},
            "axes-order",
            np.arange(6).reshape(2, 3).T.reshape(2, 3),
        ),
        (
            torch.conv1d,
            (torch.arange(12.0).reshape(1, 4, 3), torch.arange(8.0).reshape(4, 2, 1)),
            {"groups": 2},
            "weight-transposed",
            np.einsum("gix,gio->gox", np.arange(12.0).reshape(2, 2, 3), np.arange(8.0).reshape(2, 2, 2)).reshape(
                1, 4, 3
            ),
        ),
        (torch.argmax, (X, 1), {}, "reduction", X.numpy().argmin(1)),
        (torch.argmax, (X, 1), {}, "index-offset", X.numpy().argmax(1) + 1),
        (torch.gather, (torch.arange(4.0), 0, ENDS), {}, "index-offset", [1.0, 3.0]),
        (torch.gather, (torch.arange(4.0), 0, ENDS), {}, "index-offset", [1.0, 0.0]),
        (torch.gather, (torch.arange(4.0), 0, ENDS), {}, "index-offset", [0.0, 2.0]),
        (torch.Tensor.__getitem__, (torch.arange(4.0), torch.tensor([-1, -2, 1])), {}, "index-offset", [0.0, 3.0, 2.0]),
        (torch.repeat_interleave, (torch.arange(3.0), COUNTS), {"dim": 0}, "search-side", [0.0, 0, 0, 1, 2]),
        (torch.repeat_interleave, (torch.arange(3.0), COUNTS), {"dim": 0}, "search-side", [0.0, 1, 2, 2, 2]),
        (torch.bitwise_xor, (ENDS, COUNTS[1:]), {}, "operator", [1, 3]),
        (torch.Tensor.__and__, (ENDS > 0, COUNTS[1:] > 0), {}, "operator", [True, True]),
        (torch.Tensor.__rlshift__, (COUNTS, 8), {}, "operator", [2, 4, 2]),
        (torch.Tensor.__lshift__, (COUNTS, 1), {}, "operator", [1, 0, 1]),
        (torch.Tensor.__or__, (COUNTS, 8), {}, "operator-missing", [2, 1, 2]),
        (torch.sum, (X.double(), (1, 2)), {"keepdim": True}, "axis", X.numpy().sum((0, 2))),
        (torch.sum, (X.double(), [1, 2]), {}, "axis", X.numpy().sum(1)),
        (torch.sigmoid, (X.double(),), {}, "activation", X.double().softmax(2)),
        (torch.Tensor.__getitem__, (X.double(), HERE), {}, "pooling", X.numpy().mean(1)),
        (torch.Tensor.__getitem__, (X.double(), HERE), {}, "pooling", X.numpy()[:, 1:].mean(1)),
        (
            torch.add,
            (torch.zeros(2, 2, 3), torch.arange(6.0).reshape(1, 2, 3)),
            {},
            "repeat-order",
            np.repeat(np.arange(6.0).reshape(2, 3), 2, 0).reshape(2, 2, 3),
        ),
        (
            torch.add,
            (torch.zeros(1, 3, 2), torch.ones(3, 2)),
            {},
            "summand-missing",
            np.array([0.0, 1, 1])[None, :, None] * np.ones((1, 3, 2)),
        ),
    ],
)
def test_a_known_difference_moves_elements_as_the_port_does(function, args, kwargs, cause, wrong):
    made = [form for id, form in forms(function, *args, **kwargs) if id == cause]
    assert any(np.array_equal(form.numpy().ravel(), np.ravel(wrong)) for form in made)


def test_what_makes_larger_does_not_smooth():
    x = torch.arange(6.0).reshape(1, 1, 2, 3)
    assert "antialias" not in dict(forms(F.interpolate, x, (4, 6), mode="bilinear", align_corners=True))
    assert "antialias" in dict(forms(F.interpolate, x, (1, 2), mode="bilinear", align_corners=True))


def taken(*indices):
    x = torch.arange(10.0).reshape(2, 5)
    return [Site(i, "__getitem__", torch.Tensor.__getitem__, (x, at), {}, x[at]) for i, at in enumerate(indices)]


def test_a_tensor_may_be_cut_at_its_other_end():
    first, rest = taken((ALL, slice(None, 1)), (ALL, slice(1, None)))
    ((variant, change),) = composites([first, rest])
    assert variant.id == "index"
    assert change.sites == {0, 1}
    assert torch.equal(variant.apply(first.func, first.args, {}), first.args[0][:, -1:])
    assert torch.equal(variant.apply(rest.func, rest.args, {}), rest.args[0][:, :-1])
    ((halved, _),) = composites(taken((ALL, slice(None, 2)), (ALL, slice(2, None))))
    assert "the first by [:2], the rest by [2:]" in halved.fix


def test_calls_that_are_written_alike_are_changed_together():
    sites = taken(HERE, (ALL, slice(1, None)), HERE)
    assert {0, 2} in [numbers(same) for same in groups(sites)]


class Windows(torch.nn.Module):
    """Features of each window mixed over its places, and a bias of each place."""

    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(4, 4, bias=False)
        self.bias = torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        b, h, w = x.shape
        x = x.view(b, h // 2, 2, w // 2, 2, 1).permute(0, 1, 3, 2, 4, 5).reshape(b, -1, 4)
        return self.mix(torch.tanh(x + self.bias))


class WindowsPort(nnx.Module):
    def __init__(self, rngs, *, axes=(0, 1, 3, 2, 4), biased=True):
        self.mix = nnx.Linear(4, 4, use_bias=False, rngs=rngs)
        self.bias = nnx.Param(jnp.zeros(4))
        self.axes, self.biased = axes, biased

    def __call__(self, x):
        b, h, w = x.shape
        x = x.reshape(b, h // 2, 2, w // 2, 2).transpose(self.axes).reshape(b, -1, 4)
        return self.mix(jnp.tanh(x + self.bias[...] if self.biased else x))


@pytest.mark.parametrize(
    ("wrong", "causes"),
    [
        ({"axes": (0, 1, 2, 3, 4)}, ["axes-order"]),  # and no word of another number of parts, which comes to the same
        ({"axes": (0, 3, 1, 2, 4)}, ["axes-order"]),
        ({"biased": False}, ["summand-missing"]),  # and not twice: nor is it multiplied by 1e-13
    ],
)
def test_the_cause_of_wrong_windows_is_named(wrong, causes):
    case = Case(
        name="windows",
        summary="",
        reference=Windows,
        model=lambda rngs: WindowsPort(rngs, **wrong),
        inputs=lambda rng: (rng.standard_normal((2, 4, 6)),),
    )
    found = look(case, "inference")
    (divergence,) = found.divergences()
    assert [cause.id for cause in explain(found, divergence).causes] == causes


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "cause", "wrong"),
    [
        (
            F.group_norm,
            (torch.randn(2, 4, 3), 1, torch.arange(4.0), torch.ones(4)),
            {},
            "norm-axis",
            lambda x, groups, w, b: F.layer_norm(x.mT, (4,), w, b).mT,
        ),
        (
            torch._weight_norm,
            (torch.randn(3, 2, 2), torch.randn(3, 1, 1)),
            {},
            "norm-axis",
            lambda v, g: g * v / v.norm(dim=0, keepdim=True),
        ),
        (torch._weight_norm, (torch.randn(3, 2), torch.randn(3, 1), 0), {}, "norm-missing", lambda v, g, dim: g * v),
        (
            F.normalize,
            (torch.randn(2, 3, 4),),
            {},
            "norm-axis",
            lambda x: x / x.norm(dim=(1, 2), keepdim=True),
        ),
        (
            F.pad,
            (torch.randn(1, 2, 3, 4), (2, 1, 0, 1), "reflect"),
            {},
            "padding-mode",
            lambda x, pads, mode: torch.tensor(np.pad(x, ((0, 0), (0, 0), (0, 1), (2, 1)), "symmetric")),
        ),
        (
            F.local_response_norm,
            (torch.randn(2, 3, 4), 3),
            {"alpha": 0.5},
            "scale",
            lambda x, size, alpha: F.local_response_norm(x, size, alpha=1.5),
        ),
    ],
)
def test_a_known_difference_normalises_as_the_port_does(function, args, kwargs, cause, wrong):
    made = [form for id, form in forms(function, *args, **kwargs) if id == cause]
    assert any(torch.allclose(form, wrong(*args, **kwargs), rtol=0, atol=1e-5) for form in made)


class Lengths(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.v = torch.nn.Parameter(torch.randn(3, 4))
        self.g = torch.nn.Parameter(torch.rand(3, 1))

    def forward(self, x):
        return F.normalize(x, dim=-1) @ torch._weight_norm(self.v, self.g, 0).T


class LengthsPort(nnx.Module):
    def __init__(self, rngs, *, stopped):
        self.v = nnx.Param(jnp.zeros((3, 4)))
        self.g = nnx.Param(jnp.zeros((3, 1)))
        self.stopped = stopped

    def __call__(self, x):
        x = x / self.norm(x, "x")
        return x @ (self.g[...] * self.v[...] / self.norm(self.v[...], "v")).T

    def norm(self, x, name):
        norm = jnp.linalg.norm(x, axis=-1, keepdims=True)
        return jax.lax.stop_gradient(norm) if name == self.stopped else norm


class Squared(LengthsPort):
    def norm(self, x, name):
        norm = super().norm(x, name)
        return norm**2 if name == "x" else norm


@pytest.mark.parametrize(
    ("port", "stopped", "cause", "words"),
    [
        (LengthsPort, "x", "stop-gradient", "stops the gradient by the length"),
        (LengthsPort, "v", "stop-gradient", "stops the gradient by the norm"),
        (Squared, "", "scale", "divides by the squared length"),
    ],
)
def test_what_is_wrong_about_a_length_is_told(port, stopped, cause, words):
    case = Case(
        name="lengths",
        summary="",
        reference=Lengths,
        model=lambda rngs: port(rngs, stopped=stopped),
        inputs=lambda rng: (rng.standard_normal((5, 4)),),
    )
    found = look(case, "forward_backward")
    (divergence,) = found.divergences()
    (told,) = explain(found, divergence).causes
    assert (told.id, told.says) == (cause, words)


class NormedMean(torch.nn.Module):
    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:]).mean(1)


class MeanNormed(nnx.Module):
    def __init__(self, rngs):
        pass

    def __call__(self, x):
        x = x.mean(1)
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def test_two_calls_in_the_other_order_are_told():
    case = Case(
        name="normed_mean",
        summary="",
        reference=NormedMean,
        model=MeanNormed,
        inputs=lambda rng: (rng.standard_normal((2, 4, 6)),),
    )
    found = look(case, "inference")
    (divergence,) = found.divergences()
    (cause,) = explain(found, divergence).causes
    assert cause.id == "calls-order"
    assert "mean before layer_norm" in cause.says


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)

    def forward(self, x):
        return torch.matmul(x, self.fc.weight) * 16.0


class Unscaled(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(3, 3, rngs=rngs)

    def __call__(self, x):
        return x @ self.fc.kernel[...].T


def test_a_factor_that_is_left_out_is_no_layer():
    case = Case(
        name="scaled",
        summary="",
        reference=Scaled,
        model=Unscaled,
        inputs=lambda rng: (rng.standard_normal((2, 3)),),
    )
    found = look(case, "inference")
    (divergence,) = found.divergences()
    (cause,) = explain(found, divergence).causes
    assert cause.id == "factor-missing"
    assert "the factor is left out" in cause.says


class Chained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.second(self.first(x))


class Between(nnx.Module):
    def __init__(self, rngs, *, between):
        self.first = nnx.Linear(3, 3, rngs=rngs)
        self.second = nnx.Linear(3, 3, rngs=rngs)
        self.between = between

    def __call__(self, x):
        return self.second(self.between(self.first(x)))


@pytest.mark.parametrize(
    ("between", "mode", "cause", "words"),
    [
        (jax.nn.relu, "inference", "activation-extra", "applies relu to what first gives"),
        (jax.nn.relu, "forward_backward", "activation-extra", "applies relu to what first gives"),
        (lambda x: 1.5 * x, "inference", "scale", "multiplies what first gives by 1.5"),
    ],
)
def test_what_is_done_between_two_modules_is_told(between, mode, cause, words):
    case = Case(
        name="between",
        summary="",
        reference=Chained,
        model=lambda rngs: Between(rngs, between=between),
        inputs=lambda rng: (rng.standard_normal((8, 3)),),
    )
    found = look(case, mode)
    (divergence,) = found.divergences()
    (told,) = explain(found, divergence).causes
    assert told.id == cause
    assert words in told.says


def test_a_split_in_a_loop_takes_the_sizes_of_each_turn():
    turns = [torch.arange(12 * n).reshape(1, 6, 2, n) for n in (3, 4)]
    first = turns[0]
    site = Site(0, "view", torch.Tensor.view, (first, 1, 2, 3, 2, -1), {}, first.view(1, 2, 3, 2, -1))
    swapped = next(variant for variant in variants(site) if variant.id == "head-order")
    for turn in turns:
        made = swapped.apply(torch.Tensor.view, (turn, 1, 2, 3, 2, -1), {})
        assert torch.equal(made, turn.view(1, 3, 2, 2, -1).transpose(1, 2))


def test_calls_that_are_most_alike_come_first():
    x = torch.ones(2, 3)
    factors = [2.0, 3.0, 2.0]
    sites = [Site(i, "mul", torch.mul, (x, factor), {}, x * factor) for i, factor in enumerate(factors)]
    assert [numbers(same) for same in groups(sites)] == [{0, 2}, {0, 1, 2}]


def test_what_one_line_calls_in_several_modules_is_one_construct_and_one_a_module():
    code, x = test_calls_that_are_most_alike_come_first.__code__, torch.ones(2)
    places = [((code, 3, "read"),), ((code, 3, "write"),), ((code, 3, "read"),), ((code, 5, "read"),)]
    sites = [Site(i, "exp", torch.exp, (x,), {}, x, place) for i, place in enumerate(places)]
    assert [numbers(same) for same in constructs(sites)] == [{0, 2}, {1}, {3}]
    assert [numbers(same) for same in widest_first(sites)] == [{0, 1, 2}, {3}, {0, 2}, {1}]


def test_what_a_function_calls_is_one_instruction_wherever_that_is_called_from():
    inner, outer = test_calls_that_are_most_alike_come_first.__code__, torch.nn.functional.softmax.__code__
    x = torch.ones(2)
    places = [
        ((inner, 3, "head"), (inner, 7, "")),
        ((inner, 3, "head"), (inner, 9, "")),
        ((outer, 1, ""), (inner, 3, "")),  # a library's, which this file calls
        ((outer, 1, ""), (inner, 5, "")),
    ]
    sites = [Site(i, "exp", torch.exp, (x,), {}, x, place) for i, place in enumerate(places)]
    assert instruction(sites[0]) == instruction(sites[1])
    assert len({instruction(site) for site in sites}) == 3
    assert [numbers(same) for same in widest_first(sites)] == [{0, 1}, {2}, {3}, {0}, {1}]


class Summed(torch.nn.Module):
    def forward(self, x):
        return torch.logsumexp(-(x**2) / (2 * torch.ones_like(x)), 1)


class Underflows(nnx.Module):
    def __init__(self, rngs):
        pass

    def __call__(self, x):
        return jnp.log(jnp.exp(-(x**2) / 2).sum(1))


def test_what_is_infinite_in_the_port_alone_is_laid_to_no_factor():
    case = Case(
        name="summed",
        summary="",
        reference=Summed,
        model=Underflows,
        inputs=lambda rng: (50 + rng.random((2, 3)),),
        modes=("inference",),
    )
    found = look(case, "inference")
    (divergence,) = found.divergences()
    assert not {cause.id for cause in explain(found, divergence).causes} & {"scale", "exponent", "mean-removed"}


def test_what_is_said_to_do_before_flattening_puts_the_axes_back():
    images = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    site = Site(0, "flatten", torch.flatten, (images, 1), {}, images.flatten(1))
    found = [each for each in variants(site) if each.id == "flatten-order"]
    assert len(found) == 5
    for each in found:
        order = each.says.rpartition("order ")[2] if "order" in each.says else "(0, 2, 3, 1)"
        wrong = jnp.asarray(images.permute(eval(order)).numpy())
        back = eval(each.fix.rpartition(": ")[2], {"x": wrong, "jnp": jnp})
        np.testing.assert_array_equal(back, images.numpy())


class Behind(torch.nn.Module):
    """Each step beside the one before it, in a ring."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)

    def forward(self, x):
        h = self.fc(x)
        return h * torch.tanh(torch.cat([h[:, -1:], h[:, :-1]], dim=1))


class Ahead(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(3, 3, rngs=rngs)

    def __call__(self, x):
        h = self.fc(x)
        return h * jnp.tanh(jnp.roll(h, -1, axis=1))


def test_a_roll_that_is_written_as_a_join_is_told_the_other_way():
    assert causes(Behind, Ahead, lambda rng: (rng.standard_normal((2, 5, 3)),)) == [("shift", "rolls the other way")]
