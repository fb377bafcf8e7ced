"""`compact`: the entries that a mask picks, at a fixed capacity, with their true number."""

from __future__ import annotations

import math
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_capacity, as_fill_value, as_picked_rows
from ..indices import DROP, IN_BOUNDS
from ..masking.padded import Padded, settled
from .places import INT32_MAX, places

T = TypeVar("T")

# Measured on a CPU. A write that is dropped costs a branch, which random masks make the processor guess wrong; writing
# all rows and cutting the buffer costs memory traffic. The first is dearer for many rows of few numbers.
NARROW_ROW = 16
SPARSE = 8


def compact(
    x: T, mask: ArrayLike, *, capacity: int, fill_value: ArrayLike = 0, on_overflow: OnOverflow = "flag"
) -> Padded[T]:
    """Entries of `x` where `mask` holds, in their order: `x[mask]` at a fixed size.

    Prefix sums say where each entry goes, and one scatter moves them; no sort. Works under `jit`, `vmap` and `grad`;
    the gradient goes back to the entries that are held, and none to the others, to the mask or through the filling.

    Args:
      x: `[*lead, ...]`, any dtype, or a pytree of such.
      mask: `[*lead]`, bool: one axis for rows, several for what lies on them, or all axes of `x`, which picks numbers.
      capacity: the most entries that there is room for; the first ones, in row-major order, are kept.
      fill_value: number or 0-d array that stands beyond the count, cast to the dtype of `x`.
      on_overflow: where more than `capacity` entries are picked, `"flag"` sets the count alone, `"raise"` raises
        `ValueError` once the graph has run, `"nan"` makes every value NaN.

    Returns:
      `Padded` of `[capacity, ...]` in the dtype of `x`.

    Raises:
      ValueError: where mask, capacity, fill_value or on_overflow do not fit.
      TypeError: where capacity is no integer, or a traced one, or x is a `Padded`.

    Example:
      >>> import jax.numpy as jnp
      >>> x = jnp.array([3, -1, 4, -5])
      >>> picked = compact(x, x > 0, capacity=3)
      >>> picked.values.tolist(), picked.valid.tolist(), int(picked.count)
      ([3, 4, 0], [True, True, False], 2)

    Source: https://docs.pytorch.org/docs/stable/generated/torch.masked_select.html
    """
    if isinstance(x, Padded) and x.valid.ndim == 1:
        raise TypeError("x is a Padded, and arrays were wanted; its own method picks from it: x.compact(mask)")
    rows, mask = as_picked_rows(x, mask)
    capacity = as_capacity(capacity)
    size = mask.shape[0]
    if size + capacity > INT32_MAX:
        raise ValueError(f"x has {size} entries and capacity is {capacity}; their sum must lie below 2**31")
    target, count = places(mask)
    valid = jnp.arange(capacity, dtype=jnp.int32) < count
    # Each unpicked entry has a place of its own beyond the capacity, so that the targets are unique.
    dropped = jnp.where(mask, target, capacity + jnp.arange(size, dtype=jnp.int32))

    def picked(leaf: jax.Array) -> jax.Array:
        filling = as_fill_value(fill_value, leaf.dtype)
        shape = leaf.shape[1:]
        if math.prod(shape) > NARROW_ROW or capacity * SPARSE <= size:
            return jnp.full((capacity, *shape), filling).at[dropped].set(leaf, **DROP, unique_indices=True)
        room = jnp.zeros((max(size, capacity), *shape), leaf.dtype)
        ordered = room.at[target].set(leaf, **IN_BOUNDS, unique_indices=True)[:capacity]
        return jnp.where(valid.reshape(-1, *(1 for _ in shape)), ordered, filling)

    return settled(Padded(jax.tree.map(picked, rows), valid, count), on_overflow, "compact")
