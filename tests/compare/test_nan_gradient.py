"""A gradient that is NaN in the port alone: what `jnp.where` leaves out has no derivative there."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from graphmode.compare import Case, check
from told_causes import causes

import graphmode as gm

HERE = Path(__file__)


def line_with(text):
    return next(i for i, line in enumerate(HERE.read_text().splitlines(), 1) if f"# {text}" in line)


class Roots(torch.nn.Module):
    """The root of what is positive; the rest stays as it is."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Linear(4, 4)

    def forward(self, x):
        out = self.scale(x)
        kept = out > 0
        return torch.where(kept, torch.ones_like(out), out).masked_scatter(kept, out[kept].sqrt())


class RootsOfAll(nnx.Module):
    def __init__(self, rngs):
        self.scale = gm.nn.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        out = self.scale(x)
        return jnp.where(out > 0, jnp.sqrt(out), out)  # the root of all


class RootsOfPositives(RootsOfAll):
    def __call__(self, x):
        out = self.scale(x)
        return gm.where_safe(out > 0, jnp.sqrt, out, otherwise=out)


def rows(rng):
    return (rng.standard_normal((5, 4)).astype(np.float32),)


def test_the_operation_without_a_derivative_is_named():
    ((id, says),) = causes(Roots, RootsOfAll, rows)
    assert id == "nan-gradient"
    assert says.startswith(f"has no finite derivative in sqrt at {HERE.name}:{line_with('the root of all')}, for ")


def test_an_argument_that_is_harmless_has_one():
    assert check(Case(name="c", summary="s", reference=Roots, model=RootsOfPositives, inputs=rows)).passed
