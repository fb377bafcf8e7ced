"""`nonzero`: where entries are not zero, as indices at a fixed capacity that no write can mistake for a place."""

from __future__ import annotations

import math
from typing import Literal, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..arguments import as_array, as_capacity
from ..masking.padded import Padded, settled
from .compact import compact

IndexOverflow = Literal["flag", "raise"]


@overload
def nonzero(
    mask: ArrayLike, *, capacity: int, as_tuple: Literal[False] = False, on_overflow: IndexOverflow = "flag"
) -> Padded[jax.Array]: ...


@overload
def nonzero(
    mask: ArrayLike, *, capacity: int, as_tuple: Literal[True], on_overflow: IndexOverflow = "flag"
) -> Padded[tuple[jax.Array, ...]]: ...


def nonzero(
    mask: ArrayLike, *, capacity: int, as_tuple: bool = False, on_overflow: IndexOverflow = "flag"
) -> Padded[jax.Array] | Padded[tuple[jax.Array, ...]]:
    """Indices of the entries that are not zero, in row-major order: `torch.nonzero` at a fixed size.

    Beyond the count, an index is the length of its axis: out of bounds, so that `x.at[i].set(..., mode="drop")` drops
    the write and `x.at[i].get(mode="fill")` fills; with -1 both would mean the last entry. A plain `x[i]` clamps.

    Args:
      mask: of any shape and dtype; NaN is not zero.
      capacity: the most indices that there is room for; the first ones are kept.
      as_tuple: one array for each axis instead of one with a column for each, as `torch.where(mask)` gives them.
      on_overflow: where more than `capacity` entries are not zero, `"flag"` sets the count alone, `"raise"` raises
        `ValueError` once the graph has run.

    Returns:
      `Padded` of `[capacity, mask.ndim]` int32, or of a tuple of `mask.ndim` arrays `[capacity]` int32.

    Raises:
      ValueError: where capacity or on_overflow do not fit.
      TypeError: where capacity is no integer, or a traced one.

    Example:
      >>> import jax.numpy as jnp
      >>> x = jnp.array([[3, 0], [0, 5]])
      >>> found = nonzero(x, capacity=3)
      >>> found.values.tolist(), int(found.count)
      ([[0, 0], [1, 1], [2, 2]], 2)

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nonzero.html
    """
    array = as_array(mask, name="mask")
    if as_tuple and not array.ndim:
        array = array.reshape(1)
    flat = flatnonzero(array, capacity=capacity)
    axes = []
    for axis, length in enumerate(array.shape):
        stride = math.prod(array.shape[axis + 1 :])
        index = flat.values if stride <= 1 else flat.values // stride
        index = index if not axis else index % max(length, 1)
        axes.append(jnp.where(flat.valid, index, jnp.int32(length)))
    if as_tuple:
        return settled(Padded(tuple(axes), flat.valid, flat.count), on_overflow, "nonzero")
    values = jnp.stack(axes, axis=1) if axes else jnp.zeros((flat.capacity, 0), jnp.int32)
    return settled(Padded(values, flat.valid, flat.count), on_overflow, "nonzero")


def argwhere(mask: ArrayLike, *, capacity: int, on_overflow: IndexOverflow = "flag") -> Padded[jax.Array]:
    """`nonzero` under the name of `torch.argwhere`: `Padded` of `[capacity, mask.ndim]` int32.

    Example:
      >>> import jax.numpy as jnp
      >>> argwhere(jnp.array([0, 7]), capacity=1).values.tolist()
      [[1]]

    Source: https://docs.pytorch.org/docs/stable/generated/torch.argwhere.html
    """
    return nonzero(mask, capacity=capacity, on_overflow=on_overflow)


def flatnonzero(mask: ArrayLike, *, capacity: int, on_overflow: IndexOverflow = "flag") -> Padded[jax.Array]:
    """Indices into the flattened array of the entries that are not zero: `torch.nonzero(x.flatten()).squeeze(1)`.

    Beyond the count, the index is the size of the array, out of bounds: see `nonzero`, whose arguments these are.

    Returns:
      `Padded` of `[capacity]` int32.

    Example:
      >>> import jax.numpy as jnp
      >>> flatnonzero(jnp.array([[3, 0], [0, 5]]), capacity=3).values.tolist()
      [0, 3, 4]
    """
    array = as_array(mask, name="mask").reshape(-1)
    held = array if array.dtype == jnp.bool_ else array != 0
    at = jnp.arange(array.size, dtype=jnp.int32)
    indices = compact(at, held, capacity=as_capacity(capacity), fill_value=array.size)
    return settled(indices, on_overflow, "nonzero")
