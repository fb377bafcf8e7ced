"""Two elementwise operations on two inputs.

The obstacle is no construct but the cost of the call: eager code launches a kernel and allocates a result for each
operation. One graph makes one fused kernel of both, and what is left to time is the way in and out.
"""

import jax
from flax import nnx


class ScaleAdd(nnx.Module):
    """`[N]`, `[N]` -> `[N]`: `2 x + y`."""

    def __init__(self, rngs: nnx.Rngs): ...

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return 2 * x + y
