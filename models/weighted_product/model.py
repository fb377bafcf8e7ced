"""A matrix times a vector, the weight carried over by its name.

Nothing stands in the way of a graph here; what the port shows is the parameter. It keeps the original's name and, as a
plain `nnx.Param`, the original's layout `[O, I]`, so a `state_dict` loads with no rule and no transpose.
"""

import jax
from flax import nnx


class WeightedProduct(nnx.Module):
    """`[I]` -> `[O]`: `w @ x`."""

    def __init__(self, rngs: nnx.Rngs, in_features: int = 512, out_features: int = 384):
        self.w = nnx.Param(jax.random.normal(rngs.params(), (out_features, in_features)) / in_features**0.5)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.w[...] @ x
