"""Masks of attention: boolean to additive, causal, and what a padding mask says of its sequences."""

from __future__ import annotations

from typing import overload

import jax
import jax.numpy as jnp


@overload
def additive(name: str, mask: jax.Array, dtype: jnp.dtype) -> jax.Array: ...
@overload
def additive(name: str, mask: None, dtype: jnp.dtype) -> None: ...
def additive(name: str, mask: jax.Array | None, dtype: jnp.dtype) -> jax.Array | None:
    """A mask whose True positions are ignored as one to add: -inf there, 0 elsewhere; a floating one as it is."""
    if mask is None:
        return None
    if mask.dtype == jnp.bool_:
        return jnp.where(mask, jnp.array(-jnp.inf, dtype), jnp.array(0, dtype))
    if not jnp.issubdtype(mask.dtype, jnp.floating):
        raise TypeError(f"{name} is {mask.dtype}; give booleans, True where attention is prevented, or floats to add")
    return mask


def generate_square_subsequent_mask(sz: int, dtype: jnp.dtype = jnp.float32) -> jax.Array:
    """`[sz, sz]`: -inf above the diagonal (True where `dtype` is bool), 0 elsewhere."""
    later = jnp.triu(jnp.ones((sz, sz), bool), 1)
    return jnp.where(later, jnp.array(-jnp.inf).astype(dtype), jnp.array(0, dtype))
