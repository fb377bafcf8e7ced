"""A reference of three layers, and the port of it that works on rows: what tests of the look inside a port vary."""

import jax.numpy as jnp
import torch
from flax import nnx

from graphmode import nn

WIDTH = 3


class Rows(torch.nn.Module):
    """`[..., WIDTH]` -> the same."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(WIDTH, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, WIDTH)

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))


class RowsPort(nnx.Module):
    """Without a call of its own: a port calls `rows` in its way."""

    def __init__(self, rngs: nnx.Rngs, eps=1e-5):
        self.first, self.last = nn.Linear(WIDTH, 5, rngs=rngs), nn.Linear(5, WIDTH, rngs=rngs)
        self.norm = nn.LayerNorm(5, eps=eps, rngs=rngs)

    def rows(self, x):
        return self.last(jnp.tanh(self.norm(self.first(x))))
