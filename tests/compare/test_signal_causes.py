"""Causes in spectra and their logarithms, in scatters, and in a transposed convolution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

FRAME, WINDOW, HOP = 16, 12, 4


class Reference(torch.nn.Module):
    """The logarithm of a power spectrum, `[B, time] -> [B, frames, frequencies]`."""

    def forward(self, x):
        window = torch.hann_window(WINDOW, dtype=x.dtype)
        s = torch.stft(x, FRAME, HOP, WINDOW, window=window, return_complex=True).transpose(1, 2)
        return torch.log((s.real**2 + s.imag**2).clamp(min=1e-3))


class Port(nnx.Module):
    mode = "reflect"

    def window(self):
        return jnp.pad(0.5 - 0.5 * jnp.cos(2 * np.pi * jnp.arange(WINDOW) / WINDOW), 2)

    def power(self, s):
        return s.real**2 + s.imag**2

    def log(self, x):
        return jnp.log(jnp.maximum(x, 1e-3))

    def __call__(self, x):
        x = jnp.pad(x, ((0, 0), (FRAME // 2, FRAME // 2)), mode=self.mode)
        places = np.arange(FRAME) + HOP * np.arange(1 + (x.shape[1] - FRAME) // HOP)[:, None]
        return self.log(self.power(jnp.fft.rfft(x[:, places] * self.window().astype(x.dtype))))


class Symmetric(Port):
    def window(self):
        return jnp.pad(0.5 - 0.5 * jnp.cos(2 * np.pi * jnp.arange(WINDOW) / (WINDOW - 1)), 2)


class AtTheStart(Port):
    def window(self):
        return jnp.roll(super().window(), -2)


class Zeros(Port):
    mode = "constant"


class Magnitude(Port):
    def power(self, s):
        return jnp.abs(s)


class Added(Port):
    def log(self, x):
        return jnp.log(x + 1e-3)


class Decadic(Port):
    def log(self, x):
        return jnp.log10(jnp.maximum(x, 1e-3))


def case(reference, port, inputs):
    return Case(
        name="c",
        summary="s",
        reference=reference,
        model=lambda rngs: port(),
        inputs=inputs,
        adversarial=(),
        modes=("inference",),
    )


def sound(rng):
    return (rng.standard_normal((2, 60)).astype(np.float32),)


def test_the_spectrum_is_right():
    assert check(case(Reference, Port, sound)).passed


@pytest.mark.parametrize(
    ("port", "id", "says"),
    [
        (Symmetric, "window", "has the symmetric window"),
        (AtTheStart, "window", "has the window at the start of a frame"),
        (Zeros, "padding-mode", "pads in the mode constant"),
        (Magnitude, "exponent", "takes the root of what add gives"),
        (Added, "limits", "adds 0.001 where the reference limits to it"),
        (Decadic, "function", "computes log10 for log"),
    ],
)
def test_what_a_spectrum_has_otherwise_is_named(port, id, says):
    (cause,) = check(case(Reference, port, sound), hasty=True).divergences[0].causes
    assert (cause.id, cause.says) == (id, says)


class Annealed(torch.nn.Module):
    def forward(self, x, rates):
        for rate in rates:
            step = 0.02 * (rate / rates[-1]) ** 2
            x = x - step * torch.tanh(x) + torch.sqrt(step)
        return x


class NotSquared(nnx.Module):
    def __call__(self, x, rates):
        for rate in rates:
            step = 0.02 * (rate / rates[-1])
            x = x - step * jnp.tanh(x) + jnp.sqrt(step)
        return x


def test_a_square_that_is_left_out_is_no_root():
    def inputs(rng):
        return rng.standard_normal((2, 3)), np.sort(rng.random(3) + 0.5)

    (cause,) = check(case(Annealed, NotSquared, inputs), hasty=True).divergences[0].causes
    assert (cause.id, cause.says) == ("exponent", "takes it where the reference takes its square")
    assert cause.fix == "square it: x**2"


class Summed(torch.nn.Module):
    """What comes along edges, `[edges, 3]`, at the six nodes that they end in."""

    def forward(self, x, to):
        return torch.zeros(6, 3, dtype=x.dtype).index_add(0, to, x)


class Counted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.start = torch.nn.Parameter(torch.randn(6, 3))

    def forward(self, x, to):
        return self.start.index_add(0, to, x)


class AddsOneAlone(nnx.Module):
    def __init__(self):
        self.start = nnx.Param(jnp.zeros((6, 3)))

    def __call__(self, x, to):
        start = self.start[...]
        return start.at[to].set(start[to] + x)


def scattered(how):
    class Scattered(nnx.Module):
        def __call__(self, x, to):
            return how(jnp.zeros((6, 3), x.dtype), to, x)

    return Scattered


def mean(zeros, to, x):
    count = zeros.at[to].add(1.0)
    return zeros.at[to].add(x) / jnp.maximum(count, 1)


SETS = "sets where the reference adds: the last that goes to a place counts"


def edges(rng):
    return rng.standard_normal((20, 3)).astype(np.float32), rng.integers(0, 6, 20)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (
            lambda zeros, to, x: zeros.at[to].set(x),
            "sets where the reference adds: the last that goes to a place counts",
        ),
        (mean, "takes the mean of what goes to one place"),
        (
            lambda zeros, to, x: jax.ops.segment_max(x, to, 6),
            "takes the largest of what goes to one place",
        ),
    ],
    ids=["set", "mean", "max"],
)
def test_what_becomes_of_several_at_one_place_is_named(how, says):
    (cause,) = check(case(Summed, scattered(how), edges), hasty=True).divergences[0].causes
    assert (cause.id, cause.says) == ("scatter", says)


def test_an_addition_that_loses_what_comes_to_one_place_twice_is_named():
    (cause,) = check(case(Counted, AddsOneAlone, edges), hasty=True).divergences[0].causes
    assert (cause.id, cause.says) == ("scatter", "adds the last alone of what goes to one place")


class Upsampled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, 3, 3, 3))

    def forward(self, x):
        return torch.nn.functional.conv_transpose2d(x, self.weight, stride=2)


class PortOfUpsampled(nnx.Module):
    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.zeros((2, 3, 3, 3)))

    def __call__(self, x):
        layout = ("NCHW", "IOHW", "NCHW")
        return jax.lax.conv_transpose(x, self.weight[...], (2, 2), "VALID", dimension_numbers=layout)


def test_a_transposed_convolution_is_told_to_flip_its_kernel():
    def inputs(rng):
        return (rng.standard_normal((2, 2, 5, 5)),)

    case = Case(name="c", summary="s", reference=Upsampled, model=PortOfUpsampled, inputs=inputs, adversarial=())
    (cause,) = check(case, hasty=True).causes
    assert cause.id == "kernel-flipped"
    assert "flip it along each axis" in cause.fix
