"""A transformer decoder as language models have it: RMS norms, rotary positions, a causal mask, a gated MLP."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as TF
from flax import nnx

import graphmode as gm

from ....case import Case

WIDTH, HEADS, INNER, EPS = 12, 3, 14, 1e-5
SIZE = WIDTH // HEADS


def torch_rotated(x: torch.Tensor) -> torch.Tensor:
    """Halves turned by the position: `[B, H, T, d]`."""
    time = torch.arange(x.shape[-2], dtype=x.dtype)
    angle = time[:, None] * 100.0 ** -(torch.arange(SIZE // 2, dtype=x.dtype) * 2 / SIZE)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


class TorchAttention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        q, k = torch_rotated(q), torch_rotated(k)
        scores = q @ k.transpose(-1, -2) / SIZE**0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return self.out((scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2))


class TorchMLP(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = torch.nn.Linear(WIDTH, INNER, bias=False), torch.nn.Linear(WIDTH, INNER, bias=False)
        self.down = torch.nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(TF.silu(self.gate(x)) * self.up(x))


class TorchBlock(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.RMSNorm(WIDTH, EPS), torch.nn.RMSNorm(WIDTH, EPS)
        self.attn, self.mlp = TorchAttention(), TorchMLP()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Reference(torch.nn.Module):
    """`[B, T, 12]` -> `[B, T, 11]`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = TorchBlock(), TorchBlock()
        self.norm = torch.nn.RMSNorm(WIDTH, EPS)
        self.head = torch.nn.Linear(WIDTH, 11, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.second(self.first(x))))


class Attention(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.qkv, self.out = gm.nn.Linear(WIDTH, 3 * WIDTH, rngs=rngs), gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def angles(self, length: int, dtype: jnp.dtype) -> jax.Array:
        return self.times(length, dtype)[:, None] * 100.0 ** -(jnp.arange(SIZE // 2, dtype=dtype) * 2 / SIZE)

    def times(self, length: int, dtype: jnp.dtype) -> jax.Array:
        return jnp.arange(length, dtype=dtype)

    def rotated(self, x: jax.Array) -> jax.Array:
        angle = self.angles(x.shape[-2], x.dtype)
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1)

    def split(self, x: jax.Array) -> list[jax.Array]:
        return jnp.split(x, 3, -1)

    def heads(self, x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:2], HEADS, SIZE).swapaxes(1, 2)

    def scaled(self, scores: jax.Array) -> jax.Array:
        return scores / SIZE**0.5

    def hidden(self, length: int) -> jax.Array:
        return jnp.triu(jnp.ones((length, length), bool), 1)

    def weights(self, scores: jax.Array) -> jax.Array:
        return jax.nn.softmax(scores, -1)

    def merge(self, x: jax.Array) -> jax.Array:
        return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def __call__(self, x: jax.Array) -> jax.Array:
        q, k, v = map(self.heads, self.split(self.qkv(x)))
        scores = self.scaled(self.rotated(q) @ self.rotated(k).swapaxes(-1, -2))
        weights = self.weights(jnp.where(self.hidden(x.shape[1]), -jnp.inf, scores))
        return self.out(self.merge(weights @ v))


class MLP(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.gate = gm.nn.Linear(WIDTH, INNER, bias=False, rngs=rngs)
        self.up = gm.nn.Linear(WIDTH, INNER, bias=False, rngs=rngs)
        self.down = gm.nn.Linear(INNER, WIDTH, bias=False, rngs=rngs)

    def activate(self, x: jax.Array) -> jax.Array:
        return jax.nn.silu(x)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.down(self.activate(self.gate(x)) * self.up(x))


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.norm1, self.norm2 = gm.nn.RMSNorm(WIDTH, EPS), gm.nn.RMSNorm(WIDTH, EPS)
        self.attn, self.mlp = Attention(rngs), MLP(rngs)

    def attended(self, x: jax.Array) -> jax.Array:
        return x + self.attn(self.norm1(x))

    def fed_forward(self, x: jax.Array) -> jax.Array:
        return x + self.mlp(self.norm2(x))

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.fed_forward(self.attended(x))


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first, self.second = Block(rngs), Block(rngs)
        self.norm = gm.nn.RMSNorm(WIDTH, EPS)
        self.head = gm.nn.Linear(WIDTH, 11, bias=False, rngs=rngs)

    def blocks(self) -> list[Block]:
        return [self.first, self.second]

    def __call__(self, x: jax.Array) -> jax.Array:
        for block in self.blocks():
            x = block(x)
        return self.head(self.norm(x))


CASE = Case(
    name="decoder",
    summary=__doc__.splitlines()[0],
    reference=Reference,
    model=Port,
    inputs=lambda rng: (rng.standard_normal((2, 6, WIDTH)),),
)
