"""A write to the places that a condition picks, at a fixed size.

The obstacle is `nonzero`: how many indices it gives depends on the values, and the write through them is in place.
Where one value goes to all places, no index is needed: `jnp.where` on the mask is the write. The gradient is the same
too: none reaches an entry that was overwritten, and the fill value gets the sum over them.
"""

import jax
import jax.numpy as jnp
from flax import nnx


class FillZeros(nnx.Module):
    """`[B, F]` -> `[B, F]`: the input with each zero replaced by a learned value."""

    def __init__(self, rngs: nnx.Rngs, initial: float = 0.5):
        self.fill = nnx.Param(jnp.array(initial))

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.where(x == 0, self.fill[...], x)
