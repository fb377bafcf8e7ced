"""`topk`: the k largest or smallest along an axis, where k was computed."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_array, as_axis, as_capacity, as_on_overflow
from ..exporting import exportable
from ..host.checks import check
from ..masking.padded import Padded
from .lengths import NO_LENGTH, as_integers


@exportable
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TopK:
    """Up to `k_max` entries along an axis, best first; a pytree.

    Attributes:
      values: `[..., k_max, ...]`, in the place of the axis; 0 where not valid.
      indices: the same shape, int32, where in the axis each value was; 0 where not valid.
      valid: the same shape, bool.
      count: the shape of `values` without the axis, int32, how many entries were asked for. More than `k_max`, or
        than there are, if some are missing; 2**31 - 1 where a negative number of them was asked for.
      overflow: the shape of `count`, bool, whether entries are missing, for which PyTorch would have raised, or were
        lost before, so that others may have been better.
    """

    values: jax.Array
    indices: jax.Array
    valid: jax.Array
    count: jax.Array
    overflow: jax.Array


def topk(
    x: ArrayLike | Padded[jax.Array],
    k: ArrayLike,
    *,
    k_max: int,
    axis: int = -1,
    largest: bool = True,
    on_overflow: OnOverflow = "flag",
) -> TopK:
    """`torch.topk(x, k, axis, largest)` with a computed `k`, one for all or one for each lane.

    Equal entries come lowest index first, which PyTorch leaves open; zeros of both signs are equal, and NaN is larger
    than all else, as in PyTorch. `jax.lax.top_k`, which does the work, orders zeros and NaN by their sign and takes no
    computed `k`. On a CPU it is quick for floats of 32 and 16 bits; for others XLA sorts the whole axis.

    Args:
      x: `[..., N, ...]`, numbers or bools; or a `Padded` of `[N]`, of which the valid entries take part. What it had
        lost for want of room might have been among the best.
      k: integers, broadcast against the shape of `x` without the axis.
      k_max: the most entries that there is room for, static, at most `N`.
      axis: the axis of length `N`.
      largest: static; the smallest entries where false.
      on_overflow: where `k` is above `k_max`, or above the number of valid entries, or negative, or a `Padded` had
        lost entries, `"flag"` sets `overflow` and `count` alone, `"raise"` raises `ValueError` once the graph has run,
        `"nan"` makes every value of the lane NaN.

    Returns:
      `TopK`; gradients flow to the entries that were picked.

    Raises:
      ValueError: where k, k_max, axis or on_overflow do not fit; a k that is no array must be 0 to k_max.
      TypeError: where k or axis is no integer, or k_max is no integer, or a traced one.

    Example:
      >>> import jax.numpy as jnp
      >>> best = topk(jnp.array([3, 9, 7, 9]), jnp.array(2), k_max=3)
      >>> best.values.tolist(), best.indices.tolist(), best.valid.tolist()
      ([9, 9, 0], [1, 3, 0], [True, True, False])
    """
    member = lost = None
    if isinstance(x, Padded):
        lost = x.count - jnp.sum(x.valid, axis=-1, dtype=x.count.dtype)
        member, x = x.valid, x.values
        if jnp.ndim(x) != 1:
            raise ValueError(f"x is a Padded of shape {jnp.shape(x)}, and [N] was wanted; rank by one column of it")
    x = as_array(x, name="x")
    if not x.ndim:
        raise ValueError("x is a scalar, and an array [..., N, ...] was wanted")
    as_axis(axis, x.ndim)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise ValueError(f"x has dtype {x.dtype}, which has no order; rank by jnp.abs(x)")
    k_max = as_capacity(k_max, name="k_max")
    if k_max > x.shape[axis]:
        raise ValueError(f"k_max is {k_max}, and axis {axis} of x has {x.shape[axis]} entries; give at most as many")
    as_on_overflow(on_overflow, x.dtype)
    lanes = jnp.moveaxis(x, axis, -1)
    if isinstance(k, int | np.integer) and not 0 <= k <= k_max:
        raise ValueError(f"k is {k}, and k_max is {k_max}; give a k of 0 to {k_max}, or a larger k_max")
    k = as_integers(k, name="k")
    try:
        k = jnp.broadcast_to(k, lanes.shape[:-1])
    except ValueError:
        raise ValueError(
            f"k has shape {k.shape}, and one that broadcasts to {lanes.shape[:-1]} was wanted, the shape of x without "
            f"axis {axis}"
        ) from None

    indices = _ranked(lanes, k_max, largest) if member is None else _ranked_members(lanes, member, k_max, largest)
    available = k_max if member is None else jnp.minimum(jnp.sum(member, dtype=jnp.int32), k_max)
    valid = jnp.arange(k_max, dtype=jnp.int32) < jnp.minimum(k, available)[..., None]
    values = jnp.where(valid, jnp.take_along_axis(lanes, indices, axis=-1), 0).astype(x.dtype)
    overflow = (k < 0) | (k > available)
    if on_overflow == "raise":
        check(~overflow, "topk: k is {k}, with room for {room}; give a larger k_max", k=k, room=available)
    if lost is not None:
        overflow |= lost > 0
        if on_overflow == "raise":
            check(lost <= 0, "topk: x had lost {lost} entries, maybe the best; give it a larger capacity", lost=lost)
    if on_overflow == "nan":
        values = jnp.where(overflow[..., None], jnp.nan, values).astype(x.dtype)
    values, indices, valid = (jnp.moveaxis(part, -1, axis) for part in (values, jnp.where(valid, indices, 0), valid))
    return TopK(values, indices, valid, count=jnp.where(k < 0, NO_LENGTH, k), overflow=overflow)


def _ranked(x: jax.Array, k_max: int, largest: bool) -> jax.Array:
    return jax.lax.top_k(_descending(jax.lax.stop_gradient(x), largest), k_max)[1].astype(jnp.int32)


def _ranked_members(x: jax.Array, member: jax.Array, k_max: int, largest: bool) -> jax.Array:
    keys = _descending(jax.lax.stop_gradient(x), largest)
    keys = _reversed(keys) if jnp.issubdtype(keys.dtype, jnp.floating) else ~keys
    numbers = jnp.arange(x.shape[0], dtype=jnp.int32)
    return jax.lax.sort((~member, keys, numbers), num_keys=2, is_stable=True)[2][:k_max]


def _descending(x: jax.Array, largest: bool) -> jax.Array:
    """Keys whose largest in IEEE's total order, where NaN with its sign bit set is the least, are wanted first."""
    if x.dtype == jnp.bool_ or (jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize < 4):
        # Exact, and the one dtype that XLA has a quick selection for.
        x = x.astype(jnp.float32)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return x if largest else ~x
    if x.dtype.itemsize < 4:
        x = x.astype(jnp.float32)
    x = jnp.where(x == 0, 0, x)
    nan = np.copysign(np.nan, 1).astype(x.dtype)
    return jnp.where(jnp.isnan(x), nan, x) if largest else _reversed(jnp.where(jnp.isnan(x), nan, x))


def _reversed(x: jax.Array) -> jax.Array:
    """Floats in the opposite total order, with one zero; NaN changes its sign too."""
    return jnp.where(x == 0, 0, -x)
