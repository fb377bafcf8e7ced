"""Groups of values made zero in mean and one in variance, with the derivative in closed form."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..apart import apart
from ..arguments import check_same_dtype
from ..compiled_once import compiled_once
from ..folded_sum import LEAST, added_up, is_large, largest_divisor

Axes = tuple[int, ...]

LONGEST_BLOCK = 256
FEWEST_FOLDS, MOST_FOLDS = 4, 16  # of rows of channels that are added in one loop
SAMPLED = 63  # one in so many rows gives the first guess of a mean; odd, or it could meet one column of each image
ENOUGH = 1 << 15  # elements, of which a sum takes no time that counts


def wide(x: jax.Array) -> jax.Array:
    """In the dtype of the statistics: float32 for half precision, otherwise its own."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def check_dtypes(input: jax.Array, **parameters: jax.Array | None) -> None:
    """Raises `TypeError` unless the parameters share one dtype: that of `input`, or float32 for half precision."""
    if not jnp.issubdtype(input.dtype, jnp.floating):
        raise TypeError(f"input is {input.dtype}, and a real floating dtype was wanted; cast it")
    there = {name: array for name, array in parameters.items() if array is not None}
    check_same_dtype(**there)
    if any(array.dtype != jnp.promote_types(input.dtype, jnp.float32) for array in there.values()):
        check_same_dtype(input=input, **there)


def is_empty_axis(shape: Sequence[int], axes: Axes) -> bool:
    return any(shape[axis] == 0 for axis in axes)


