"""A gradient that is NaN in the port alone: what `jnp.where` leaves out has no derivative there."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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


class Kept(torch.nn.Module):
    """Two roots of zero: of what is stopped, and of what the state alone is made of."""

    def __init__(self):
        super().__init__()
        self.register_buffer("squares", torch.zeros(4))
        self.register_buffer("norm", torch.zeros(4))

    def forward(self, x):
        if self.training:
            self.squares += 0 * x.detach().square().sum(0)
            self.norm += (0 * x.detach()).square().sum(0).sqrt()
        return x / self.squares.sqrt().clamp(min=0.5)


class KeptPort(nnx.Module):
    def __init__(self):
        self.squares, self.norm = nnx.BatchStat(jnp.zeros(4)), nnx.BatchStat(jnp.zeros(4))
        self.training = True

    def __call__(self, x):
        if self.training:
            self.squares[...] += 0 * jnp.sum(jax.lax.stop_gradient(x) ** 2, axis=0)
            self.norm[...] += jnp.sqrt(jnp.sum((0 * x) ** 2, axis=0))
        return x / jnp.maximum(jnp.sqrt(self.squares[...]), 0.5)


class Behind(torch.nn.Module):
    """Of modules alone: no function is called in it itself."""

    def __init__(self):
        super().__init__()
        self.kept, self.roots = Kept(), Roots()

    def forward(self, x):
        return self.roots(self.kept(x))


class BehindPort(nnx.Module):
    def __init__(self, rngs):
        self.kept, self.roots = KeptPort(), RootsOfAll(rngs)

    def __call__(self, x):
        return self.roots(self.kept(x))


def rows(rng):
    return (rng.standard_normal((5, 4)).astype(np.float32),)


@pytest.mark.parametrize(("reference", "port"), [(Roots, RootsOfAll), (Behind, BehindPort)])
def test_the_operation_without_a_derivative_that_a_gradient_reaches_is_named(reference, port):
    ((id, says),) = causes(reference, port, rows)
    assert id == "nan-gradient"
    assert says.startswith(f"has no finite derivative in sqrt at {HERE.name}:{line_with('the root of all')}, for ")


def test_an_argument_that_is_harmless_has_one():
    assert check(Case(name="c", summary="s", reference=Roots, model=RootsOfPositives, inputs=rows)).passed
