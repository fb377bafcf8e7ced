"""A gradient in the model's own forward, as of a penalty: modules are called within it, where their calls cannot be
seen, and outside."""

import jax
import jax.numpy as jnp
import torch
from flax import nnx
from told_causes import causes

import graphmode as gm

WIDTH = 5


class Scaled(torch.nn.Module):
    """A layer over a number that is made of its weight."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x):
        size = self.weight.square().sum().sqrt()
        return torch.tanh(x @ (self.weight / size))


class Critic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scaled, self.out = Scaled(), torch.nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.out(self.scaled(x))[:, 0]


class Penalised(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = Critic()

    def forward(self, real, mixed):
        with torch.enable_grad():
            mixed = mixed.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.critic(mixed).sum(), mixed, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        return self.critic(real).mean() + penalty


class PortOfScaled(nnx.Module):
    stopped = staticmethod(lambda x: x)

    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.zeros((WIDTH, WIDTH)))

    def __call__(self, x):
        size = self.stopped(jnp.sqrt(jnp.sum(jnp.square(self.weight[...]))))
        return jnp.tanh(x @ (self.weight[...] / size))


class StopsItsSize(PortOfScaled):
    stopped = staticmethod(jax.lax.stop_gradient)


class PortOfCritic(nnx.Module):
    def __init__(self, rngs, scaled):
        self.scaled, self.out = scaled(rngs), gm.nn.Linear(WIDTH, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.scaled(x))[:, 0]


class Port(nnx.Module):
    scaled = PortOfScaled
    stopped = staticmethod(lambda x: x)

    def __init__(self, rngs):
        self.critic = PortOfCritic(rngs, self.scaled)

    def __call__(self, real, mixed):
        mixed = jax.lax.stop_gradient(mixed)
        slope = nnx.grad(lambda critic, x: critic(x).sum(), argnums=1)(self.critic, mixed)
        penalty = jnp.mean((self.stopped(jnp.linalg.norm(slope, axis=1)) - 1) ** 2)
        return self.critic(real).mean() + penalty


class StopsThePenalty(Port):
    stopped = staticmethod(jax.lax.stop_gradient)


class StopsInAModule(Port):
    scaled = StopsItsSize


def rows(rng):
    return rng.standard_normal((4, WIDTH)), rng.standard_normal((4, WIDTH))


def test_a_stopped_penalty_is_named():
    assert causes(Penalised, StopsThePenalty, rows) == [("stop-gradient", "stops the gradient after norm")]


def test_what_is_stopped_in_a_module_inside_and_outside_of_it_is_named():
    ((id, says),) = causes(Penalised, StopsInAModule, rows)
    assert id == "stop-gradient"
    assert says in {f"stops the gradient after {name}" for name in ("square", "sum", "sqrt")}
