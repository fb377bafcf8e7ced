"""A spectral norm: vectors that a call writes by `out=`, and that the next call goes on from."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from told_causes import causes
from torch.nn.utils import spectral_norm

WIDTH = 6


def one(rng):
    return (rng.standard_normal((5, WIDTH)),)


def two(rng):
    return one(rng) + one(rng)


class Discriminator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = spectral_norm(torch.nn.Linear(WIDTH, 4))

    def forward(self, *xs):
        return tuple(self.fc(x) for x in xs)


class Normed(nnx.Module):
    def __init__(self, keeps, stops, follows):
        self.weight_orig = nnx.Param(jnp.zeros((4, WIDTH)))
        self.bias = nnx.Param(jnp.zeros(4))
        self.weight_u, self.weight_v = nnx.BatchStat(jnp.zeros(4)), nnx.BatchStat(jnp.zeros(WIDTH))
        self.keeps, self.stops, self.follows, self.training = keeps, stops, follows, True

    def __call__(self, x):
        weight, u, v = self.weight_orig[...], self.weight_u[...], self.weight_v[...]
        if self.training or not self.follows:
            still = jax.lax.stop_gradient(weight) if self.stops else weight
            v = still.T @ u / jnp.linalg.norm(still.T @ u)
            u = still @ v / jnp.linalg.norm(still @ v)
            self.weight_v[...] = v
            if self.keeps:
                self.weight_u[...] = u
        return x @ (weight / (u @ weight @ v)).T + self.bias


class Port(nnx.Module):
    def __init__(self, rngs, keeps=True, stops=True, follows=True):
        self.fc = Normed(keeps, stops, follows)

    def __call__(self, *xs):
        return tuple(self.fc(x) for x in xs)


def test_a_right_one_is_equal():
    assert check(Case(name="c", summary="s", reference=Discriminator, model=Port, inputs=two, adversarial=())).passed


@pytest.mark.parametrize(
    ("wrong", "inputs", "id", "word"),
    [
        ({"keeps": False}, one, "buffer-not-written", "fc.weight_u"),
        ({"keeps": False}, two, "buffer-not-written", "fc.weight_u"),
        ({"stops": False}, one, "stop-gradient", "torch.no_grad"),
        ({"follows": False}, two, "mode", "in evaluation what the reference does in training"),
    ],
)
def test_what_it_does_otherwise_is_told(wrong, inputs, id, word):
    found = causes(Discriminator, lambda rngs: Port(rngs, **wrong), inputs)
    assert {cause for cause, _ in found} == {id}
    assert word in found[0][1]
