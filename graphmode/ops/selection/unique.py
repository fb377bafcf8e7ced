"""`unique` and `unique_consecutive`: distinct entries at a fixed capacity, by one sort at most and prefix sums."""

from __future__ import annotations

import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_capacity
from ..bisection import bisected
from ..indices import IN_BOUNDS
from ..masking.padded import Padded, opened, settled
from .compact import compact
from .places import picked_before, places
from .sorting import sorted_entries, sorting_order


def unique(
    x: ArrayLike | Padded[Any],
    *,
    capacity: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
    fill_value: ArrayLike = 0,
    on_overflow: OnOverflow = "flag",
) -> Any:
    """Distinct entries in ascending order: `torch.unique` at a fixed size.

    One sort, prefix sums over where the sorted entries change, and a binary search for the inverse. As in PyTorch, each
    NaN is an entry of its own, at the end, and the zeros of both signs are one entry. PyTorch has no gradient here;
    this one goes back to one entry of each value.

    Args:
      x: any shape and dtype, flattened unless `dim` is given; or a `Padded`, whose padding takes no part.
      capacity: the most distinct entries that there is room for; the least ones are kept.
      sorted: True or False, as PyTorch's argument; the result is sorted in either case.
      return_inverse: whether to say which distinct entry each entry of `x` is.
      return_counts: whether to say how often each distinct entry occurs.
      dim: the axis whose slices are compared, in lexicographic order, one stable sort for each number of a slice; the
        axis comes first in the result, and `jnp.moveaxis(values, 0, dim)` puts it where PyTorch has it.
      fill_value: stands beyond the count.
      on_overflow: where there are more than `capacity` distinct entries, `"flag"` sets the count alone, `"raise"`
        raises `ValueError` once the graph has run, `"nan"` makes every value NaN.

    Returns:
      `Padded` of `[capacity]`, or `[capacity, ...]` slices, in the dtype of `x`. Where `x` is a `Padded` that lost
      entries, its losses are added to the count, which is an upper bound then. With return_inverse or return_counts a
      tuple of it and, in this order, the inverse, int32 in the shape of `x` (`[N]` with `dim`): at least `capacity` for
      what found no room, and at least the capacity and the size of `x` for padding, so that reads with `mode="fill"`
      fill; and the counts, `[capacity]` int32, zero beyond the count.

    Raises:
      ValueError: where dim, capacity, fill_value or on_overflow do not fit.
      TypeError: where capacity is no integer, or a traced one.

    Example:
      >>> import jax.numpy as jnp
      >>> distinct, inverse, counts = unique(jnp.array([7, 5, 7]), capacity=3, return_inverse=True, return_counts=True)
      >>> distinct.values.tolist(), int(distinct.count), inverse.tolist(), counts.tolist()
      ([5, 7, 0], 2, [1, 0, 1], [1, 2, 0])

    Source: https://docs.pytorch.org/docs/stable/generated/torch.unique.html
    """
    del sorted
    capacity = as_capacity(capacity)
    rows, valid, lost, shape = _rows(x, dim)
    order = None
    if rows.ndim > 1:
        order = sorting_order(rows, valid)
        groups = _Groups(rows.at[order].get(**IN_BOUNDS, unique_indices=True), valid, capacity)
    else:
        groups = _Groups(sorted_entries(rows, valid), valid, capacity)
    inverse = None
    if return_inverse:
        run = groups.of_each()
        if order is not None:
            inverse = jnp.zeros_like(run).at[order].set(run, **IN_BOUNDS, unique_indices=True)
        else:
            inverse = _found_again(rows, valid, groups, run)
        inverse = inverse.reshape(shape)
    distinct = groups.held(fill_value, lost, on_overflow, "unique")
    return _asked(distinct, inverse, groups.counts() if return_counts else None)


def unique_consecutive(
    x: ArrayLike | Padded[Any],
    *,
    capacity: int,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
    fill_value: ArrayLike = 0,
    on_overflow: OnOverflow = "flag",
) -> Any:
    """The first of each run of equal entries: `torch.unique_consecutive` at a fixed size, without a sort.

    Arguments, results and errors are those of `unique`; the order is that of `x`, and the first runs are kept. The
    padding of a `Padded` is skipped, so that a run goes on behind it.

    Example:
      >>> import jax.numpy as jnp
      >>> runs, counts = unique_consecutive(jnp.array([7, 7, 5, 7]), capacity=4, return_counts=True)
      >>> runs.values.tolist(), int(runs.count), counts.tolist()
      ([7, 5, 7, 0], 3, [2, 1, 1, 0])

    Source: https://docs.pytorch.org/docs/stable/generated/torch.unique_consecutive.html
    """
    capacity = as_capacity(capacity)
    rows, valid, lost, shape = _rows(x, dim)
    target = None if valid is None else places(valid)[0]
    if target is not None:
        rows = jnp.zeros_like(rows).at[target].set(rows, **IN_BOUNDS, unique_indices=True)
    groups = _Groups(rows, valid, capacity)
    inverse = None
    if return_inverse:
        inverse = groups.of_each()
        if target is not None:
            inverse = inverse.at[target].get(**IN_BOUNDS, unique_indices=True)
        inverse = inverse.reshape(shape)
    distinct = groups.held(fill_value, lost, on_overflow, "unique_consecutive")
    return _asked(distinct, inverse, groups.counts() if return_counts else None)


