"""`compact`: the rows that a mask picks, at a fixed capacity, with their true number."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from .arguments import OnOverflow, as_capacity, as_row_mask, as_rows
from .padded import Padded, settled

T = TypeVar("T")


def compact(
    x: T, mask: ArrayLike, *, capacity: int, fill_value: float = 0, on_overflow: OnOverflow = "flag"
) -> Padded[T]:
    """Rows of `x` where `mask` holds, in their order: `x[mask]` at a fixed size.

    Prefix sums say where each row goes, and one scatter moves them; no sort.

    Args:
      x: `[N, ...]`, any dtype, or a pytree of such.
      mask: `[N]`, bool.
      capacity: the most rows that there is room for; the first ones are kept.
      fill_value: stands in the rows beyond the count.
      on_overflow: where more than `capacity` rows are picked, `"flag"` sets the count alone, `"raise"` raises
        `ValueError` once the graph has run, `"nan"` makes every value NaN.

    Returns:
      `Padded` of `[capacity, ...]` in the dtype of `x`.

    Raises:
      ValueError: where mask, capacity or on_overflow do not fit.
      TypeError: where capacity is no integer, or a traced one.

    Example:
      >>> import jax.numpy as jnp
      >>> x = jnp.array([3, -1, 4, -5])
      >>> picked = compact(x, x > 0, capacity=3)
      >>> picked.values.tolist(), picked.valid.tolist(), int(picked.count)
      ([3, 4, 0], [True, True, False], 2)
    """
    x, rows = as_rows(x)
    mask = as_row_mask(mask, rows, of="x", shape=np.shape(jax.tree.leaves(x)[0]))
    capacity = as_capacity(capacity)
    target = jnp.where(mask, jnp.cumsum(mask, dtype=jnp.int32) - 1, capacity)
    count = jnp.sum(mask, dtype=jnp.int32)

    def picked(leaf: jax.Array) -> jax.Array:
        room = jnp.full((capacity, *leaf.shape[1:]), fill_value, leaf.dtype)
        return room.at[target].set(leaf, mode="drop")

    valid = jnp.arange(capacity, dtype=jnp.int32) < count
    return settled(Padded(jax.tree.map(picked, x), valid, count), on_overflow, "compact")
