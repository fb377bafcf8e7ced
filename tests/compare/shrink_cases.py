"""Cases with one planted fault each, which their scripts import from here; `MENDED` in the environment mends them."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from graphmode.compare import Case, channels_first, channels_last

import graphmode as gm

MENDED = bool(os.environ.get("MENDED"))


class Block(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x).cumsum(1)


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 8)
        self.block = Block()
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.block(self.fc(x)))


class BlockPort(nnx.Module):
    """Wrong where a switch says so, and otherwise right."""

    def __init__(self, wrong):
        self.wrong = wrong

    def __call__(self, x):
        y = jnp.cumsum(jax.nn.gelu(x, approximate=False), 1)
        return y if MENDED else self.wrong(x, y)


def port(wrong):
    class Port(nnx.Module):
        def __init__(self, rngs):
            self.fc = gm.nn.Linear(6, 8, rngs=rngs)
            self.block = BlockPort(wrong)
            self.head = gm.nn.Linear(8, 3, rngs=rngs)

        def __call__(self, x):
            return self.head(self.block(self.fc(x)))

    return Port


def case(name, wrong, **fields) -> Case:
    settings = {
        "summary": "",
        "reference": Reference,
        "model": port(wrong),
        "inputs": lambda rng: (rng.standard_normal((4, 9, 6)),),
        "modes": ("inference",),
    }
    return Case(name=name, **{**settings, **fields})


def first_row_counts_twice(x, y):
    return y + jnp.where(y.shape[1] > 4, 1.0, 0.0)


ALWAYS = case("always", lambda x, y: y + 1)
TANH = case("tanh", lambda x, y: jnp.cumsum(jax.nn.gelu(x), 1))
LONG = case("long", first_row_counts_twice)
NEGATIVE = case("negative", lambda x, y: jnp.where((x < -0.5).any(), y - 1, y))
CORRECT = case("correct", lambda x, y: y)
GRADIENT = case(
    "gradient",
    lambda x, y: jax.lax.stop_gradient(y),
    modes=("inference", "forward_backward"),
)


class Ranks(torch.nn.Module):
    """Which elements of a row are the largest; of equal ones the first."""

    def forward(self, x):
        return torch.sort(x, dim=1, descending=True, stable=True).indices


class RanksPort(nnx.Module):
    def __init__(self, rngs):
        pass

    def __call__(self, x):
        if MENDED:
            return jnp.argsort(-x, axis=1, stable=True)
        return jnp.flip(jnp.argsort(x, axis=1, stable=True), 1)  # of equal ones the last


TIES = Case(
    name="ties",
    summary="",
    reference=Ranks,
    model=RanksPort,
    inputs=lambda rng: (rng.integers(0, 5, (3, 7)).astype(np.float32),),
    modes=("inference",),
)


class Images(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.GroupNorm(2, 4)
        self.pool = torch.nn.AvgPool2d(2, ceil_mode=True)

    def forward(self, x):
        return self.pool(self.norm(self.conv(x)))


class ImagesPort(nnx.Module):
    def __init__(self, rngs):
        self.conv = gm.nn.Conv2d(3, 4, 3, padding=1, rngs=rngs)
        self.norm = gm.nn.GroupNorm(2, 4, eps=1e-5 if MENDED else 1e-3)
        self.pool = gm.nn.AvgPool2d(2, ceil_mode=True)

    def __call__(self, x):
        return self.pool(self.norm(self.conv(x)))


IMAGES = Case(
    name="images",
    summary="",
    reference=Images,
    model=ImagesPort,
    inputs=lambda rng: (rng.standard_normal((4, 3, 11, 10)),),
    to_model=channels_last,
    to_reference=channels_first,
)
