"""Ports whose `while_loop` never ends: a check comes back and says where it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, check, endless
from jax import lax


class Halved(torch.nn.Module):
    def forward(self, x):
        while x.abs().max() > 1:
            x = x / 2
        return x


class Port(nnx.Module):
    def __init__(self, rngs, factor=2.0):
        self.factor = factor

    def __call__(self, x):
        return lax.while_loop(lambda x: jnp.abs(x).max() > 1, lambda x: x / self.factor, x)


class OfModules(Port):
    def __call__(self, x):
        return nnx.while_loop(lambda x: jnp.abs(x).max() > 1, lambda x: x / self.factor, x)


class EachRow(Port):
    def __call__(self, x):
        return jax.vmap(super().__call__)(x[:, None])[:, 0]


def case(port, low=2.0):
    return Case(
        name="halved",
        summary="a loop until values are small",
        reference=Halved,
        model=port,
        inputs=lambda rng: (rng.uniform(low, 9, 5).astype(np.float32),),
        modes=("inference",),
        adversarial=(),
    )


@pytest.fixture(autouse=True)
def few_turns(monkeypatch):
    monkeypatch.setattr(endless, "MOST_TURNS", 500)
    monkeypatch.setattr(endless, "MOST_STEPS", 50)


@pytest.mark.parametrize("port", [Port, OfModules])
def test_loops_that_end_are_equal(port):
    assert check(case(port)).passed


@pytest.mark.parametrize("port", [Port, OfModules, EachRow])
def test_one_that_does_not_is_told_with_its_line(port):
    with pytest.raises(CaseError, match=r"while_loop at test_endless.py:\d+ has not ended after 500 turns"):
        check(case(lambda rngs: port(rngs, factor=1.0)))


def test_operation_by_operation_too():
    with endless.broken_off(), jax.disable_jit(), pytest.raises(endless.EndlessLoop, match="after 50 turns"):
        Port(None, factor=1.0)(jnp.full(3, 4.0))


def test_a_loop_of_another_type_is_told_as_jax_tells_it():
    class Narrow(Port):
        def __call__(self, x):
            return lax.while_loop(lambda x: jnp.abs(x).max() > 1, lambda x: (x / 2).astype(jnp.float16), x)

    with pytest.raises(CaseError, match="input carry x has type") as told:
        check(case(Narrow))
    assert "turns" not in str(told.value)