class _Groups:
    """Runs of equal rows among the first ones, as many as are valid, of `rows`, `[N, ...]`."""

    def __init__(self, rows: jax.Array, valid: jax.Array | None, capacity: int) -> None:
        size = rows.shape[0]
        self.rows, self.capacity = rows, capacity
        self.outside = max(capacity, size)
        self.at = jnp.arange(size, dtype=jnp.int32)
        self.entries = jnp.int32(size) if valid is None else jnp.sum(valid, dtype=jnp.int32)
        changes = (rows[1:] != rows[:-1]).any(axis=tuple(range(1, rows.ndim)))
        self.first = jnp.concatenate([jnp.ones(min(size, 1), bool), changes]) & (self.at < self.entries)

    def held(
        self, fill_value: ArrayLike, lost: jax.Array | None, on_overflow: OnOverflow, operation: str
    ) -> Padded[jax.Array]:
        """One row of each run."""
        held = compact(self.rows, self.first, capacity=self.capacity, fill_value=fill_value)
        if lost is not None:
            held = Padded(held.values, held.valid, held.count + lost.astype(jnp.int32))
        return settled(held, on_overflow, operation)

    def of_each(self) -> jax.Array:
        """`[N]` int32: the run of each row, and for rows beyond the valid ones an index that is out of bounds."""
        before, _ = picked_before(self.first)
        run = jnp.where(self.first, before, before - 1)
        return jnp.where(self.at < self.entries, run, self.outside)

    def counts(self) -> jax.Array:
        """`[capacity]` int32: the length of each run."""
        starts = compact(self.at, self.first, capacity=self.capacity + 1, fill_value=self.entries)
        return jnp.diff(starts.values)


def _rows(
    x: ArrayLike | Padded[Any], dim: int | None
) -> tuple[jax.Array, jax.Array | None, jax.Array | None, tuple[int, ...]]:
    """What is compared, `[N, ...]`; where it is valid; how many were lost before; the shape of an inverse."""
    values, valid, lost = opened(x)
    if dim is None:
        if valid is not None and lost is not None:
            row = values.shape[1:]
            valid = jnp.broadcast_to(valid.reshape(-1, *(1 for _ in row)), values.shape).reshape(-1)
            lost = lost * math.prod(row)
        return values.reshape(-1), valid, lost, values.shape
    try:
        axis = operator.index(dim)
    except TypeError:
        raise TypeError(f"dim is {dim!r}, and an integer, or None for all entries, was wanted") from None
    if not -values.ndim <= axis < values.ndim:
        raise ValueError(f"dim is {axis}, and x has shape {values.shape}; give an axis of x, or None for all entries")
    if valid is not None and axis % values.ndim:
        raise ValueError(f"dim is {axis}, and x is a Padded, whose entries lie along axis 0; give 0, or None")
    rows = jnp.moveaxis(values, axis, 0)
    return rows, valid, lost, rows.shape[:1]


def _found_again(x: jax.Array, valid: jax.Array | None, groups: _Groups, run: jax.Array) -> jax.Array:
    """`[N]` int32: the run of each entry of `x`, by binary search, on a CPU several times faster than an argsort."""
    size = x.shape[0]
    if not size:
        return run
    at = bisected(groups.rows, lax.stop_gradient(x))
    found = run.at[jnp.minimum(at, size - 1)].get(**IN_BOUNDS)
    if jnp.issubdtype(x.dtype, jnp.floating):
        # No search finds a NaN; each is a run, and they stand at the end in the order that they had.
        nan = jnp.isnan(x) if valid is None else jnp.isnan(x) & valid
        before, nans = picked_before(nan)
        found = jnp.where(nan, jnp.sum(groups.first, dtype=jnp.int32) - nans + before, found)
    return found if valid is None else jnp.where(valid, found, groups.outside)


def _asked(distinct: Padded[jax.Array], *others: jax.Array | None) -> Any:
    given = tuple(other for other in others if other is not None)
    return (distinct, *given) if given else distinct
