"""`Segments`: which row belongs to which group, judged once, and what every reduction over groups goes by."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_array, as_capacity, as_on_overflow, as_row_mask
from ..exporting import exportable
from ..host.checks import check
from ..indices import DROP
from ..masking.padded import Padded
from ..selection.gather import rows_at


@exportable
@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["given", "outside"], meta_fields=["num_segments", "on_overflow"]
)
@dataclass(frozen=True)
class Segments:
    """The group of each row; made by `segments` or `group_by`, and a pytree.

    Attributes:
      given: `[N]` int32, in `0 ... num_segments - 1`, and anything else for rows of no group.
      outside: 0-d int32, how many rows had an id that is none, or found no room. PyTorch would have raised.
      num_segments: how many groups there are, static.
      on_overflow: what reductions do where `outside` is not 0: nothing, or every value becomes NaN (`"nan"`).
    """

    given: jax.Array
    outside: jax.Array
    num_segments: int
    on_overflow: OnOverflow = "flag"

    @property
    def ids(self) -> jax.Array:
        """`[N]` int32, in `0 ... num_segments - 1`, and `num_segments` for rows of no group."""
        return jnp.where(self.inside, self.given, self.num_segments)

    @property
    def overflow(self) -> jax.Array:
        """0-d bool: whether rows belong to no group that should have."""
        return self.outside > 0

    @property
    def counts(self) -> jax.Array:
        """`[num_segments]` int32, rows of each group."""
        zeros = jnp.zeros(self.num_segments, jnp.int32)
        return zeros.at[self.given].add(1, **DROP)

    @property
    def inside(self) -> jax.Array:
        """`[N]` bool, rows that belong to a group."""
        return (self.given >= 0) & (self.given < self.num_segments)


Groups = Segments | ArrayLike | Padded[Any]


def segments(
    ids: ArrayLike | Padded[jax.Array],
    *,
    num_segments: int,
    valid: ArrayLike | None = None,
    on_overflow: OnOverflow = "flag",
) -> Segments:
    """Groups given by one id a row, for `segment_sum`, `segment_softmax` and their kin.

    In a padded batch of graphs the rows are edges and the groups nodes; `valid` says which edges are real, so no graph
    need be sacrificed for padding, and nodes that pad are empty groups. Ids out of range are never dropped unseen, as
    `jax.ops.segment_sum` drops them, and -1 is no index from the end: `outside` counts them.

    Args:
      ids: `[N]` integers in `0 ... num_segments - 1`, in any order; or a `Padded` of such.
      num_segments: static.
      valid: `[N]` bool, false for rows of no group (padding), whatever their id.
      on_overflow: where ids are out of range, `"flag"` sets `outside` alone, `"raise"` raises `ValueError` once the
        graph has run, `"nan"` makes every value of a reduction NaN.

    Returns:
      `Segments`.

    Raises:
      ValueError: where ids, valid, num_segments or on_overflow do not fit.
      TypeError: where ids are no integers, or num_segments is no integer, or a traced one.

    Example:
      >>> import jax.numpy as jnp
      >>> groups = segments(jnp.array([0, 2, 0, 7]), num_segments=3)
      >>> groups.counts.tolist(), int(groups.outside)
      ([2, 0, 1], 1)
    """
    num_segments = as_capacity(num_segments, name="num_segments")
    as_on_overflow(on_overflow)
    is_padded = isinstance(ids, Padded)
    ids, inside, lost = unpadded(ids, valid, name="ids")
    if ids.ndim != 1:
        raise ValueError(f"ids has shape {ids.shape}, and [N] was wanted, one id a row; map over batches with jax.vmap")
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise TypeError(f"ids has dtype {ids.dtype}, and integers were wanted; convert it with astype(jnp.int32)")
    # Compared in their own dtype: a wide id must not wrap into range.
    in_range = ids >= 0
    if jnp.iinfo(ids.dtype).max >= num_segments:
        in_range &= ids < num_segments
    outside = jnp.sum(inside & ~in_range, dtype=jnp.int32) + lost
    if on_overflow == "raise":
        check(
            outside == 0,
            "segments: {outside} rows have an id that is not in 0 ... {last}, or were lost for want of room; give a "
            "larger num_segments, or a valid that is false for padding",
            outside=outside,
            last=num_segments - 1,
        )
    # Scatters drop what is out of range by themselves; where the rows are all real and int32 holds their ids, judging
    # these for them costs a pass (a fifth of a sum of 1e5 rows on a CPU).
    is_plain = valid is None and not is_padded and jnp.can_cast(ids.dtype, jnp.int32)
    given = ids if is_plain else jnp.where(inside & in_range, ids, num_segments)
    return Segments(given.astype(jnp.int32), outside, num_segments, on_overflow)


def _values(ids: Any) -> Any:
    return ids.values if isinstance(ids, Padded) else ids


def unpadded(x: Any, valid: ArrayLike | None, *, name: str) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Rows of an array or a `Padded`, which of them count, and how many a `Padded` had lost."""
    lost = jnp.zeros((), jnp.int32)
    if isinstance(x, Padded):
        lost = x.count - jnp.sum(x.valid, dtype=x.count.dtype)
        rows, inside = x.values, x.valid
    else:
        rows, inside = as_array(x, name=name), None
    if not isinstance(rows, jax.Array):
        raise TypeError(f"the values of {name} are a {type(rows).__name__}, and one array was wanted")
    if not rows.ndim:
        raise ValueError(f"{name} is a scalar, and an array [N, ...] of rows was wanted")
    if valid is not None:
        given = as_row_mask(valid, rows.shape[0], of=name, shape=rows.shape, name="valid")
        inside = given if inside is None else given & inside
    return rows, jnp.ones(rows.shape[:1], jnp.bool_) if inside is None else inside, lost.astype(jnp.int32)


