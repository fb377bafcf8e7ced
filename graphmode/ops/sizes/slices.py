"""Slices and splits whose bounds were computed, at a fixed capacity."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_capacity, as_fill_value, as_rows
from ..masking.padded import Padded, settled
from ..masking.valid_rows import valid_first
from .lengths import as_integer, as_integers, saturating_cumsum, settled_if

T = TypeVar("T")


def take_slice(
    x: T,
    start: ArrayLike | None = None,
    stop: ArrayLike | None = None,
    *,
    capacity: int,
    fill_value: float = 0,
    on_overflow: OnOverflow = "flag",
) -> Padded[T]:
    """Rows `x[start:stop]`, with bounds that were computed: `take_slice(x, stop=n)` is `x[:n]`.

    Bounds mean what they mean in Python: negative ones count from the end, those beyond it are cut to it, and a stop
    before the start gives nothing. `jax.lax.dynamic_slice` instead moves the start back until its size fits, and so
    gives other rows than were asked for.

    Args:
      x: `[N, ...]`, any dtype, or a pytree of such; or a `Padded` of such, whose rows are the valid ones and whose end
        is its count.
      start: integer; 0 if left out.
      stop: integer; the end if left out.
      capacity: the most rows that there is room for; the first ones are kept.
      fill_value: stands in the rows beyond the count.
      on_overflow: where the slice is longer than `capacity`, `"flag"` sets the count alone, `"raise"` raises
        `ValueError` once the graph has run, `"nan"` makes every value NaN.

    Returns:
      `Padded` of `[capacity, ...]` in the dtype of `x`.

    Raises:
      ValueError: where start, stop, capacity, fill_value or on_overflow do not fit.
      TypeError: where start or stop is no integer, or capacity is no integer, or a traced one.

    Example:
      >>> import jax.numpy as jnp
      >>> part = take_slice(jnp.arange(5), -2, 9, capacity=3)
      >>> part.values.tolist(), int(part.count)
      ([3, 4, 0], 2)
    """
    x, held, rows = _leading(x)
    capacity = as_capacity(capacity)
    begin = jnp.zeros((), jnp.int32) if start is None else _bound(as_integer(start, name="start"), rows)
    end = rows if stop is None else _bound(as_integer(stop, name="stop"), rows)
    part = _window(x, begin, jnp.maximum(end - begin, 0), held, capacity, fill_value)
    return settled(part, on_overflow, "take_slice")


def split(
    x: T, lengths: ArrayLike, *, capacity: int, fill_value: float = 0, on_overflow: OnOverflow = "flag"
) -> Padded[T]:
    """Consecutive parts of `x` with computed lengths: `torch.split(x, lengths.tolist())`.

    Args:
      x: `[N, ...]`, any dtype, or a pytree of such; or a `Padded` of such, whose rows are the valid ones and whose end
        is its count.
      lengths: `[parts]` integers that sum to `N`, or to the count of a `Padded`.
      capacity: the most rows of a part that there is room for; its first ones are kept.
      fill_value: stands in the rows beyond the count of a part.
      on_overflow: where a part is longer than `capacity`, `"flag"` sets its count alone, `"raise"` raises
        `ValueError` once the graph has run, `"nan"` makes every value of that part NaN.

    Returns:
      `Padded` with a leading axis `parts` in each field, as under `vmap`: values `[parts, capacity, ...]`, valid
      `[parts, capacity]`, count `[parts]`. Every count is 2**31 - 1, an overflow, where lengths are negative or do not
      sum to the number of rows, for which PyTorch raises.

    Raises:
      ValueError: where lengths, capacity, fill_value or on_overflow do not fit.
      TypeError: where lengths are no integers, or capacity is no integer, or a traced one.

    Example:
      >>> import jax.numpy as jnp
      >>> parts = split(jnp.arange(5), jnp.array([2, 0, 3]), capacity=3)
      >>> parts.values.tolist(), parts.count.tolist()
      ([[0, 1, 0], [0, 0, 0], [2, 3, 4]], [2, 0, 3])
    """
    x, held, rows = _leading(x)
    capacity = as_capacity(capacity)
    lengths = as_integers(lengths, name="lengths")
    if lengths.ndim != 1 or not lengths.shape[0]:
        raise ValueError(f"lengths has shape {lengths.shape}, and [parts] was wanted, one length for each of the parts")
    sizes = jnp.maximum(lengths, 0)
    ends = saturating_cumsum(sizes)
    fits = jnp.all(lengths >= 0) & (ends[-1] == rows)

    def part(begin: jax.Array, length: jax.Array) -> Padded[T]:
        window = _window(x, begin, length, held, capacity, fill_value)
        return settled_if(
            fits, "lengths {lengths} do not split {rows} rows; give lengths that are not negative and sum to the rows",
            window, on_overflow, "split", lengths=lengths, rows=rows,
        )  # fmt: skip

    return jax.vmap(part)(ends - sizes, sizes)


def _leading(x: Any) -> tuple[Any, jax.Array, jax.Array]:
    """Rows, how many of them are held, and how many there should be."""
    if isinstance(x, Padded):
        return _in_front(x), jnp.sum(x.valid, dtype=jnp.int32), x.count.astype(jnp.int32)
    tree, rows = as_rows(x)
    number = jnp.asarray(rows, jnp.int32)
    return tree, number, number


def _in_front(x: Padded[T]) -> T:
    """The values with the valid rows first, where they stand already as `compact` leaves them."""

    def moved(values: T) -> T:
        slots = valid_first(x.valid)
        return jax.tree.map(lambda leaf: leaf[slots], values)

    gapless = jnp.all(x.valid[1:] <= x.valid[:-1])
    return jax.lax.cond(gapless, lambda values: values, moved, x.values)


def _bound(bound: jax.Array, rows: jax.Array) -> jax.Array:
    return jnp.clip(jnp.where(bound < 0, bound + rows, bound), 0, rows)


def _window(x: T, begin: jax.Array, length: jax.Array, held: jax.Array, capacity: int, fill_value: float) -> Padded[T]:
    slots = jnp.arange(capacity, dtype=jnp.int32)
    # Written as differences: begin + slots may pass what an int32 holds.
    valid = (slots < length) & (slots < held - begin)

    def cut(leaf: jax.Array) -> jax.Array:
        row = leaf.shape[1:]
        missing = jnp.zeros((max(capacity - leaf.shape[0], 0), *row), leaf.dtype)
        leaf = jnp.concatenate([leaf, missing])
        # Near the end dynamic_slice starts too early; the second one makes up for that.
        early = jnp.minimum(begin, leaf.shape[0] - capacity)
        window = jax.lax.dynamic_slice_in_dim(leaf, early, capacity)
        window = jnp.concatenate([window, jnp.zeros_like(window)])
        window = jax.lax.dynamic_slice_in_dim(window, begin - early, capacity)
        return jnp.where(valid.reshape(-1, *[1] * len(row)), window, as_fill_value(fill_value, leaf.dtype))

    return Padded(jax.tree.map(cut, x), valid, length)
