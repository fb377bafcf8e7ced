"""Integers that PyTorch has in 64 bits, and JAX without x64 in 32."""

from pathlib import Path

import jax.numpy as jnp
import torch
from flax import nnx
from graphmode.compare import Case, check

import graphmode as gm

BUCKETS, WIDTH = 13, 16
HERE = Path(__file__)


class Hashed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(BUCKETS, WIDTH)

    def forward(self, ids):
        return self.table((ids * 40503 + 77) % 1000003 % BUCKETS).mean(1)


class HashedPort(nnx.Module):
    def __init__(self, rngs):
        self.table = gm.nn.Embedding(BUCKETS, WIDTH, rngs=rngs)

    def __call__(self, ids):
        hashed = ids * 40503 + 77  # grows
        return self.table(hashed % 1000003 % BUCKETS).mean(1)


class InSteps(HashedPort):
    def __call__(self, ids):
        ids = jnp.int32(ids)
        low, high = ids % 256 * 40503, ids // 256 * 40503 % 1000003 * 256 % 1000003
        return self.table((low + high + 77) % 1000003 % BUCKETS).mean(1)


def checked(port):
    return check(
        Case(
            name="hashed",
            summary="",
            reference=Hashed,
            model=port,
            inputs=lambda rng: (rng.integers(0, 200_000, (8, 5)),),
            modes=("inference",),
            adversarial=(),
        )
    )


def test_the_line_that_overflows_is_told():
    report = checked(HashedPort)
    assert report.equal, str(report)
    assert not report.precise
    (found,) = report.divergences
    (cause,) = found.causes
    line = next(i for i, each in enumerate(HERE.read_text().splitlines(), 1) if "# grows" in each)
    assert cause.id == "integer-overflow"
    assert cause.says.startswith("overflows int32 in mul: ")
    assert cause.says.endswith(f" at test_wrapped.py:{line}")
    assert "times PyTorch's error in float32" in str(report)


def test_what_is_kept_small_passes():
    report = checked(InSteps)
    assert report.passed, str(report)
