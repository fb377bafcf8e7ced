"""Reordering by value at a fixed size.

The obstacle is `x[x > 0]`, whose length depends on the values. The two parts together have a length that does not:
`gm.partition` puts the rows of a mask first by prefix sums, without a sort, and the product goes on as it was.
"""

import jax
from flax import nnx

import graphmode as gm


class PositivesFirst(nnx.Module):
    """`[N]` -> `[M]`: the positive entries of `x` first, both parts in their order, times `w` `[N, M]`."""

    def __init__(self, rngs: nnx.Rngs, length: int = 4096, out_features: int = 96):
        self.w = nnx.Param(jax.random.normal(rngs.params(), (length, out_features)) / length**0.5)

    def __call__(self, x: jax.Array) -> jax.Array:
        ordered, _ = gm.partition(x, x > 0)
        return ordered @ self.w[...]
