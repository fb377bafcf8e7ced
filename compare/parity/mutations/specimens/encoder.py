"""A transformer encoder with its own attention: embeddings, positions, pre-norm, a padding mask, a tied head."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as TF
from flax import nnx

import graphmode as gm

from ....case import Case

WORDS, LENGTH, WIDTH, HEADS, INNER = 17, 7, 12, 3, 20


class TorchAttention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor, ignored: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        weights = scores.masked_fill(ignored[:, None, None], -1e9).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class TorchBlock(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attn = TorchAttention()
        self.up, self.down = torch.nn.Linear(WIDTH, INNER), torch.nn.Linear(INNER, WIDTH)
        self.drop = torch.nn.Dropout(0.25)

    def forward(self, x: torch.Tensor, ignored: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x), ignored)
        return x + self.drop(self.down(TF.gelu(self.up(self.norm2(x)))))


class Reference(torch.nn.Module):
    """Words `[B, T]`, features `[B, T, 5]`, what is padding `[B, T]` -> logits `[B, T, V]`."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.place = torch.nn.Embedding(LENGTH + 2, WIDTH)
        self.project = torch.nn.Linear(5, WIDTH)
        self.blocks = torch.nn.ModuleList([TorchBlock(), TorchBlock()])
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, words: torch.Tensor, features: torch.Tensor, ignored: torch.Tensor) -> torch.Tensor:
        x = self.embed(words) + self.place(torch.arange(words.shape[1]) + 1) + self.project(features)
        for block in self.blocks:
            x = block(x, ignored)
        return self.norm(x) @ self.embed.weight.T


class Attention(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.q = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)
        self.k = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)
        self.v = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)
        self.out = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def projections(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return self.q(x), self.k(x), self.v(x)

    def heads(self, x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)

    def scale(self, size: int) -> float:
        return size**-0.5

    def masked(self, scores: jax.Array, ignored: jax.Array) -> jax.Array:
        return jnp.where(ignored[:, None, None], -1e9, scores)

    def weights(self, scores: jax.Array) -> jax.Array:
        return jax.nn.softmax(scores, -1)

    def merge(self, x: jax.Array) -> jax.Array:
        return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def __call__(self, x: jax.Array, ignored: jax.Array) -> jax.Array:
        q, k, v = map(self.heads, self.projections(x))
        scores = q @ k.swapaxes(-1, -2) * self.scale(q.shape[-1])
        return self.out(self.merge(self.weights(self.masked(scores, ignored)) @ v))


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.norm1, self.norm2 = gm.nn.LayerNorm(WIDTH), gm.nn.LayerNorm(WIDTH)
        self.attn = Attention(rngs)
        self.up, self.down = gm.nn.Linear(WIDTH, INNER, rngs=rngs), gm.nn.Linear(INNER, WIDTH, rngs=rngs)
        self.drop = gm.nn.Dropout(0.25, rngs=rngs)

    def activate(self, x: jax.Array) -> jax.Array:
        return jax.nn.gelu(x, approximate=False)

    def attended(self, x: jax.Array, ignored: jax.Array) -> jax.Array:
        return x + self.attn(self.norm1(x), ignored)

    def fed_forward(self, x: jax.Array) -> jax.Array:
        return x + self.drop(self.down(self.activate(self.up(self.norm2(x)))))

    def __call__(self, x: jax.Array, ignored: jax.Array) -> jax.Array:
        return self.fed_forward(self.attended(x, ignored))


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.embed = gm.nn.Embedding(WORDS, WIDTH, padding_idx=0, rngs=rngs)
        self.place = gm.nn.Embedding(LENGTH + 2, WIDTH, rngs=rngs)
        self.project = gm.nn.Linear(5, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(rngs), Block(rngs)])
        self.norm = gm.nn.LayerNorm(WIDTH)

    def places(self, length: int) -> jax.Array:
        return jnp.arange(length) + 1

    def sequence(self) -> list[Block]:
        return list(self.blocks)

    def table(self) -> jax.Array:
        return self.embed.weight[...]

    def joined(self, words: jax.Array, place: jax.Array, features: jax.Array) -> jax.Array:
        return words + place + features

    def __call__(self, words: jax.Array, features: jax.Array, ignored: jax.Array) -> jax.Array:
        x = self.joined(self.embed(words), self.place(self.places(words.shape[1])), self.project(features))
        for block in self.sequence():
            x = block(x, ignored)
        return self.norm(x) @ self.table().T


def inputs(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    lengths = np.array([LENGTH, 4, 5, 2, 6])
    ignored = np.arange(LENGTH) >= lengths[:, None]
    words = np.where(ignored, 0, rng.integers(1, WORDS, ignored.shape))
    return words, rng.standard_normal((*ignored.shape, 5)), ignored


CASE = Case(name="encoder", summary=__doc__.splitlines()[0], reference=Reference, model=Port, inputs=inputs)
