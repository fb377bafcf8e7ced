"""Where a module has more calls than can be tried in time: what is tried first is where the two sides part."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity.causes.trial import Trial

import graphmode as gm

WIDTH = 4
TURNS = 12
search = importlib.import_module("graphmode.compare.parity.causes.search")
explain = importlib.import_module("graphmode.compare.parity.causes.explain")  # the package has a function of this name


def weighted(x, by):
    return x.cumsum(-1) * by


class Mixed(torch.nn.Module):
    """Many calls, of which two, of one function, are those that the wrong port makes otherwise."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        h = self.linear(x)
        for turn in range(TURNS):
            h = torch.sin(h * (1 + 0.1 * turn)) + 0.5 * h
            h = h - 0.1 * h.mean(-1, keepdim=True)
        first, second = weighted(h, x), weighted(h[:, :3], x[:, :3] * 2)
        return torch.cat([first, second], -1) * torch.tanh(h.sum(-1, keepdim=True))


class MixedPort(nnx.Module):
    def __init__(self, rngs, weighted):
        self.linear = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)
        self.weighted = weighted

    def __call__(self, x):
        h = self.linear(x)
        for turn in range(TURNS):
            h = jnp.sin(h * (1 + 0.1 * turn)) + 0.5 * h
            h = h - 0.1 * h.mean(-1, keepdims=True)
        first, second = self.weighted(h, x), self.weighted(h[:, :3], x[:, :3] * 2)
        return jnp.concatenate([first, second], -1) * jnp.tanh(h.sum(-1, keepdims=True))


def case(port):
    def inputs(rng):
        return (rng.normal(size=(5, WIDTH)).astype(np.float32),)

    def model(rngs):
        return MixedPort(rngs, port)

    return Case(
        name="c", summary="s", reference=Mixed, model=model, inputs=inputs, adversarial=(), modes=("inference",)
    )


@pytest.fixture
def tried(monkeypatch):
    """The changes that have been tried so far."""
    counted, usual = [], Trial.vary

    def vary(self, *args, **kwargs):
        counted.append(args)
        return usual(self, *args, **kwargs)

    monkeypatch.setattr(Trial, "vary", vary)
    return counted


def causes(port):
    (divergence,) = check(case(port), hasty=True).divergences
    return [cause.id for cause in divergence.causes]


def test_a_function_that_is_called_twice_is_wrong_in_both():
    assert causes(lambda x, by: jnp.cumsum(x, -1)) == ["factor-missing"]
    assert check(case(lambda x, by: jnp.cumsum(x, -1) * by)).passed


def test_what_is_tried_first_is_where_they_part(monkeypatch, tried):
    found = causes(lambda x, by: jnp.cumsum(x, -1))
    usual = len(tried)
    tried.clear()
    monkeypatch.setattr(search, "LONG_S", 0.0)  # as of a module that takes long
    assert causes(lambda x, by: jnp.cumsum(x, -1)) == found
    assert len(tried) < usual / 2


def test_what_is_no_call_there_is_found_as_usual(monkeypatch):
    monkeypatch.setattr(explain, "WAYS_S", 0.0)  # it cannot be told where they part
    monkeypatch.setattr(search, "LONG_S", 0.0)
    assert causes(lambda x, by: jnp.cumsum(x, -1)) == ["factor-missing"]


def ringed(x, shift):
    """Each row moved by a kernel of its own, around its ends."""
    ends = torch.cat([x[:, -1:], x, x[:, :1]], 1)
    return torch.nn.functional.conv1d(ends[None], shift[:, None], groups=len(x))[0]


class Ring(Mixed):
    def forward(self, x):
        h = self.linear(x)
        for turn in range(TURNS):
            h = torch.sin(h * (1 + 0.1 * turn)) + 0.5 * h
        return ringed(h, torch.softmax(x[:, :3], 1))


class RingPort(MixedPort):
    def __call__(self, x):
        h = self.linear(x)
        for turn in range(TURNS):
            h = jnp.sin(h * (1 + 0.1 * turn)) + 0.5 * h
        return self.weighted(h, jax.nn.softmax(x[:, :3], 1))


def rolled(x, shift, turn=1):
    before, after = jnp.roll(x, turn, 1), jnp.roll(x, -turn, 1)
    return shift[:, :1] * before + shift[:, 1:2] * x + shift[:, 2:] * after


def test_all_of_a_function_that_the_port_writes_in_another_way_is_tried_where_they_part(monkeypatch):
    def failing(self, sites):
        raise AssertionError("it was not found where they part")

    monkeypatch.setattr(search, "LONG_S", 0.0)
    monkeypatch.setattr(search.Search, "_moved", failing)
    right = dataclasses.replace(case(rolled), reference=Ring, model=lambda rngs: RingPort(rngs, rolled))
    assert check(right).passed
    wrong = dataclasses.replace(right, model=lambda rngs: RingPort(rngs, lambda x, s: rolled(x, s, -1)))
    (divergence,) = check(wrong, hasty=True).divergences
    assert [cause.id for cause in divergence.causes] == ["kernel-flipped"]
