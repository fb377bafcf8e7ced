"""Ports that keep arrays where no variable is: in functions and in plain objects."""

import functools
import types

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.held_tracers import holds_tracers

WIDTH = 4


class Waves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.waves = [lambda x, f=f: torch.sin(x * f) for f in torch.linspace(1, 3, 3)]

    def forward(self, x):
        return sum(wave(self.fc(x)) for wave in self.waves)


class Encoder:
    """An object of no library's."""

    def __init__(self, frequencies):
        self.frequencies = frequencies

    def __call__(self, x):
        return sum(jnp.sin(x * f) for f in self.frequencies)


def defaults(frequencies):
    return lambda x, frequencies=frequencies: Encoder(frequencies)(x)


def closure(frequencies):
    return lambda x: Encoder(frequencies)(x)


def partial(frequencies):
    return functools.partial(lambda f, x: Encoder(f)(x), frequencies)


def compiled(frequencies):
    return jax.jit(closure(frequencies))


@pytest.mark.parametrize("keep", [defaults, closure, partial, compiled, Encoder])
def test_arrays_that_a_port_keeps_in_functions_and_objects_are_its_own(keep):
    class Port(nnx.Module):
        def __init__(self, rngs):
            self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
            self.waves = keep(list(jnp.linspace(1, 3, 3)))

        def __call__(self, x):
            return self.waves(self.fc(x))

    case = Case(
        name="c",
        summary="s",
        reference=Waves,
        model=Port,
        inputs=lambda rng: (rng.standard_normal((20, WIDTH)),),
        adversarial=(),
    )
    report = check(case)
    assert report.passed, report


def test_what_holds_no_tracer_is_known_whatever_it_is():
    itself = []
    itself.append(itself)
    for value in (itself, types, jnp.ones(2), nnx.Param(jnp.ones(2)), lambda x: x, {"a": (1, "b")}):
        assert not holds_tracers(value)
    found = []
    jax.jit(lambda x: found.append(holds_tracers({"a": [x]})))(1.0)
    assert found == [True]
