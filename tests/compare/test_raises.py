"""A port that fails operation by operation, and goes on as a compiled graph."""

import inspect
from pathlib import Path

import jax.numpy as jnp
import torch
from flax import nnx
from graphmode.compare import Case, check, errors
from jax import lax

import graphmode as gm

WORDS, WIDTH, UNKNOWN = 7, 4, 1


class Known(torch.nn.Module):
    """Words that the table has; all others are one."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(WORDS, WIDTH)

    def forward(self, words):
        return self.table(torch.where(words >= WORDS, UNKNOWN, words))


class PortOfKnown(nnx.Module):
    def __init__(self, rngs):
        self.table = gm.nn.Embedding(WORDS, WIDTH, rngs=rngs)

    def __call__(self, words):
        return self.table(jnp.where(words > WORDS, UNKNOWN, words))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.known = Known()

    def forward(self, words):
        return self.known(words.long()).cumsum(1)


class Port(nnx.Module):
    def __init__(self, rngs):
        self.known = PortOfKnown(rngs)

    def __call__(self, words):
        return jnp.cumsum(self.known(words), 1)


def test_the_line_of_what_only_a_compiled_graph_lets_pass_is_told():
    case = Case(
        name="c",
        summary="s",
        reference=Model,
        model=Port,
        inputs=lambda rng: (rng.integers(0, WORDS + 2, (4, 9)),),
        adversarial=(),
    )
    report = check(case, hasty=True)
    (found,) = report.divergences
    line = inspect.getsourcelines(PortOfKnown.__call__)[1] + 1
    assert (found.module, found.kind, found.astray.port) == ("known", "PortOfKnown", [f"test_raises.py:{line}"])
    (cause,) = found.causes
    assert cause.id == "raises"
    assert "IndexError: input goes from 0 to 7, and weight has rows 0 to 6" in cause.says


class Halved(torch.nn.Module):
    def forward(self, x):
        return x / 2


class PortThatHalves(nnx.Module):
    def __call__(self, x):
        return lax.fori_loop(0, 1, lambda turn, x: x * 0.51 + turn.astype(x.dtype), x)


def test_what_fails_in_a_line_of_this_library_is_not_the_ports_fault(monkeypatch):
    case = Case(
        name="c",
        summary="s",
        reference=Halved,
        model=lambda rngs: PortThatHalves(),
        inputs=lambda rng: (rng.normal(size=4),),
    )
    assert "raises AttributeError" in str(check(case, hasty=True))
    monkeypatch.setattr(errors, "OURS", (*errors.OURS, str(Path(__file__))))
    errors.is_of_a_library.cache_clear()
    assert "raises AttributeError" not in str(check(case, hasty=True))