def members(x: Any, groups: Groups, num_segments: int | None) -> tuple[jax.Array, Segments]:
    """`x` as an array `[N, ...]`, and `groups` without the rows that a `Padded` `x` marks as none.

    An array has no field that tells of ids out of range, so those of plain ids raise.
    """
    rows, inside, _ = unpadded(x, None, name="x")
    if not isinstance(groups, Segments):
        if num_segments is None:
            raise TypeError(
                f"groups is a {type(groups).__name__}; give num_segments with it, or Segments, as gm.segments(ids, "
                f"num_segments=...) and gm.group_by(keys, capacity=...) make them"
            )
        # The id of a row that is padding may be anything.
        valid = inside if isinstance(x, Padded) and np.shape(inside) == np.shape(_values(groups)) else None
        groups = segments(groups, num_segments=num_segments, valid=valid, on_overflow="raise")
    elif num_segments is not None:
        raise TypeError(f"num_segments is {num_segments}, and groups are Segments, which have their own; leave it out")
    if rows.shape[:1] != groups.given.shape:
        raise ValueError(
            f"x has shape {rows.shape}, and groups were made for {groups.given.shape[0]} rows; give one row for each id"
        )
    if isinstance(x, Padded):
        ids = jnp.where(inside, groups.given, groups.num_segments)
        groups = Segments(ids, groups.outside, groups.num_segments, groups.on_overflow)
    return rows, groups


def per_row(values: jax.Array, groups: Segments, fill_value: float = 0) -> jax.Array:
    """`[N, ...]`, for each row the entry of `values` `[num_segments, ...]` of its group."""
    return rows_at(values, groups.given, fill_value)


def as_column(per_group: jax.Array, like: jax.Array) -> jax.Array:
    """`[N]` brought to the rank of `like` `[N, ...]`."""
    return per_group.reshape(per_group.shape + (1,) * (like.ndim - 1))


def settled_segments(values: jax.Array, groups: Segments) -> jax.Array:
    """`values`, all NaN where the groups say so."""
    if groups.on_overflow != "nan":
        return values
    as_on_overflow("nan", values.dtype)
    return jnp.where(groups.overflow, jnp.nan, values).astype(values.dtype)
