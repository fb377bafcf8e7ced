"""Rotary positions on the two halves of features in place of neighbours, and the other way round."""

import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from told_causes import causes

LENGTH, WIDTH = 5, 6


def angles():
    return torch.arange(LENGTH, dtype=torch.float64)[:, None] * 0.25 ** torch.arange(WIDTH // 2)


def strided(x):
    angle = angles().repeat_interleave(2, -1).to(x)
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * angle.cos() + turned * angle.sin()


def in_pairs(x):
    a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cos, sin = angles().cos().to(x), angles().sin().to(x)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).reshape(x.shape)


def complex_pairs(x):
    turn = torch.polar(torch.ones_like(angles()), angles())
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2).to(x)


def halves(x):
    angle = torch.cat([angles(), angles()], -1).to(x)
    a, b = x.chunk(2, -1)
    return x * angle.cos() + torch.cat((-b, a), -1) * angle.sin()


class Rotated(torch.nn.Module):
    def __init__(self, rotate):
        super().__init__()
        self.fc, self.rotate = torch.nn.Linear(WIDTH, WIDTH), rotate

    def forward(self, x):
        q = self.rotate(self.fc(x))
        return q @ x.mT


class RotatedPort(nnx.Module):
    def __init__(self, rngs, of_halves):
        self.fc, self.of_halves = nnx.Linear(WIDTH, WIDTH, rngs=rngs), of_halves

    def __call__(self, x):
        y = self.fc(x)
        turn = jnp.asarray(angles().numpy(), x.dtype)
        a, b = jnp.split(y, 2, -1) if self.of_halves else (y[..., ::2], y[..., 1::2])
        parts = [a * jnp.cos(turn) - b * jnp.sin(turn), b * jnp.cos(turn) + a * jnp.sin(turn)]
        q = jnp.concatenate(parts, -1) if self.of_halves else jnp.stack(parts, -1).reshape(y.shape)
        return q @ x.mT


@pytest.mark.parametrize("reference", [strided, in_pairs, complex_pairs, halves])
def test_the_other_pairs_of_features_are_told(reference):
    found = causes(
        lambda: Rotated(reference),
        lambda rngs: RotatedPort(rngs, reference is not halves),
        lambda rng: (rng.standard_normal((3, LENGTH, WIDTH)),),
    )
    ids = {id for id, _ in found}
    assert ids == {"rotary-interleaving"}
