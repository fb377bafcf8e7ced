"""`group_by`: rows that share a key, at a fixed capacity of groups."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_capacity, as_on_overflow
from ..bisection import bisected
from ..indices import DROP
from ..masking.padded import Padded, settled
from ..selection.gather import rows_at
from ..selection.places import picked_before
from .segments import Segments, segments, unpadded


def group_by(
    keys: ArrayLike | Padded[jax.Array],
    *,
    capacity: int,
    valid: ArrayLike | None = None,
    on_overflow: OnOverflow = "flag",
) -> tuple[Padded[jax.Array], Segments]:
    """Groups of rows with equal keys, for `segment_sum` and its kin: `torch.unique(keys, return_inverse=True)`.

    The keys are sorted alone, as integers in the same order: on a CPU, XLA sorts 1e5 integers in a fifth of the time
    that it takes for floats, or for keys with their positions. Each row then finds its group by bisection.

    Args:
      keys: `[N]`, numbers or bools; or a `Padded` of such. Zeros of both signs are one key and each NaN is one of its
        own, as in `torch.unique`.
      capacity: the most groups that there is room for; those of the smallest keys are kept.
      valid: `[N]` bool, false for rows of no group.
      on_overflow: where there are more than `capacity` distinct keys, or a `Padded` had lost rows, `"flag"` sets the
        counts alone, `"raise"` raises `ValueError` once the graph has run, `"nan"` makes every value of a reduction
        over the groups NaN, and the keys if they are floats.

    Returns:
      The distinct keys in ascending order, a `Padded` of `[capacity]`, and the `Segments` of the rows: `.ids` is
      torch's inverse, `.counts` how many rows each group has, `.outside` how many rows found no group. Rows that a
      `Padded` had lost are added to the count of the keys, which is an upper bound then, and to `.outside`.

    Raises:
      ValueError: where keys, valid, capacity or on_overflow do not fit.
      TypeError: where capacity is no integer, or a traced one.

    Example:
      >>> import jax.numpy as jnp
      >>> names, groups = group_by(jnp.array([7, 3, 7, 9]), capacity=4)
      >>> names.values.tolist(), int(names.count), groups.ids.tolist(), groups.counts.tolist()
      ([3, 7, 9, 0], 3, [1, 0, 1, 2], [1, 2, 1, 0])
    """
    capacity = as_capacity(capacity)
    as_on_overflow(on_overflow)
    keys, inside, lost = unpadded(keys, valid, name="keys")
    if keys.ndim != 1 or not (jnp.issubdtype(keys.dtype, jnp.number) or keys.dtype == jnp.bool_):
        raise ValueError(f"keys is {keys.dtype}{list(keys.shape)}, and numbers or bools of shape [N] were wanted")
    if jnp.issubdtype(keys.dtype, jnp.complexfloating):
        raise ValueError(f"keys has dtype {keys.dtype}, which has no order; group by its parts")
    rows = keys.shape[0]
    nan = jnp.isnan(keys) & inside
    order = _as_ordered_integers(keys)
    # Rows of no group share the last key with real ones; which of equal keys comes last makes no difference.
    last = np.asarray(jnp.iinfo(order.dtype).max, order.dtype)
    order = jnp.where(inside, order, last)
    ranked = jnp.sort(order)
    new = jnp.concatenate([jnp.ones(min(rows, 1), jnp.bool_), ranked[1:] != ranked[:-1]])
    if jnp.issubdtype(keys.dtype, jnp.floating):
        new |= ranked == last
    new &= jnp.arange(rows) < jnp.sum(inside)
    group_at, count = picked_before(new)
    table = jnp.full(capacity, last, order.dtype).at[jnp.where(new, group_at, capacity)].set(ranked, **DROP)
    ids = bisected(table, order)
    if jnp.issubdtype(keys.dtype, jnp.floating):
        ids += jnp.where(nan, picked_before(nan)[0], 0)

    groups = segments(ids, num_segments=capacity, valid=inside)
    groups = Segments(groups.ids, groups.outside + lost, capacity, on_overflow)
    first = jnp.full(capacity, rows, jnp.int32).at[groups.ids].min(jnp.arange(rows, dtype=jnp.int32), **DROP)
    held = Padded(rows_at(keys, first), jnp.arange(capacity) < count, count + lost)
    lossless = on_overflow == "nan" and not jnp.issubdtype(keys.dtype, jnp.floating)
    return settled(held, "flag" if lossless else on_overflow, "group_by"), groups


def _as_ordered_integers(x: jax.Array) -> jax.Array:
    """Integers in the order of `x`, equal where equal; NaN, of whatever bits, is the largest integer."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.int32)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return x
    if x.dtype.itemsize < 4:
        x = x.astype(jnp.float32)
    signed = jnp.int32 if x.dtype.itemsize == 4 else jnp.int64
    bits = jax.lax.bitcast_convert_type(jnp.where(x == 0, 0, x), signed)
    last = np.asarray(jnp.iinfo(signed).max, signed)
    # The bits of a negative float grow with its size: all but the sign are flipped.
    return jnp.where(jnp.isnan(x), last, jnp.where(bits < 0, bits ^ last, bits))
