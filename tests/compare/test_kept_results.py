"""Functions that keep what they gave, on both sides: none has in one dtype what was made in another."""

import functools

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, check

import graphmode as gm

WIDTH = 8


@functools.lru_cache(maxsize=4)
def frequencies(n):
    return 1 / (1000.0 ** (torch.arange(n) / n))


@functools.cache
def frequencies_in_jax(n):
    return 1 / (1000.0 ** (jnp.arange(n) / n))


class Waves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        assert len(frequencies(WIDTH)) == WIDTH  # in float32, as the model is built

    def forward(self, x):
        return torch.sin(self.fc(x) * frequencies(WIDTH))


class Port(nnx.Module):
    def __init__(self, rngs):
        self.fc = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def table(self):
        return 1 / (1000.0 ** (jnp.arange(WIDTH) / WIDTH))

    def __call__(self, x):
        return jnp.sin(self.fc(x) * self.table())


class KeepsIt(Port):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.size = len(frequencies_in_jax(WIDTH))

    def table(self):
        return frequencies_in_jax(WIDTH)


class KeepsOne(Port):
    @staticmethod
    @functools.cache
    def kept():
        return 1 / (1000.0 ** (jnp.arange(WIDTH) / WIDTH))

    def __init__(self, rngs):
        super().__init__(rngs)
        self.size = len(self.kept())

    def table(self):
        return self.kept()


class KeepsWhatIsTraced(Port):
    def table(self):
        return frequencies_in_jax(WIDTH)


def case(port):
    inputs = lambda rng: (rng.standard_normal((16, WIDTH)),)  # noqa: E731
    return Case(name="waves", summary="", reference=Waves, model=port, inputs=inputs, adversarial=())


@pytest.mark.parametrize("port", [Port, KeepsIt, KeepsOne])
def test_a_table_that_a_function_keeps_has_the_digits_of_each_dtype(port):
    frequencies_in_jax.cache_clear()
    report = check(case(port), locate=False)
    assert report.passed, str(report)
    assert vars(KeepsOne)["kept"].__func__.cache_info().currsize == 0  # what stood there is there again
    assert frequencies_in_jax(WIDTH).dtype == jnp.float32
    assert not isinstance(frequencies_in_jax(WIDTH), jax.core.Tracer)


def test_what_is_kept_of_a_graph_is_refused():
    with pytest.raises(CaseError, match=r"as functools\.cache, a global or an attribute keeps"):
        check(case(KeepsWhatIsTraced), locate=False)
