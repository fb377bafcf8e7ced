"""Arrays of a computed length, and buffers that grow: `arange`, `full` and `append` at a fixed capacity."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_capacity, as_row_mask, as_rows
from ..indices import DROP
from ..masking.padded import Padded, settled
from ..selection.places import picked_before
from .lengths import NO_LENGTH, as_integer, saturating_add, settled_if

T = TypeVar("T")


def arange(n: ArrayLike, *, capacity: int, on_overflow: OnOverflow = "flag") -> Padded[jax.Array]:
    """`torch.arange(n)` with a computed `n`; for other bounds and steps, compute with the values.

    Args:
      n: integer.
      capacity: the most entries that there is room for.
      on_overflow: where `n` is above `capacity`, `"flag"` sets the count alone, `"raise"` raises `ValueError` once the
        graph has run.

    Returns:
      `Padded` of `[capacity]` int32; 0 beyond the count, which is 2**31 - 1, an overflow, where `n` is negative:
      PyTorch raises there.

    Raises:
      ValueError, TypeError: where n, capacity or on_overflow do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> numbers = arange(jnp.array(3), capacity=4)
      >>> numbers.values.tolist(), numbers.valid.tolist()
      ([0, 1, 2, 0], [True, True, True, False])
    """
    capacity = as_capacity(capacity)
    n = as_integer(n, name="n")
    numbers = jnp.arange(capacity, dtype=jnp.int32)
    valid = numbers < n
    found = Padded(jnp.where(valid, numbers, 0), valid, jnp.maximum(n, 0))
    return settled_if(n >= 0, "n is {n}, and a length was wanted", found, on_overflow, "arange", n=n)


def full(n: ArrayLike, row: T, *, capacity: int, on_overflow: OnOverflow = "flag") -> Padded[T]:
    """`n` times the same row, with a computed `n`: `torch.full((n,), row)`, `torch.zeros(n, ...)`, or an empty buffer.

    Args:
      n: integer; 0 for a buffer that `append` fills.
      row: a number or an array `[...]` of any dtype, or a pytree of such.
      capacity: the most rows that there is room for.
      on_overflow: where `n` is above `capacity`, `"flag"` sets the count alone, `"raise"` raises `ValueError` once the
        graph has run, `"nan"` makes every value NaN.

    Returns:
      `Padded` of `[capacity, ...]` in the dtype of `row`; the row stands beyond the count too. The count is 2**31 - 1,
      an overflow, where `n` is negative: PyTorch raises there.

    Raises:
      ValueError, TypeError: where n, capacity or on_overflow do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> twos = full(jnp.array(2), 2.0, capacity=3)
      >>> twos.values.tolist(), int(twos.count)
      ([2.0, 2.0, 2.0], 2)
    """
    capacity = as_capacity(capacity)
    n = as_integer(n, name="n")
    values = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (capacity, *jnp.shape(leaf))), row)
    filled = Padded(values, jnp.arange(capacity, dtype=jnp.int32) < n, jnp.maximum(n, 0))
    return settled_if(n >= 0, "n is {n}, and a length was wanted", filled, on_overflow, "full", n=n)


def append(
    buffer: Padded[T], rows: Any, *, valid: ArrayLike | None = None, on_overflow: OnOverflow = "flag"
) -> Padded[T]:
    """`torch.cat([buffer, rows])` into the room that a buffer has: a list that grows, or a key-value cache.

    What finds no room is counted and not written, whereas `jax.lax.dynamic_update_slice` would write it over the last
    entries. A carry of `scan` or `while_loop`; one sequence a lane under `vmap`.

    Args:
      buffer: `Padded` of `[capacity, ...]`; `full(0, row, capacity=...)` is an empty one.
      rows: `[M, ...]`, of the structure and dtypes of `buffer.values`, or a `Padded` of such. One row is `row[None]`.
      valid: `[M]` bool, which of the rows to append; all if left out.
      on_overflow: where there are more rows than room, `"flag"` sets the count alone, `"raise"` raises `ValueError`
        once the graph has run, `"nan"` makes every value NaN.

    Returns:
      `Padded` of `[capacity, ...]`: the entries of `buffer`, then the rows, in order.

    Raises:
      ValueError: where rows do not fit the buffer in structure, shape or dtype, or valid or on_overflow do not fit.
      TypeError: where buffer is no `Padded`.

    Example:
      >>> import jax.numpy as jnp
      >>> buffer = full(0, 0, capacity=3)
      >>> buffer = append(append(buffer, jnp.array([4, 5])), jnp.array([6, 7]))
      >>> buffer.values.tolist(), int(buffer.count), bool(buffer.overflow)
      ([4, 5, 6], 4, True)
    """
    if not isinstance(buffer, Padded):
        raise TypeError(
            f"buffer is a {type(buffer).__name__}, and a Padded was wanted; "
            f"gm.full(0, row, capacity=...) is an empty one"
        )
    lost = jnp.zeros((), jnp.int32)
    picked = None
    if isinstance(rows, Padded):
        lost = (rows.count - jnp.sum(rows.valid, dtype=rows.count.dtype)).astype(jnp.int32)
        rows, picked = rows.values, rows.valid
    rows, number = as_rows(rows, name="rows")
    _must_fit(buffer.values, rows)
    if valid is not None:
        given = as_row_mask(valid, number, of="rows", shape=jax.tree.leaves(rows)[0].shape, name="valid")
        picked = given if picked is None else given & picked
    picked = jnp.ones(number, jnp.bool_) if picked is None else picked
    capacity = buffer.capacity
    slots = jnp.arange(capacity, dtype=jnp.int32)
    # After the last entry, where a mask has holes too: what then finds no room is an overflow, seen by the count.
    begin = jnp.max(jnp.where(buffer.valid, slots + 1, 0))
    target = jnp.where(picked, begin + picked_before(picked)[0], capacity)
    appended = jnp.sum(picked, dtype=jnp.int32)

    def written(room: jax.Array, new: jax.Array) -> jax.Array:
        return room.at[target].set(new, **DROP)

    values = jax.tree.map(written, buffer.values, rows)
    taken = buffer.valid | ((slots >= begin) & (slots < begin + appended))
    count = saturating_add(buffer.count.astype(jnp.int32), saturating_add(appended, lost))
    return settled(Padded(values, taken, jnp.minimum(count, NO_LENGTH)), on_overflow, "append")


def _must_fit(values: Any, rows: Any) -> None:
    wanted, given = str(jax.tree.structure(values)), str(jax.tree.structure(rows))
    if given != wanted:
        raise ValueError(f"rows have structure {given}, and that of the buffer was wanted, {wanted}")
    for room, new in zip(jax.tree.leaves(values), jax.tree.leaves(rows), strict=True):
        if room.shape[1:] != new.shape[1:] or room.dtype != new.dtype:
            raise ValueError(
                f"rows are {new.dtype}{list(new.shape)}, and {room.dtype}{['M', *room.shape[1:]]} was wanted, as the "
                f"buffer holds; cast or reshape them, and give one row as row[None]"
            )
