"""An LSTM over time: `graphmode.nn.LSTM`, whose scan and backward pass `graphmode.nn.recurrent.over_time` explains."""

import jax
from flax import nnx

from graphmode import nn


class LSTM(nn.LSTM):
    """`x [T, B, I]` -> `(y [T, B, H], h [B, H], c [B, H])`: one layer, from a zero state."""

    def __init__(self, rngs: nnx.Rngs, in_features: int = 512, hidden: int = 512):
        super().__init__(in_features, hidden, rngs=rngs)

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:  # type: ignore[override]
        y, (h, c) = super().__call__(x)
        return y, h[0], c[0]
