"""Causes among axes and pieces: windows, patches, repeats and cuts, each made by the known difference that names it."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from graphmode.compare import Case
from graphmode.compare.parity.causes import explain
from graphmode.compare.parity.causes.composite import composites
from graphmode.compare.parity.causes.replay import Site
from graphmode.compare.parity.causes.sites import groups, numbers
from test_causes import forms
from test_inside import look

COUNT = np.arange(48).reshape(1, 2, 2, 3, 4, 1)
X = torch.arange(24).reshape(2, 3, 4)
HERE = (slice(None), 0)
ALL = slice(None)


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
        (torch.argmax, (X, 1), {}, "reduction", X.numpy().argmin(1)),
        (torch.argmax, (X, 1), {}, "index-offset", X.numpy().argmax(1) + 1),
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
    shape = function(*args, **kwargs).shape
    made = [form for id, form in forms(function, *args, **kwargs) if id == cause and form.shape == shape]
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