# Left to itself, JAX differentiates through the mean inside the variance as well: one more reduction over all values,
# which waits for the other two. The tangent below is written so that its transpose takes two, as PyTorch's backward.
@partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5, 6))
def standardize(
    x: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    axes: Axes,
    eps: float,
    axis_name: Hashable | None = None,
    num_groups: int | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`(x - mean) / sqrt(variance + eps) * weight + bias`, and the mean and the biased variance over `axes`.

    Args:
      x: float32 or float64.
      weight, bias: of `x`'s rank, of length 1 along `axes`, broadcast along the others; or None.
      axes: of one group, counted from 0.
      eps: added to the variance.
      axis_name: of a `shard_map` or `vmap` over whose devices the statistics are taken too; None for this one alone.
      num_groups: of neighbours on the last axis, which is none of `axes`, that share their statistics; None for none.

    Returns:
      The result, `x`'s shape; mean and variance, with the axes kept.
    """
    return _standardized(x, weight, bias, axes, eps, axis_name, num_groups)


@standardize.defjvp
def _standardize_jvp(
    axes: Axes, eps: float, axis_name: Hashable | None, num_groups: int | None, primals: Any, tangents: Any
) -> Any:
    out = standardize(*primals, axes, eps, axis_name, num_groups)
    return out, _tangents(primals, tangents, out[1:], axes, eps, axis_name, num_groups)


@compiled_once("axes", "eps", "axis_name", "num_groups")
def _standardized(
    x: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    axes: Axes,
    eps: float,
    axis_name: Hashable | None,
    num_groups: int | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    shared, variance = statistics(x, axes, axis_name, num_groups)
    # A difference of its own: where the variance shares it, XLA's CPU backend writes it out between the two.
    y = (x - lax.optimization_barrier(shared)) * _scale(variance, weight, eps)
    return y if bias is None else y + bias, shared, variance


@compiled_once("axes", "axis_name", "num_groups")
def statistics(
    x: jax.Array, axes: Axes, axis_name: Hashable | None = None, num_groups: int | None = None
) -> tuple[jax.Array, jax.Array]:
    """The mean and the biased variance over `axes`, which are kept; arguments as of `standardize`."""
    guess, drift, square = _moments(x, axes)
    mean = guess + drift
    shared = _shared(mean, num_groups)
    if axis_name is not None:
        shared = lax.pmean(shared, axis_name)
    # E[(x - guess)^2] less what the guess is off, never E[x^2] - mean^2: at mean 1000 that loses three more digits.
    own = jnp.maximum(square - jnp.square(drift), 0)
    if num_groups is None and axis_name is None:
        return shared, own
    variance = _shared(own + jnp.square(mean - shared), num_groups)
    return shared, variance if axis_name is None else lax.pmean(variance, axis_name)


@compiled_once("axes", "eps", "axis_name", "num_groups")
def _tangents(
    primals: Any,
    tangents: Any,
    statistics: tuple[jax.Array, jax.Array],
    axes: Axes,
    eps: float,
    axis_name: Hashable | None,
    num_groups: int | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of the result, the mean and the variance."""
    x, weight, bias = primals
    dx, dweight, dbias = tangents
    mean, variance = statistics

    def average(values: jax.Array) -> jax.Array:
        values = _shared(_mean(values, axes), num_groups)
        return values if axis_name is None else lax.pmean(values, axis_name)

    centered = x - mean
    scale, rate = _scale(variance, weight, eps), lax.rsqrt(variance + eps)
    dmean = average(dx)
    dvariance_half = average(centered * dx)
    # Everything that is constant over a group is summed up before it meets the values: one reduction each way.
    offset, slope = -scale * dmean, -scale * jnp.square(rate) * dvariance_half
    if weight is not None:
        slope = slope + rate * dweight
    if bias is not None:
        offset = offset + dbias
    dy = scale * dx + offset + centered * slope
    return dy, dmean, 2 * dvariance_half


def _scale(variance: jax.Array, weight: jax.Array | None, eps: float) -> jax.Array:
    rate = lax.rsqrt(variance + eps)
    return rate if weight is None else rate * weight


def _mean_over(x: jax.Array, axes: Axes) -> jax.Array:
    """The mean, summed about a first guess of it: a plain float32 sum of 256 values near 30 is 14 times less exact."""
    if is_empty_axis(x.shape, axes):
        return jnp.mean(x, axes, keepdims=True)
    rows = x.ndim - 2
    if rows in axes and rows + 1 not in axes and isinstance(x.shape[rows], int):
        x = _by_blocks(x, rows)
    longest = max(axes, key=lambda axis: x.shape[axis] if isinstance(x.shape[axis], int) else 0)
    guess = jnp.mean(lax.slice_in_dim(x, 0, 1, axis=longest), axes, keepdims=True)
    return guess + _mean(x - guess, axes)


def _moments(x: jax.Array, axes: Axes) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A guess of the mean, and the means of `x - guess` and of its square, with their axes kept."""

    def one_by_one(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        mean = _mean_over(x, axes)
        return mean, jnp.zeros_like(mean), _mean(jnp.square(x - mean), axes)

    last, first = x.ndim - 1, min(axes)
    are_rows = tuple(sorted(axes)) == tuple(range(first, last))
    if not are_rows or not is_large(x.shape, LEAST):
        return one_by_one(x)
    if largest_divisor(math.prod(x.shape[first:last]), MOST_FOLDS) < FEWEST_FOLDS:
        return one_by_one(x)
    return lax.platform_dependent(x, cpu=partial(_moments_together, first=first), default=one_by_one)


def _moments_together(x: jax.Array, first: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of rows of channels in one pass, about the mean of some of them.

    A share p of the rows, whose mean is d off, adds p d^2 to the variance at least: d^2 is at most variance / p, and
    the variance loses log2(1 + 1 / p) bits to the difference, seven where those rows are like none between them.
    """
    *lead, channels = *x.shape[:first], x.shape[-1]
    rows = x.reshape(*lead, -1, channels)
    axis, count = rows.ndim - 2, rows.shape[-2]
    guess = lax.optimization_barrier(_middle(rows, axis))
    centred = rows - guess
    sums: tuple[jax.Array, ...] = (centred, jnp.square(centred))
    while sums[0].size >= ENOUGH and (folds := largest_divisor(sums[0].shape[axis], MOST_FOLDS)) > 1:
        sums = added_up(sums, axis, folds)
    shape = (*lead, *(1,) * (x.ndim - 1 - first), channels)
    drift, square = (one.sum(axis) / count for one in sums)
    return guess.reshape(shape), drift.reshape(shape), square.reshape(shape)


def _middle(rows: jax.Array, axis: int) -> jax.Array:
    """Of three means of some rows the one between the others, which none that is far away can move."""
    count = rows.shape[axis]
    step = min(SAMPLED, (count // 3 - 1) | 1)
    each = -(-count // step) // 3
    some = lax.slice_in_dim(rows, 0, (3 * each - 1) * step + 1, step, axis)
    means = some.reshape(*rows.shape[:axis], 3, each, rows.shape[-1]).mean(axis + 1)
    a, b, c = jnp.split(means, 3, axis)
    return jnp.clip(c, jnp.minimum(a, b), jnp.maximum(a, b))


def _by_blocks(x: jax.Array, axis: int) -> jax.Array:
    """Means of short blocks along an axis, few enough to take their mean about a guess at no cost."""
    length = x.shape[axis]
    block = max(n for n in range(1, min(length, LONGEST_BLOCK) + 1) if length % n == 0)
    blocks = x.reshape(*x.shape[:axis], length // block, block, *x.shape[axis + 1 :])
    # The barrier keeps XLA from making one long sum of both.
    return lax.optimization_barrier(jnp.mean(blocks, axis + 1))


def _shared(values: jax.Array, num_groups: int | None) -> jax.Array:
    """The mean of each group of channels in the place of each of them: in memory, or loops over all values divide."""
    if num_groups is None:
        return values
    return apart(_of_groups)(values, num_groups=num_groups)


def _of_groups(values: jax.Array, num_groups: int) -> jax.Array:
    grouped = values.reshape(*values.shape[:-1], num_groups, -1)
    return jnp.broadcast_to(jnp.mean(grouped, -1, keepdims=True), grouped.shape).reshape(values.shape)


def _mean(x: jax.Array, axes: Axes) -> jax.Array:
    """The mean with its axes kept, first over those before the last: a CPU sums rows of a few channels slowly."""
    last = x.ndim - 1
    if last in axes and last - 1 not in axes and len(axes) > 1 and not is_empty_axis(x.shape, axes):
        x = jnp.mean(x, [axis for axis in axes if axis != last], keepdims=True)
        axes = (last,)
    return jnp.mean(x, axes, keepdims=True)
