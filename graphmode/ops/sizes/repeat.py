"""`repeat_interleave`: rows repeated as often as computed numbers say, at a fixed capacity."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_capacity, as_fill_value, as_rows
from ..indices import DROP
from ..masking.padded import Padded
from ..selection.gather import rows_at
from ..selection.places import prefix_sum
from .lengths import as_integers, saturating_cumsum, settled_if


def repeat_interleave(
    x: Any,
    repeats: ArrayLike | None = None,
    *,
    capacity: int,
    axis: int = 0,
    fill_value: float = 0,
    on_overflow: OnOverflow = "flag",
) -> Padded[Any]:
    """Each row of `x`, `repeats` times: `torch.repeat_interleave(x, repeats)` at a fixed size.

    `jnp.repeat(total_repeat_length=)` cuts what is too long and fills by repeating the last row, and tells neither.

    Args:
      x: `[N, ...]`, any dtype, or a pytree of such; or a `Padded` of such, whose padding is repeated 0 times. With
        `repeats` left out, `x` are the repeats and the result are the row numbers, as in
        `torch.repeat_interleave(repeats)`.
      repeats: `[N]` integers, or one integer for all rows.
      capacity: the most rows that there is room for; the first ones are kept.
      axis: the axis of `x` that is repeated. It comes first in the result, where a capacity always is;
        `jnp.moveaxis(values, 0, axis)` puts it back.
      fill_value: stands in the rows beyond the count.
      on_overflow: where there are more than `capacity` rows, `"flag"` sets the count alone, `"raise"` raises
        `ValueError` once the graph has run, `"nan"` makes every value NaN.

    Returns:
      `Padded` of `[capacity, ...]` in the dtype of `x`, or int32 row numbers. The count is 2**31 - 1, an overflow,
      where the true one is larger still, where a `Padded` had lost rows, or where a repeat is negative: PyTorch raises
      there, and here it counts as 0.

    Raises:
      ValueError: where repeats, axis, capacity, fill_value or on_overflow do not fit.
      TypeError: where repeats are no integers, or capacity is no integer, or a traced one.

    Example:
      >>> import jax.numpy as jnp
      >>> repeated = repeat_interleave(jnp.array([5, 6, 7]), jnp.array([2, 0, 1]), capacity=4)
      >>> repeated.values.tolist(), int(repeated.count)
      ([5, 5, 7, 0], 3)
    """
    capacity = as_capacity(capacity)
    there: Padded[Any] | None = None
    if repeats is None:
        repeats = as_integers(x, name="repeats")
        if repeats.ndim != 1:
            raise ValueError(f"repeats has shape {repeats.shape}, and [N] was wanted where it is the only argument")
        x, rows = None, repeats.shape[0]
    else:
        if isinstance(x, Padded):
            if axis != 0:
                raise ValueError(f"axis is {axis}, and x is a Padded, whose rows lie along axis 0; give 0")
            x, there = x.values, x
        x = jax.tree.map(lambda leaf: _axis_first(leaf, axis), x)
        x, rows = as_rows(x)
        repeats = as_integers(repeats, name="repeats")
        if repeats.shape not in ((), (1,), (rows,)):
            raise ValueError(
                f"repeats has shape {repeats.shape}, and {(rows,)} was wanted, one number for each row of x along axis "
                f"{axis}, or one for all"
            )
    lengths, negative = jnp.broadcast_to(jnp.maximum(repeats, 0), (rows,)), repeats < 0
    lost = jnp.zeros((), bool)
    if there is not None:
        lengths, negative, lost = jnp.where(there.valid, lengths, 0), negative & there.valid, there.overflow
    ends = saturating_cumsum(lengths)
    count = ends[-1] if rows else jnp.zeros((), jnp.int32)
    valid = jnp.arange(capacity, dtype=jnp.int32) < count
    # A row that is not repeated ends where the next begins, and each end passed by moves one row on.
    passed = jnp.zeros(capacity, jnp.int32).at[ends].add(1, **DROP)
    source = jnp.where(valid, prefix_sum(passed), rows)

    for leaf in [source] if x is None else jax.tree.leaves(x):
        as_fill_value(fill_value, leaf.dtype)
    if x is None:
        values = jnp.where(valid, source, fill_value).astype(jnp.int32)
    else:
        values = jax.tree.map(lambda leaf: rows_at(leaf, source, fill_value), x)
    return settled_if(
        ~(jnp.any(negative) | lost), "repeats has negative entries, or x was a Padded that had lost rows",
        Padded(values, valid, count), on_overflow,
        "repeat_interleave",
    )  # fmt: skip


def _axis_first(leaf: ArrayLike, axis: int) -> jax.Array:
    array = jnp.asarray(leaf)
    if array.ndim and not -array.ndim <= axis < array.ndim:
        raise ValueError(f"axis is {axis}, and x has shape {np.shape(array)}; give one of its axes")
    return jnp.moveaxis(array, axis, 0) if array.ndim else array
