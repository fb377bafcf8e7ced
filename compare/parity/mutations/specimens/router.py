"""Tokens to experts with a capacity, and embeddings by hash and by distance: integers that decide."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch
from flax import nnx

import graphmode as gm

from ....case import Case

EXPERTS, CAPACITY, WIDTH, BUCKETS = 3, 4, 5, 31


class TorchHash(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(BUCKETS, WIDTH)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.table(words * 7919 % BUCKETS)


class TorchDistance(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(9, WIDTH)

    def forward(self, position: torch.Tensor) -> torch.Tensor:
        return self.table(torch.floor(position * 2).long().clamp(-4, 4) + 4)


class TorchRouter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = torch.nn.Linear(WIDTH, EXPERTS)
        self.weight = torch.nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH) / 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gates = self.scores(x).softmax(-1)
        chosen = torch.nn.functional.one_hot(gates.argmax(-1), EXPERTS)
        place = chosen.cumsum(0) * chosen
        kept = (chosen * (place <= CAPACITY)).to(x.dtype)
        return x + torch.einsum("te,td,edf->tf", kept * gates, x, self.weight)


class Reference(torch.nn.Module):
    """Words `[T]`, positions `[T]` -> `[T, 5]`."""

    def __init__(self) -> None:
        super().__init__()
        self.hash, self.distance, self.router = TorchHash(), TorchDistance(), TorchRouter()

    def forward(self, words: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.router(self.hash(words) + self.distance(position) + position[:, None])


class Hash(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.table = gm.nn.Embedding(BUCKETS, WIDTH, rngs=rngs)

    def bucket(self, words: jax.Array) -> jax.Array:
        return words * 7919 % BUCKETS

    def __call__(self, words: jax.Array) -> jax.Array:
        return self.table(self.bucket(words))


class Distance(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.table = gm.nn.Embedding(9, WIDTH, rngs=rngs)

    def bucket(self, position: jax.Array) -> jax.Array:
        return jnp.floor(position * 2).astype(int).clip(-4, 4) + 4

    def __call__(self, position: jax.Array) -> jax.Array:
        return self.table(self.bucket(position))


class Router(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.scores = gm.nn.Linear(WIDTH, EXPERTS, rngs=rngs)
        self.weight = nnx.Param(jax.random.normal(rngs.params(), (EXPERTS, WIDTH, WIDTH)))

    def kept(self, place: jax.Array) -> jax.Array:
        return place <= CAPACITY

    def gates(self, x: jax.Array) -> jax.Array:
        return jax.nn.softmax(self.scores(x), -1)

    def __call__(self, x: jax.Array) -> jax.Array:
        gates = self.gates(x)
        chosen = jax.nn.one_hot(gates.argmax(-1), EXPERTS, dtype=int)
        place = chosen.cumsum(0) * chosen
        kept = (chosen * self.kept(place)).astype(x.dtype)
        return x + jnp.einsum("te,td,edf->tf", kept * gates, x, self.weight[...])


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hash, self.distance, self.router = Hash(rngs), Distance(rngs), Router(rngs)

    def __call__(self, words: jax.Array, position: jax.Array) -> jax.Array:
        return self.router(self.hash(words) + self.distance(position) + position[:, None])


CASE = Case(
    name="router",
    summary=__doc__.splitlines()[0],
    reference=Reference,
    model=Port,
    inputs=lambda rng: (rng.integers(0, 50_000, 14), rng.standard_normal(14) * 1.5),
)
