"""A value with the derivative of another: what PyTorch's in-place changes under `no_grad` come to."""

from __future__ import annotations

import jax


@jax.custom_jvp
def valued(followed: jax.Array, value: jax.Array) -> jax.Array:
    """`value`, whose derivative is that of `followed`; of the same shape and dtype."""
    return value


@valued.defjvp
def _valued_jvp(primals, tangents):
    return valued(*primals), tangents[0]
