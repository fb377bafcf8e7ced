"""Reading rows at computed indices, where an index that is none reads a fill value and never another row."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def rows_at(x: jax.Array, indices: jax.Array, fill_value: float = 0) -> jax.Array:
    """`x[indices]` along the first axis, which may be empty; `fill_value`, with no gradient, for other indices.

    Args:
      x: `[N, ...]`.
      indices: int32 of any shape, none negative.
      fill_value: stands where an index is `N` or more.

    Returns:
      `[*indices.shape, ...]` in the dtype of `x`.
    """
    if not x.shape[0]:
        # XLA has no gather from an empty axis, not even of nothing.
        return jnp.full((*indices.shape, *x.shape[1:]), fill_value, x.dtype)
    return x.at[indices].get(mode="fill", fill_value=fill_value, wrap_negative_indices=False)
