"""A reference with an `autograd.Function` of its own, and ports whose backward is another."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx

from .told_causes import causes


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / (ctx.slope * x.abs() + 1) ** 2, None


spike = Spike.apply  # bound before anything looks


class Spiking(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x):
        mem = torch.zeros(x.shape[1], 3, dtype=x.dtype)
        for current in self.fc(x):
            mem = 0.9 * mem + current
            mem = mem - spike(mem - 0.5, 5.0)
        return mem


class Port(nnx.Module):
    def __init__(self, spike):
        self.fc = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
        self.spike = spike

    def __call__(self, x):
        mem = jnp.zeros((x.shape[1], 3), x.dtype)
        for current in self.fc(x):
            mem = 0.9 * mem + current
            mem = mem - self.spike(mem - 0.5)
        return mem


def fires(x):
    return (x > 0).astype(x.dtype)


def with_backward(rule):
    function = jax.custom_vjp(fires)
    function.defvjp(lambda x: (fires(x), x), lambda x, gradient: (rule(x, gradient),))
    return function


WRONG = {
    "none": (fires, "backward-missing", "differentiates what Spike computes, and has no backward of its own"),
    "identity": (
        with_backward(lambda x, g: g),
        "straight-through",
        "hands the gradient by what Spike gives on as it is",
    ),
    "another slope": (
        with_backward(lambda x, g: g / (3.2 * jnp.abs(x) + 1) ** 2),
        "function-argument",
        "gives Spike 3.2 where the reference gives 5",
    ),
    "no square": (
        with_backward(lambda x, g: g / (5 * jnp.abs(x) + 1)),
        "exponent",
        "takes the root of what add gives, in the backward of Spike",
    ),
}


@pytest.mark.parametrize(("function", "id", "says"), WRONG.values(), ids=WRONG)
def test_another_backward_is_named(function, id, says):
    found = causes(Spiking, lambda rngs: Port(function), lambda rng: (rng.standard_normal((3, 2, 4)),))
    assert found[0] == (id, says)
    assert Spike.backward.__code__.co_filename == __file__  # as it was
    assert "apply" not in vars(torch.autograd.function._SingleLevelFunction)


class RoundStraight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Quantised(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 5))

    def forward(self, x):
        scale = self.weight.detach().abs().amax(1, keepdim=True) / 7
        return x @ (RoundStraight.apply(self.weight / scale) * scale).T


class QuantisedPort(nnx.Module):
    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.zeros((4, 5)))

    def __call__(self, x):
        weight = self.weight[...]
        scale = jax.lax.stop_gradient(jnp.abs(weight)).max(1, keepdims=True) / 7
        return x @ (jnp.round(weight / scale) * scale).T


def test_of_what_is_flat_it_is_not_said_that_a_gradient_is_stopped():
    found = causes(Quantised, QuantisedPort, lambda rng: (rng.standard_normal((3, 5)),))
    assert [id for id, _ in found] == ["backward-missing"]
