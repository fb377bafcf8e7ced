"""The gradient of a largest element, which a compiled graph loses: said, with its line."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

import graphmode as gm

ROWS, GROUP, WIDTH = 64, 4, 8


class Reference(torch.nn.Module):
    is_normed = False

    def __init__(self):
        super().__init__()
        self.scale, self.shift = (torch.nn.Parameter(torch.randn(WIDTH)) for _ in range(2))

    def forward(self, x, other, mask):
        x = (x - x.mean(0)) * torch.rsqrt(x.var(0, unbiased=False) + 1e-5) if self.is_normed else x
        x = torch.where(mask, (x * self.scale + self.shift) / 0.6, 0)
        return torch.relu(x + other).reshape(-1, GROUP, WIDTH).amax(1)


class Port(nnx.Module):
    largest = staticmethod(lambda x: jnp.max(x, axis=1))
    is_normed, bias = False, 0.0

    def __init__(self, rngs):
        self.scale, self.shift = (nnx.Param(rngs.normal((WIDTH,))) for _ in range(2))

    def __call__(self, x, other, mask):
        x = (x - x.mean(0)) * jax.lax.rsqrt(x.var(0) + 1e-5) if self.is_normed else x
        x = jnp.where(mask, (x * self.scale[...] + self.shift[...]) / 0.6, 0)
        return self.largest(jax.nn.relu(x + other).reshape(-1, GROUP, WIDTH)) + self.bias


class MaskedPort(Port):
    largest = staticmethod(lambda x: gm.masked_max(x, jnp.ones(x.shape, bool), axis=1))


class NormedReference(Reference):
    is_normed = True


class NormedPort(Port):
    """In float64, too."""

    is_normed = True


class OffPort(Port):
    bias = 0.1


def case(port):
    def inputs(rng):
        return rng.standard_normal((ROWS, 1)), rng.standard_normal((ROWS, WIDTH)), rng.random((ROWS, 1)) < 0.7

    return Case(
        name="m",
        summary="s",
        reference=NormedReference if port.is_normed else Reference,
        model=port,
        inputs=inputs,
        adversarial=(),
    )


TABLE = [(Port, False, 1), (NormedPort, False, 1), (MaskedPort, True, 0), (OffPort, False, 0)]


@pytest.mark.parametrize(("port", "passes", "told"), TABLE)
def test_it_is_told(port, passes, told):
    report = check(case(port), draws=2)
    lines = [note for note in report.parity[0].notes if "operation by operation" in note]
    assert (report.passed, len(lines)) == (passes, told)
    assert all("(at test_lost_maxima.py:29)" in note for note in lines)
