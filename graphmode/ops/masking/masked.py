"""Reductions over the entries that a mask picks: what eager code computes of `x[mask]`, with no shape from a value.

In all of them `mask` is bool and broadcasts to the shape of `x`, axes aligned from the last one. What stands where it
is false, NaN and infinity included, reaches neither value nor gradient. Nothing valid is no error here, as it is in
eager PyTorch for `max`: each function says what it gives then, and its gradient is zero.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ...extremes import first_extreme
from ...extremes import largest as largest_element
from ...extremes import smallest as smallest_element
from ..arguments import as_array, as_axes, as_axis, as_broadcast_mask, as_fill_value, as_inexact, as_ordered

Axis = int | Sequence[int] | None


def masked_sum(x: ArrayLike, mask: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> jax.Array:
    """The sum of the entries that the mask picks: `x[mask].sum()`, or `(x * mask).sum(axis)` safe from NaN.

    Args:
      x: `[...]`, any dtype.
      mask: bool, broadcasts to `x`.
      axis: one, several, or `None` for all.
      keepdims: whether the reduced axes stay, of size 1.

    Returns:
      In the dtype of `x`; integers and bool in the default integer, int32 or int64 with x64, where PyTorch takes int64.
      0 where nothing is valid.

    Raises:
      ValueError: where mask or axis do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> masked_sum(jnp.array([1.0, jnp.nan, 2.0]), jnp.array([True, False, True])).item()
      3.0
    """
    x = as_array(x, name="x")
    mask = as_broadcast_mask(mask, x.shape)
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else int  # of unsigned ones JAX makes unsigned ones
    return jnp.sum(_kept(x, mask), axis=as_axes(axis, x.ndim), keepdims=keepdims, dtype=dtype)


def masked_mean(x: ArrayLike, mask: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> jax.Array:
    """The mean of the entries that the mask picks: `x[mask].mean()`.

    Args:
      x: `[...]`, floating or complex. Half precision is summed in float32.
      mask: bool, broadcasts to `x`.
      axis: one, several, or `None` for all.
      keepdims: whether the reduced axes stay, of size 1.

    Returns:
      In the dtype of `x`. NaN where nothing is valid, as in PyTorch, with a gradient of 0.

    Raises:
      ValueError: where mask or axis do not fit, or `x` holds integers, which PyTorch refuses too.

    Example:
      >>> import jax.numpy as jnp
      >>> x = jnp.array([[1.0, 9.0], [2.0, 3.0]])
      >>> masked_mean(x, jnp.array([[True, False], [True, True]]), axis=1).tolist()
      [1.0, 2.5]
    """
    x = as_inexact(x, "a mean")
    mask, axes = as_broadcast_mask(mask, x.shape), as_axes(axis, x.ndim)
    mean, count = mean_and_count(wide(x), mask, axes)
    mean = jnp.where(count > 0, mean, jnp.nan)
    return _shaped(mean, axes, keepdims).astype(x.dtype)


def masked_var(
    x: ArrayLike, mask: ArrayLike, axis: Axis = None, *, correction: float = 1, keepdims: bool = False
) -> jax.Array:
    """The variance of the entries that the mask picks: `x[mask].var(correction=correction)`, in two passes.

    Args:
      x: `[...]`, floating or complex. Half precision is summed in float32.
      mask: bool, broadcasts to `x`.
      axis: one, several, or `None` for all.
      correction: what is taken off the number of entries: 1 for the unbiased variance, PyTorch's default; 0 for the
        biased one, NumPy's.
      keepdims: whether the reduced axes stay, of size 1.

    Returns:
      In the dtype of `x`, real for complex. Where there are no more entries than `correction`: NaN or infinity, as in
      PyTorch, but with a gradient of 0, so that `jnp.where(count > 1, variance, 0)` can be differentiated.

    Raises:
      ValueError: where mask or axis do not fit, or `x` holds integers.

    Example:
      >>> import jax.numpy as jnp
      >>> masked_var(jnp.array([1.0, jnp.inf, 3.0]), jnp.array([True, False, True])).item()
      2.0
    """
    x = as_inexact(x, "a variance")
    mask, axes = as_broadcast_mask(mask, x.shape), as_axes(axis, x.ndim)
    kept = wide(x)
    mean, count = mean_and_count(kept, mask, axes)
    variance = corrected(sum_of_squares(kept, mask, mean, axes), count, correction)
    return _shaped(variance, axes, keepdims).astype(jnp.finfo(x.dtype).dtype)


def masked_max(
    x: ArrayLike, mask: ArrayLike, axis: Axis = None, *, empty: float | None = None, keepdims: bool = False
) -> jax.Array:
    """The largest entry that the mask picks: `x[mask].amax()`. NaN is larger than all, as in PyTorch.

    Args:
      x: `[...]`, any dtype but complex.
      mask: bool, broadcasts to `x`.
      axis: one, several, or `None` for all.
      empty: stands where nothing is valid, by default the value below all others: `-inf`, the smallest integer, False.
      keepdims: whether the reduced axes stay, of size 1.

    Returns:
      In the dtype of `x`. The gradient is shared evenly between equal largest entries, as by `torch.amax`.

    Raises:
      ValueError: where mask or axis do not fit, or `empty` is no value of the dtype.

    Example:
      >>> import jax.numpy as jnp
      >>> x, mask = jnp.array([[3, 9], [4, 5]]), jnp.array([[True, False], [False, False]])
      >>> masked_max(x, mask, axis=1, empty=-1).tolist()
      [3, -1]
    """
    return _extreme_or_empty(x, mask, axis, True, empty, keepdims)


def masked_min(
    x: ArrayLike, mask: ArrayLike, axis: Axis = None, *, empty: float | None = None, keepdims: bool = False
) -> jax.Array:
    """The smallest entry that the mask picks: `x[mask].amin()`; NaN, where there is one.

    Args:
      x: `[...]`, any dtype but complex.
      mask: bool, broadcasts to `x`.
      axis: one, several, or `None` for all.
      empty: stands where nothing is valid, by default the value above all others: `inf`, the largest integer, True.
      keepdims: whether the reduced axes stay, of size 1.

    Returns:
      In the dtype of `x`. The gradient is shared evenly between equal smallest entries, as by `torch.amin`.

    Raises:
      ValueError: where mask or axis do not fit, or `empty` is no value of the dtype.

    Example:
      >>> import jax.numpy as jnp
      >>> masked_min(jnp.array([3.0, -9.0, 4.0]), jnp.array([True, False, True])).item()
      3.0
    """
    return _extreme_or_empty(x, mask, axis, False, empty, keepdims)


def masked_argmax(x: ArrayLike, mask: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> jax.Array:
    """Where the largest entry that the mask picks stands in `x`: `x.masked_fill(~mask, -inf).argmax()`.

    Never a place that the mask excludes, also where every valid entry is `-inf`.

    Args:
      x: `[...]`, any dtype but complex.
      mask: bool, broadcasts to `x`.
      axis: one, or `None` for a place in the flattened array.
      keepdims: whether the reduced axis stays, of size 1.

    Returns:
      int32. Of equal entries the first one; NaN counts as the largest, as in PyTorch. Where nothing is valid the size
      of the axis: an index out of range, for `.at[i].get(mode="fill")`, which no entry can be mistaken for.

    Raises:
      ValueError: where mask or axis do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> x, mask = jnp.array([[3, 9], [4, 5]]), jnp.array([[True, False], [False, False]])
      >>> masked_argmax(x, mask, axis=1).tolist()
      [0, 2]
    """
    x = as_ordered(x, "argmax")
    mask = as_broadcast_mask(mask, x.shape)
    if axis is None:
        found = masked_argmax(x.reshape(-1), mask.reshape(-1), 0)
        return found.reshape((1,) * x.ndim) if keepdims else found
    axis = as_axis(axis, x.ndim)
    hit = _hits(x, mask, _extreme(x, mask, (axis,), True), (axis,), True)
    places = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis)
    size = x.shape[axis]
    return jnp.min(jnp.where(hit, places, size), axis=axis, keepdims=keepdims, initial=size)


def masked_softmax(x: ArrayLike, mask: ArrayLike, axis: int = -1) -> jax.Array:
    """Softmax over the entries that the mask picks: `x.masked_fill(~mask, -inf).softmax(axis)`; all 0 for none.

    It is `jax.nn.softmax(where=mask)`, with half precision computed in float32 as PyTorch does, and with padding kept
    out of the gradient.

    Args:
      x: `[...]`, floating.
      mask: bool, broadcasts to `x`.
      axis: the one that sums to 1.

    Returns:
      In the shape and dtype of `x`: 0 where the mask is false. Where nothing is valid all are 0, with a gradient of 0.

    Raises:
      ValueError: where mask or axis do not fit, or `x` holds integers.

    Example:
      >>> import jax.numpy as jnp
      >>> mask = jnp.array([[True, False, True], [False, False, False]])
      >>> masked_softmax(jnp.zeros((2, 3)), mask).tolist()
      [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]
    """
    x = as_ordered(as_inexact(x, "a softmax"), "a softmax")
    mask = as_broadcast_mask(mask, x.shape)
    axis = as_axis(axis, x.ndim)
    return jax.nn.softmax(_kept(wide(x), mask), axis=axis, where=mask).astype(x.dtype)


def wide(x: jax.Array) -> jax.Array:
    """`x`, half precision as float32."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def mean_and_count(x: jax.Array, mask: jax.Array, axes: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """The mean, 0 where nothing is valid, and the int32 number of entries, reduced axes kept."""
    count = jnp.sum(mask, axis=axes, keepdims=True, dtype=jnp.int32)
    total = jnp.sum(_kept(x, mask), axis=axes, keepdims=True)
    return total / jnp.maximum(count, 1).astype(x.dtype), count


def sum_of_squares(x: jax.Array, mask: jax.Array, mean: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """The sum of squared distances from the mean, real, reduced axes kept."""
    distance = _kept(_kept(x, mask) - mean, mask)
    return jnp.sum(jnp.real(distance * jnp.conj(distance)), axis=axes, keepdims=True)


def corrected(squares: jax.Array, count: jax.Array, correction: float) -> jax.Array:
    """`squares / max(count - correction, 0)`, without the NaN gradient of a division by 0."""
    freedom = count.astype(squares.dtype) - correction
    undefined = jnp.where(jax.lax.stop_gradient(squares) > 0, jnp.inf, jnp.nan)
    return jnp.where(freedom > 0, squares / jnp.where(freedom > 0, freedom, 1), undefined).astype(squares.dtype)


def lowest(dtype: jnp.dtype) -> bool | int | float:
    """The value below all others but NaN."""
    if dtype == jnp.bool_:
        return False
    return int(jnp.iinfo(dtype).min) if jnp.issubdtype(dtype, jnp.integer) else -jnp.inf


def highest(dtype: jnp.dtype) -> bool | int | float:
    """The value above all others but NaN."""
    if dtype == jnp.bool_:
        return True
    return int(jnp.iinfo(dtype).max) if jnp.issubdtype(dtype, jnp.integer) else jnp.inf


def _kept(x: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.where(mask, x, jnp.zeros((), x.dtype))


def _shaped(reduced: jax.Array, axes: tuple[int, ...], keepdims: bool) -> jax.Array:
    return reduced if keepdims else jnp.squeeze(reduced, axes)


def _extreme_or_empty(
    x: ArrayLike, mask: ArrayLike, axis: Axis, largest: bool, empty: float | None, keepdims: bool
) -> jax.Array:
    x = as_ordered(x, "max" if largest else "min")
    mask, axes = as_broadcast_mask(mask, x.shape), as_axes(axis, x.ndim)
    found = _extreme(x, mask, axes, largest)
    if empty is not None:
        found = jnp.where(jnp.any(mask, axis=axes, keepdims=True), found, as_fill_value(empty, x.dtype, name="empty"))
    return _shaped(found, axes, keepdims)


def _extreme(x: jax.Array, mask: jax.Array, axes: tuple[int, ...], largest: bool) -> jax.Array:
    """The largest or smallest, reduced axes kept."""
    differentiable = jnp.issubdtype(x.dtype, jnp.inexact)
    return (_differentiable_extreme if differentiable else _plain_extreme)(x, mask, axes, largest)


def _plain_extreme(x: jax.Array, mask: jax.Array, axes: tuple[int, ...], largest: bool) -> jax.Array:
    reduce = largest_element if largest else smallest_element
    neutral = _neutral(x.dtype, largest)
    return reduce(jnp.where(mask, x, neutral), axes, keepdims=True, initial=neutral)


def _neutral(dtype: jnp.dtype, largest: bool) -> jax.Array:
    return jnp.asarray(lowest(dtype) if largest else highest(dtype), dtype)


# JAX's own rule would share the gradient with padding where the largest valid entry is -inf too, and drop it for NaN.
@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _differentiable_extreme(x: jax.Array, mask: jax.Array, axes: tuple[int, ...], largest: bool) -> jax.Array:
    return _plain_extreme(x, mask, axes, largest)


@_differentiable_extreme.defjvp
def _(axes, largest, primals, tangents):
    x, mask = primals
    found = _differentiable_extreme(x, mask, axes, largest)
    hit = _hits(x, mask, found, axes, largest)
    shared = jnp.sum(_kept(wide(tangents[0]), hit), axis=axes, keepdims=True)
    equal = jnp.maximum(jnp.sum(hit, axis=axes, keepdims=True, dtype=jnp.int32), 1)
    return found, (shared / equal.astype(shared.dtype)).astype(x.dtype)


def _hits(x: jax.Array, mask: jax.Array, found: jax.Array, axes: tuple[int, ...], largest: bool) -> jax.Array:
    same = x == found
    if jnp.issubdtype(x.dtype, jnp.inexact):
        same |= jnp.isnan(x) & jnp.isnan(found)
        same |= first_extreme(jnp.where(mask, x, _neutral(x.dtype, largest)), axes, is_largest=largest)
    return mask & same
