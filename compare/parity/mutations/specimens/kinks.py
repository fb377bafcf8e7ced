"""Functions at their kinks and ties: the inputs are small integers, zeros and limits among them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as TF
from flax import nnx
from jax import lax

import graphmode as gm
import graphmode.nn.functional as F

from ....case import Case


class TorchStage(torch.nn.Module):
    """A function of one tensor, as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor):
        return self.function(x)


class Reference(torch.nn.Module):
    """`[B, 4, 9]` of small integers -> what each function makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.rectify = TorchStage(torch.relu)
        self.magnitude = TorchStage(torch.abs)
        self.limited = TorchStage(lambda x: x.clamp(min=-1.0, max=2.0))
        self.largest = TorchStage(lambda x: x.max(-1).values)
        self.length = TorchStage(lambda x: x.norm(dim=1))
        self.first_of = TorchStage(lambda x: x.argmax(-1))
        self.ranked = TorchStage(lambda x: x.sort(dim=-1, descending=True, stable=True).indices)
        self.frozen = TorchStage(lambda x: x * x.detach())
        self.leaky = torch.nn.LeakyReLU(0.1)
        self.hard = torch.nn.Hardtanh(-1.0, 2.0)
        self.scale = torch.nn.Linear(9, 6)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.rectify(x) + 2 * self.magnitude(x) + 3 * self.limited(x) + self.frozen(x)
        y = y + 5 * self.leaky(x) + 7 * self.hard(x) + TF.relu6(x)
        return {
            "y": self.scale(y),
            "largest": self.largest(x),
            "length": self.length(x),
            "first": self.first_of(x),
            "ranked": self.ranked(x),
        }


class Rectify(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return F.relu(x)


class Magnitude(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return x * lax.stop_gradient(jnp.sign(x))


class Limited(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        low = jnp.where(x >= -1.0, x, -1.0)
        return jnp.where(low <= 2.0, low, 2.0)


class Largest(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x, x.argmax(-1, keepdims=True), -1)[..., 0]


class Length(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return gm.ops.safe_norm(x, axis=1)


class FirstOf(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return x.argmax(-1)


class Ranked(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.argsort(-x, axis=-1, stable=True)


class Frozen(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return x * lax.stop_gradient(x)


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.rectify, self.magnitude, self.limited = Rectify(), Magnitude(), Limited()
        self.largest, self.length, self.first_of = Largest(), Length(), FirstOf()
        self.ranked, self.frozen = Ranked(), Frozen()
        self.leaky, self.hard = gm.nn.LeakyReLU(0.1), gm.nn.Hardtanh(-1.0, 2.0)
        self.scale = gm.nn.Linear(9, 6, rngs=rngs)

    def six(self, x: jax.Array) -> jax.Array:
        return F.relu6(x)

    def __call__(self, x: jax.Array) -> dict[str, jax.Array]:
        y = self.rectify(x) + 2 * self.magnitude(x) + 3 * self.limited(x) + self.frozen(x)
        y = y + 5 * self.leaky(x) + 7 * self.hard(x) + self.six(x)
        return {
            "y": self.scale(y),
            "largest": self.largest(x),
            "length": self.length(x),
            "first": self.first_of(x),
            "ranked": self.ranked(x),
        }


def inputs(rng: np.random.Generator) -> tuple[np.ndarray]:
    x = rng.integers(-3, 8, (5, 4, 9)).astype(np.float64)
    x[0, :, :3] = 0.0
    x[1, 0, ::2] = 6.0
    return (x,)


CASE = Case(name="kinks", summary=__doc__.splitlines()[0], reference=Reference, model=Port, inputs=inputs)
