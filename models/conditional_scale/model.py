"""A branch on a value, in a graph.

The obstacle is `if x.sum() > 0`: a tracer has no value to ask, and a recorder keeps only the branch that it saw. Two
forms replace it. `jnp.where` computes both sides and picks, which is cheap where the sides are; `lax.cond` runs one
side only, and is the form for sides that cost something or that give NaN on the other side's inputs.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax


class WhereScale(nnx.Module):
    """`[N]` -> `[N]`: twice the input where its sum is positive, the input plus two otherwise; both computed."""

    def __init__(self, rngs: nnx.Rngs): ...

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.where(x.sum() > 0, x * 2, x + 2)


class CondScale(nnx.Module):
    """The same with one side computed."""

    def __init__(self, rngs: nnx.Rngs): ...

    def __call__(self, x: jax.Array) -> jax.Array:
        return lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x + 2, x)
