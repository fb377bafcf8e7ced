"""Projections that pack queries, keys and values: by piece, or by head."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from told_causes import causes

from graphmode import nn

HEADS, SIZE, TIME, BATCH = 3, 4, 5, 2
WIDTH = HEADS * SIZE


class ByPiece(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def split(self, packed):
        q, k, v = packed.chunk(3, dim=-1)
        return [x.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for x in (q, k, v)]

    def forward(self, x):
        q, k, v = self.split(self.qkv(x))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return self.out(mixed.flatten(2))


class ByHead(ByPiece):
    def split(self, packed):
        return packed.unflatten(-1, (HEADS, 3 * SIZE)).transpose(1, 2).chunk(3, dim=-1)


class ByHeadInTheBatch(ByPiece):
    def split(self, packed):
        packed = packed.mT.reshape(BATCH * HEADS, 3 * SIZE, TIME)
        return [x.unflatten(0, (BATCH, HEADS)).mT for x in packed.chunk(3, dim=1)]


def port(shape, axis):
    class Port(nnx.Module):
        def __init__(self, rngs):
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, rngs=rngs), nn.Linear(WIDTH, WIDTH, rngs=rngs)

        def __call__(self, x):
            q, k, v = jnp.moveaxis(self.qkv(x).reshape(*x.shape[:2], *shape), axis, 0)
            return self.out(jax.nn.dot_product_attention(q, k, v).reshape(x.shape))

    return Port


BY_PIECE, BY_HEAD = port((3, HEADS, SIZE), 2), port((HEADS, 3, SIZE), 3)


@pytest.mark.parametrize(
    ("reference", "wrong", "says"),
    [
        (ByPiece, BY_HEAD, "takes the 3 pieces of each of 3 heads, for 3 pieces of all heads"),
        (ByHead, BY_PIECE, "takes 3 pieces of all 3 heads, for the 3 pieces of each head"),
        (ByHeadInTheBatch, BY_PIECE, "takes 3 pieces of all 3 heads, for the 3 pieces of each head"),
    ],
)
def test_what_is_packed_otherwise_is_named(reference, wrong, says):
    found = causes(reference, wrong, lambda rng: (rng.standard_normal((BATCH, TIME, WIDTH)),))
    assert says in [words for _, words in found], found


class Across(torch.nn.Module):
    """Heads side by side in the batch, as pieces of the features that are joined there."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x, memory):
        q, k, v = self.q(x), self.k(memory), self.v(memory)
        q, k, v = torch.cat(q.split(SIZE, 2)), torch.cat(k.split(SIZE, 2)), torch.cat(v.split(SIZE, 2))
        mixed = torch.softmax(q.bmm(k.transpose(1, 2)) / SIZE**0.5, 2).bmm(v)
        return torch.cat(mixed.split(len(x)), 2)


class EveryThird(nnx.Module):
    def __init__(self, rngs):
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(3))

    def __call__(self, x, memory):
        q, k, v = (
            y.reshape(*y.shape[:2], SIZE, HEADS).swapaxes(2, 3) for y in (self.q(x), self.k(memory), self.v(memory))
        )
        return jax.nn.dot_product_attention(q, k, v).reshape(x.shape)


def test_heads_that_are_split_in_several_lines_are_tried_together():
    def inputs(rng):
        return rng.standard_normal((BATCH, TIME, WIDTH)), rng.standard_normal((BATCH, TIME + 2, WIDTH))

    found = causes(Across, EveryThird, inputs, modes=("inference",))
    assert found == [("pieces-interleaved", "takes every n-th element into a piece")]
