"""Reductions over groups of rows: sum, mean, variance, product, largest and smallest."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..indices import DROP
from ..masking.padded import Padded
from ..selection.gather import rows_at
from .segments import Groups, Segments, as_column, members, per_row, settled_segments

Rows = ArrayLike | Padded[jax.Array]


def segment_sum(x: Rows, groups: Groups, *, num_segments: int | None = None) -> jax.Array:
    """Sum over the rows of each group; 0 for a group without any.

    One scatter, as `jax.ops.segment_sum`, for ids in any order. 16-bit floats are added in float32, as `torch.sum`
    does and `Tensor.index_add_` does not. The gradient of rows that belong to no group is 0.

    Args:
      x: `[N, ...]`, or a `Padded` of such: its invalid rows belong to no group.
      groups: of `N` rows: `Segments`; or ids, with `num_segments`, and then one that is out of range raises.

    Returns:
      `[num_segments, ...]` in the dtype of `x`; int32 of bools, as `torch.sum` counts them.

    Raises:
      ValueError: where `x` has not as many rows as `groups`, or `groups` asks for NaN and `x` has integers.
      TypeError: where `groups` are no `Segments`.

    Example:
      >>> import jax.numpy as jnp
      >>> from graphmode.ops import segments
      >>> groups = segments(jnp.array([0, 2, 0]), num_segments=3)
      >>> segment_sum(jnp.array([1., 2., 3.]), groups).tolist()
      [4.0, 0.0, 2.0]

    PyTorch: `torch.zeros(num_segments).index_add(0, ids, x)`.
    """
    x, groups = members(x, groups, num_segments)
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.int32)
    return settled_segments(_sum(_wide(x), groups).astype(x.dtype), groups)


def segment_mean(x: Rows, groups: Groups, *, empty: float = 0, num_segments: int | None = None) -> jax.Array:
    """Mean over the rows of each group, as `segment_sum`; `empty`, with no gradient, for a group without any.

    Args:
      x: `[N, ...]`, or a `Padded` of such. Integers are divided downwards, as `Tensor.scatter_reduce` does.
      groups: of `N` rows: `Segments`; or ids, with `num_segments`, and then one that is out of range raises.
      empty: stands where a group has no row.

    Returns:
      `[num_segments, ...]` in the dtype of `x`.

    Raises:
      ValueError, TypeError: as `segment_sum`, and where `x` has bools.

    Example:
      >>> import jax.numpy as jnp
      >>> from graphmode.ops import segments
      >>> groups = segments(jnp.array([0, 2, 0]), num_segments=3)
      >>> segment_mean(jnp.array([1., 2., 3.]), groups).tolist()
      [2.0, 0.0, 2.0]

    PyTorch: `torch.zeros(num_segments).scatter_reduce(0, ids, x, "mean", include_self=False)`.
    """
    x, groups = members(x, groups, num_segments)
    if x.dtype == jnp.bool_:
        raise ValueError("x has dtype bool, which has no mean; convert it with astype(jnp.float32)")
    sums = _sum(_wide(x), groups)
    counts = as_column(groups.counts, x)
    number = jnp.maximum(counts, 1).astype(sums.dtype)
    means = sums / number if jnp.issubdtype(x.dtype, jnp.inexact) else sums // number
    return settled_segments(jnp.where(counts > 0, means, empty).astype(x.dtype), groups)


def segment_var(
    x: Rows, groups: Groups, *, correction: int = 1, empty: float = 0, num_segments: int | None = None
) -> jax.Array:
    """Variance over the rows of each group, in two passes: `torch.var(x[ids == g], 0, correction=correction)`.

    Args:
      x: `[N, ...]` floating, or a `Padded` of such.
      groups: of `N` rows: `Segments`; or ids, with `num_segments`, and then one that is out of range raises.
      correction: the sum of squares is divided by the number of rows less this, static; 1 is torch's default.
      empty: stands, with no gradient, where a group has no more rows than `correction`: torch gives NaN there.

    Returns:
      `[num_segments, ...]` in the dtype of `x`.

    Raises:
      ValueError, TypeError: as `segment_sum`, and where `x` has no floats.

    Example:
      >>> import jax.numpy as jnp
      >>> from graphmode.ops import segments
      >>> groups = segments(jnp.array([0, 2, 0]), num_segments=3)
      >>> segment_var(jnp.array([1., 2., 3.]), groups).tolist()
      [2.0, 0.0, 0.0]
    """
    x, groups = members(x, groups, num_segments)
    x = as_floating(x, "segment_var")
    wide = _wide(x)
    counts = as_column(groups.counts, x)
    means = _sum(wide, groups) / jnp.maximum(counts, 1).astype(wide.dtype)
    inside = as_column(groups.inside, x)
    squares = jnp.square(jnp.where(inside, wide, 0) - per_row(means, groups))
    enough = counts > max(correction, 0)
    spread = _sum(squares, groups) / jnp.where(enough, counts - correction, 1).astype(wide.dtype)
    return settled_segments(jnp.where(enough, spread, empty).astype(x.dtype), groups)


def segment_prod(x: Rows, groups: Groups, *, empty: float = 1, num_segments: int | None = None) -> jax.Array:
    """Product over the rows of each group; the gradient is right where rows are 0.

    Args:
      x: `[N, ...]`, or a `Padded` of such; of bools, whether all are true.
      groups: of `N` rows: `Segments`; or ids, with `num_segments`, and then one that is out of range raises.
      empty: stands where a group has no row; 1, the empty product, as `torch.prod` of nothing gives.

    Returns:
      `[num_segments, ...]` in the dtype of `x`.

    Raises:
      ValueError, TypeError: as `segment_sum`.

    Example:
      >>> import jax.numpy as jnp
      >>> from graphmode.ops import segments
      >>> groups = segments(jnp.array([0, 2, 0]), num_segments=3)
      >>> segment_prod(jnp.array([2., 5., 3.]), groups).tolist()
      [6.0, 1.0, 5.0]

    PyTorch: `torch.ones(num_segments).scatter_reduce(0, ids, x, "prod", include_self=False)`.
    """
    x, groups = members(x, groups, num_segments)
    if x.dtype == jnp.bool_:
        products = _extreme_of(x, groups, False)
    else:
        wide = _wide(x)
        product = _product if jnp.issubdtype(x.dtype, jnp.inexact) else _scattered_product
        products = product(wide, groups.ids, groups.num_segments)
    return _or_empty(products.astype(x.dtype), groups, empty)


def segment_max(x: Rows, groups: Groups, *, empty: float = 0, num_segments: int | None = None) -> jax.Array:
    """The largest of the rows of each group; NaN where one is NaN.

    Rows that tie for the largest share the gradient evenly, as in `torch.amax`.

    Args:
      x: `[N, ...]`, or a `Padded` of such; of bools, whether any is true.
      groups: of `N` rows: `Segments`; or ids, with `num_segments`, and then one that is out of range raises.
      empty: stands where a group has no row; 0, as `Tensor.scatter_reduce` leaves zeros, and never -inf by itself.

    Returns:
      `[num_segments, ...]` in the dtype of `x`.

    Raises:
      ValueError, TypeError: as `segment_sum`.

    Example:
      >>> import jax.numpy as jnp
      >>> from graphmode.ops import segments
      >>> groups = segments(jnp.array([0, 2, 0]), num_segments=3)
      >>> segment_max(jnp.array([-1., -2., -3.]), groups).tolist()
      [-1.0, 0.0, -2.0]

    PyTorch: `torch.zeros(num_segments).scatter_reduce(0, ids, x, "amax", include_self=False)`.
    """
    x, groups = members(x, groups, num_segments)
    return _or_empty(_extreme_of(x, groups, True), groups, empty)


def segment_min(x: Rows, groups: Groups, *, empty: float = 0, num_segments: int | None = None) -> jax.Array:
    """The smallest of the rows of each group; as `segment_max` in all else.

    Args:
      x: `[N, ...]`, or a `Padded` of such; of bools, whether all are true.
      groups: of `N` rows: `Segments`; or ids, with `num_segments`, and then one that is out of range raises.
      empty: stands where a group has no row.

    Returns:
      `[num_segments, ...]` in the dtype of `x`.

    Raises:
      ValueError, TypeError: as `segment_sum`.

    Example:
      >>> import jax.numpy as jnp
      >>> from graphmode.ops import segments
      >>> groups = segments(jnp.array([0, 2, 0]), num_segments=3)
      >>> segment_min(jnp.array([1., 2., 3.]), groups, empty=jnp.inf).tolist()
      [1.0, inf, 2.0]
    """
    x, groups = members(x, groups, num_segments)
    return _or_empty(_extreme_of(x, groups, False), groups, empty)


def as_floating(x: jax.Array, operation: str) -> jax.Array:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"x has dtype {x.dtype}, and {operation} wants floats; convert it with astype(jnp.float32)")
    return x


def _wide(x: jax.Array) -> jax.Array:
    """16-bit floats in float32: 256 ones added up in bfloat16 stay 256 for ever."""
    return x.astype(jnp.float32) if x.dtype in (jnp.bfloat16, jnp.float16) else x


def _sum(x: jax.Array, groups: Segments) -> jax.Array:
    # Not indices_are_sorted: XLA on a CPU takes three times as long with it, measured at 1e5 rows.
    return jnp.zeros((groups.num_segments, *x.shape[1:]), x.dtype).at[groups.given].add(x, **DROP)


def _or_empty(values: jax.Array, groups: Segments, empty: float) -> jax.Array:
    return settled_segments(jnp.where(as_column(groups.counts > 0, values), values, empty).astype(values.dtype), groups)


def _extreme_of(x: jax.Array, groups: Segments, largest: bool) -> jax.Array:
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise TypeError(f"x is {x.dtype}, and complex numbers have no order; give their absolute values, or one part")
    find = _extreme if jnp.issubdtype(x.dtype, jnp.floating) else _scattered_extreme
    return find(x, groups.ids, groups.num_segments, largest)


def _scattered_extreme(x: jax.Array, ids: jax.Array, num_segments: int, largest: bool) -> jax.Array:
    if x.dtype == jnp.bool_:
        worst: Any = not largest
    elif jnp.issubdtype(x.dtype, jnp.floating):
        worst = -jnp.inf if largest else jnp.inf
    else:
        worst = jnp.iinfo(x.dtype).min if largest else jnp.iinfo(x.dtype).max
    places = jnp.full((num_segments, *x.shape[1:]), worst, x.dtype).at[ids]
    return places.max(x, **DROP) if largest else places.min(x, **DROP)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _extreme(x: jax.Array, ids: jax.Array, num_segments: int, largest: bool) -> jax.Array:
    return _scattered_extreme(x, ids, num_segments, largest)


@_extreme.defjvp
def _extreme_jvp(num_segments: int, largest: bool, primals: Any, tangents: Any) -> Any:
    x, ids = _in_memory(primals[0]), primals[1]
    found = _extreme(x, ids, num_segments, largest)
    there = rows_at(found, ids)
    ties = as_column(ids < num_segments, x) & ((x == there) | (jnp.isnan(x) & jnp.isnan(there)))
    room = jnp.zeros(found.shape, x.dtype)
    number = jnp.zeros(found.shape, jnp.int32).at[ids].add(ties.astype(jnp.int32), **DROP)
    share = jnp.where(ties, tangents[0], 0)
    return found, room.at[ids].add(share, **DROP) / jnp.maximum(number, 1).astype(x.dtype)


def _in_memory(x: jax.Array) -> jax.Array:
    """Itself. XLA computes a value anew in each fusion that takes it, with other roundings, and then no row may equal
    the largest; what is scattered it reads."""
    return jnp.zeros_like(x).at[jnp.arange(len(x))].set(x, indices_are_sorted=True, unique_indices=True)


def _scattered_product(x: jax.Array, ids: jax.Array, num_segments: int) -> jax.Array:
    return jnp.ones((num_segments, *x.shape[1:]), x.dtype).at[ids].multiply(x, **DROP)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _product(x: jax.Array, ids: jax.Array, num_segments: int) -> jax.Array:
    return _scattered_product(x, ids, num_segments)


@_product.defjvp
def _product_jvp(num_segments: int, primals: Any, tangents: Any) -> Any:
    """The product of all other rows is that of those that are not 0, unless another one is 0."""
    x, ids = primals
    inside = as_column(ids < num_segments, x)
    zero = inside & (x == 0)
    nonzero = jnp.where(inside & ~zero, x, 1)
    products = _product(nonzero, ids, num_segments)
    zeros = jnp.zeros(products.shape, jnp.int32).at[ids].add(zero.astype(jnp.int32), **DROP)
    other_zeros = rows_at(zeros, ids) - zero
    others = rows_at(products, ids) / nonzero
    pull = jnp.where(inside & (other_zeros == 0), others * jnp.where(inside, tangents[0], 0), 0)
    return _product(x, ids, num_segments), jnp.zeros(products.shape, x.dtype).at[ids].add(pull, **DROP)
