"""A value that is NaN in the port alone, since a gradient that the model takes itself goes through what is left out."""

import inspect

import jax
import jax.numpy as jnp
import torch
from flax import nnx
from told_causes import causes

import graphmode as gm

WIDTH = 3


class Forces(torch.nn.Module):
    """Of points on each other: the slope of an energy of the distances between them, of each to itself none."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(1, 1)

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            pairs = [(i, j) for i in range(len(x)) for j in range(i)]
            far = torch.stack([(x[i] - x[j]).norm() for i, j in pairs])
            (slope,) = torch.autograd.grad(2 * torch.tanh(self.fc(far[:, None])).sum(), x, create_graph=True)
        return -slope


class Port(nnx.Module):
    def __init__(self, rngs):
        self.fc = gm.nn.Linear(1, 1, rngs=rngs)

    def energy(self, x):
        others = ~jnp.eye(x.shape[0], dtype=bool)
        far = jnp.where(others, jnp.sqrt(jnp.sum(jnp.square(x[:, None] - x[None]), -1)), 0.0)
        return jnp.where(others, jnp.tanh(self.fc(far[..., None]))[..., 0], 0.0).sum()

    def __call__(self, x):
        return -jax.grad(self.energy)(jax.lax.stop_gradient(x))


def test_what_makes_nan_of_numbers_is_named_with_what_makes_its_infinity():
    line = inspect.getsourcelines(Port.energy)[1] + 2
    told = causes(Forces, Port, lambda rng: (rng.standard_normal((4, WIDTH)),), modes=("inference",))
    at = f"test_nan_value.py:{line}"
    assert told == [("nan", f"makes NaN in mul at {at}, of 0, inf; the infinity is from div at {at}, of 0.5, 0")]
