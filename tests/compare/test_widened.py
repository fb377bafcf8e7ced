"""A reference that casts to float32 by itself, or makes constants in float32, accuses no port that computes alike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.widened import in_float64, take_constants

WIDTH = 6


class Norm(torch.nn.Module):
    """As Llama's: in float32, whatever comes in."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        h = x.to(torch.float32)
        return self.weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Positions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("freq", 1 / 100 ** (torch.arange(WIDTH).float() / WIDTH), persistent=False)
        self.shift = torch.linspace(0, 1, WIDTH)

    def forward(self, x):
        times = torch.arange(x.shape[-2])
        return x * torch.cos(times[:, None].float() * self.freq + self.shift) + 0.9 ** times[:, None]


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.positions = Norm(), Positions()

    def forward(self, x):
        return torch.softmax(self.positions(self.norm(x)), -1, dtype=torch.float32).to(x.dtype)


class PortNorm(nnx.Module):
    def __init__(self, cast, eps):
        self.weight, self.cast, self.eps = nnx.Param(jnp.ones(WIDTH)), cast, eps

    def __call__(self, x):
        h = x.astype(jnp.float32) if self.cast else x
        return self.weight[...] * (h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + self.eps)).astype(x.dtype)


class PortPositions(nnx.Module):
    def __call__(self, x):
        times = jnp.arange(x.shape[-2])[:, None]
        angles = times / 100 ** (jnp.arange(WIDTH) / WIDTH) + jnp.linspace(0, 1, WIDTH)
        return x * jnp.cos(angles) + 0.9**times


class Port(nnx.Module):
    def __init__(self, cast, eps=1e-6):
        self.norm, self.positions = PortNorm(cast, eps), PortPositions()

    def __call__(self, x):
        return jax.nn.softmax(self.positions(self.norm(x)), -1)


def case(**how):
    return Case(
        name="casting",
        summary="casts to float32 by itself",
        reference=Reference,
        model=lambda rngs: Port(**how),
        inputs=lambda rng: (rng.standard_normal((3, 4, WIDTH)),),
        adversarial=(),
    )


@pytest.mark.parametrize("cast", [False, True])
def test_a_port_may_cast_as_the_reference_does_or_not(cast):
    report = check(case(cast=cast), draws=1, hasty=True, compiled=False)
    assert report.passed, str(report)


def test_a_bug_beside_such_constants_is_found_where_it_is():
    report = check(case(cast=True, eps=1e-5), draws=1, hasty=True, compiled=False)
    assert [d.module for d in report.divergences] == ["norm"]
    assert "1e-05" in report.causes[0].says


def test_a_cast_is_wider_and_bits_are_not():
    asked = []
    with in_float64(lambda: asked.append(1)):
        assert (
            torch.ones(2, dtype=torch.float32).dtype == torch.ones(2, dtype=torch.int64).float().dtype == torch.float64
        )
        assert len(asked) == 2
        assert torch.zeros(2, dtype=torch.int32).view(torch.float32).dtype == torch.float32
    assert torch.zeros(1).dtype == torch.float32


def test_constants_are_taken_and_random_numbers_kept():
    class Drawn(Positions):
        def __init__(self):
            super().__init__()
            self.noise = torch.randn(WIDTH)

    module = Drawn().double()
    noise = module.noise.clone()
    assert take_constants(module, Drawn, set()) == ["freq", "shift"]
    np.testing.assert_allclose(module.freq, 1 / 100 ** (np.arange(WIDTH) / WIDTH), rtol=1e-15)
    assert torch.equal(module.noise, noise)
    assert take_constants(Drawn().double(), Drawn, {"freq"}) == ["shift"]
