"""Differences that several calls share: axes that are kept, lengths of transforms, limits, an order, running means."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from told_causes import causes

from graphmode import nn

SIZE, TIME = 4, 8


class Reference(torch.nn.Module):
    """What each kind does to a linear layer's output `[N, 4, 4]`."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(SIZE, SIZE)
        self.gain = torch.nn.Parameter(torch.linspace(0.3, 0.9, SIZE))

    def forward(self, x):
        return self.of(self.fc(x))


class Port(nnx.Module):
    def __init__(self, rngs):
        self.fc = nn.Linear(SIZE, SIZE, rngs=rngs)
        self.gain = nnx.Param(jnp.zeros(SIZE))

    def __call__(self, x):
        return self.of(self.fc(x))


class Demodulated(Reference):
    def of(self, y):
        return y * torch.rsqrt(y.pow(2).sum([1]) + 1e-8).view(len(y), 1, SIZE)


class OverTheOther(Port):
    def of(self, y):
        return y * jax.lax.rsqrt((y**2).sum(2, keepdims=True) + 1e-8)


class Convolved(Reference):
    def of(self, y):
        n = y.shape[1]
        product = torch.fft.rfft(y, n=2 * n, dim=1) * torch.fft.rfft(self.gain, n=2 * n)[:, None]
        return torch.fft.irfft(product, n=2 * n, dim=1)[:, :n]


class GoingRound(Port):
    def of(self, y):
        n = y.shape[1]
        product = jnp.fft.rfft(y, n=n, axis=1) * jnp.fft.rfft(self.gain[...], n=n)[:, None]
        return jnp.fft.irfft(product, n=n, axis=1)


class Clipped(Reference):
    def of(self, y):
        return torch.stack([y[..., ::2].clamp(-0.2, 0.5), y[..., 1::2].clamp(-0.2, 0.1)], -1)


class OtherLimits(Port):
    def of(self, y):
        return jnp.stack([jnp.clip(y[..., ::2], -0.2, 0.1), jnp.clip(y[..., 1::2], -0.2, 0.5)], -1)


class Noisy(Reference):
    def of(self, y):
        return torch.nn.functional.leaky_relu(y + self.gain + y.flip(1), 0.2) * 2**0.5


class NoiseLast(Port):
    def of(self, y):
        return jax.nn.leaky_relu(y + jnp.flip(y, 1), 0.2) * 2**0.5 + self.gain[...]


def rows(rng):
    return (rng.standard_normal((3, SIZE, SIZE)),)


@pytest.mark.parametrize(
    ("reference", "port", "id", "says"),
    [
        (Demodulated, OverTheOther, "axis", "reduces over axes (2,), and keeps them"),
        (Convolved, GoingRound, "fft-length", "transforms at length 4, without the zeros up to 8"),
        (Clipped, OtherLimits, "constants-exchanged", "takes 0.1 for 0.5 in one call of clamp"),
        (Noisy, NoiseLast, "calls-order", "calls mul before add, which the reference calls first"),
    ],
)
def test_what_several_calls_share_is_named(reference, port, id, says):
    found = causes(reference, port, rows)
    assert any(each == id and words.startswith(says) for each, words in found), found


class Stacked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(SIZE, SIZE) for _ in range(2))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(SIZE) for _ in range(2))

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(x + layer(x))
        return x


class NormsFirst(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nn.Linear(SIZE, SIZE, rngs=rngs) for _ in range(2)])
        self.norms = nnx.List([nn.LayerNorm(SIZE) for _ in range(2)])

    def __call__(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + layer(norm(x))
        return x


def test_norms_that_all_layers_have_elsewhere_are_named():
    (cause,) = causes(Stacked, NormsFirst, rows)
    assert cause[0] == "module-order"
    assert cause[1].startswith("calls norms.0, norms.1 on what layers.0, layers.1 are given"), cause


class Means(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("first", torch.zeros(SIZE))
        self.register_buffer("second", torch.ones(SIZE))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.first.mul_(0.9).add_(x.mean((0, 1)), alpha=0.1)
                self.second.mul_(0.9).add_(x.square().mean((0, 1)), alpha=0.1)
        return (x - self.first) * torch.rsqrt(self.second)


class OneMeanTurned(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = nnx.BatchStat(jnp.zeros(SIZE)), nnx.BatchStat(jnp.ones(SIZE))
        self.training = True

    def __call__(self, x):
        if self.training:
            held = jax.lax.stop_gradient(x)
            self.first[...] = 0.9 * self.first[...] + 0.1 * held.mean((0, 1))
            self.second[...] = 0.1 * self.second[...] + 0.9 * jnp.square(held).mean((0, 1))
        return (x - self.first[...]) * jax.lax.rsqrt(self.second[...])


def test_the_shares_of_one_running_mean_of_two_are_named():
    found = causes(Means, OneMeanTurned, rows, modes=("forward_backward",))
    assert [each for each, _ in found] == ["momentum"], found
