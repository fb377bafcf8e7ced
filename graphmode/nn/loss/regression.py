"""Losses of a difference: L1, mean squared error, smooth L1, Huber."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..arguments import as_number, check_floating, check_same_dtype
from ..autocast import autocasts
from .kinks import absolute
from .reduction import (
    Loss,
    Reduction,
    as_array,
    as_mask,
    as_reduction,
    broadcast_shape,
    in_float32,
    reduced,
    reduced_each,
    where_counted,
)


@autocasts
def l1_loss(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    weight: jax.Array | None = None,
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """|input - target|, with derivative 0 where they are equal.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.l1_loss.html

    Args:
      input, target: of shapes that broadcast, with a warning where they differ.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.
      weight: of each element, of `input`'s shape; a mean is divided by the sum of the weights.
      mask: True where an element counts; of a shape that broadcasts to the unreduced loss.

    Raises:
      ValueError: for another reduction, or shapes that do not fit.
      TypeError: for a mask that is not boolean.
    """
    return _of_difference(absolute, input, target, as_reduction(reduction, size_average, reduce), weight, mask)


@autocasts
def mse_loss(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    weight: jax.Array | None = None,
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """(input - target)^2; arguments and errors as `l1_loss`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.mse_loss.html
    """
    return _of_difference(jnp.square, input, target, as_reduction(reduction, size_average, reduce), weight, mask)


@autocasts
def smooth_l1_loss(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    beta: float = 1.0,
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """d^2 / (2 beta) below beta and |d| - beta / 2 from there on, d being `input - target`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.smooth_l1_loss.html

    Args:
      beta: 0 or more; at 0 it is `l1_loss`. The others as there.

    Raises:
      ValueError: for a negative beta, and as `l1_loss`.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    if not beta >= 0:
        raise ValueError(f"beta is {beta!r}; give 0 or more")

    if beta == 0:
        return _of_difference(absolute, input, target, reduction, None, mask)
    return _of_difference(_smooth, input, target, reduction, None, mask, beta=as_number("beta", beta))


@autocasts
def huber_loss(
    input: jax.Array,
    target: jax.Array,
    reduction: Reduction = "mean",
    delta: float = 1.0,
    weight: jax.Array | None = None,
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """d^2 / 2 up to delta and delta (|d| - delta / 2) beyond, d being `input - target`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.huber_loss.html

    Args:
      delta: positive. The others as of `l1_loss`, but that a mean is divided by the number of elements, weighted or
        not.

    Raises:
      ValueError: for a delta that is not positive, and as `l1_loss`.
      TypeError: where `input` and `target` have different dtypes.
    """
    reduction = as_reduction(reduction)
    if not delta > 0:
        raise ValueError(f"delta is {delta!r}; give a positive number")
    check_same_dtype(input=as_array(input), target=as_array(target))

    arguments = input, target, reduction, weight, mask
    return _of_difference(_huber, *arguments, weighted_mean=False, delta=as_number("delta", delta))


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _huber(d: jax.Array, delta: float) -> jax.Array:
    size = absolute(d)
    near = jnp.minimum(size, delta)
    return near * (size - 0.5 * near)


@_huber.defjvp
def _huber_jvp(delta, primals, tangents):
    (d,), (moved,) = primals, tangents
    bound = jnp.asarray(delta, d.dtype)
    return _huber(d, delta), lax.clamp(-bound, d, bound) * moved  # at the bounds its derivative is 0, as PyTorch's


def _smooth(d: jax.Array, beta: float) -> jax.Array:
    return _huber(d, beta) / beta


def _of_both(input: jax.Array, target: jax.Array, of_difference: Any, **static: Hashable) -> jax.Array:
    return of_difference(jnp.subtract(*in_float32(input, target)), **static)


def _of_difference(
    function: Any,
    input: jax.Array,
    target: jax.Array,
    reduction: str,
    weight: jax.Array | None,
    mask: jax.Array | None,
    *,
    weighted_mean: bool = True,
    **static: Hashable,
) -> jax.Array:
    """The loss `function(input - target, **static)`, a function of the module."""
    input, target = as_array(input), as_array(target)
    if input.shape != target.shape:
        warnings.warn(
            f"target has shape {target.shape} and input {input.shape}; they are broadcast, which is seldom meant: "
            "give them one shape",
            stacklevel=4,
        )
    shape = broadcast_shape(input=input, target=target)
    dtype = jnp.result_type(input, target)
    check_floating("input - target", jnp.empty(0, dtype))
    if weight is not None:
        weight = as_array(weight)
        if weight.shape != input.shape:
            raise ValueError(f"weight has shape {weight.shape}; give it input's, {input.shape}")
        dtype = jnp.result_type(dtype, weight)
    mask = as_mask(mask, shape)
    if weight is None:
        return reduced_each(_of_both, (input, target), reduction, dtype, mask, of_difference=function, **static)
    input, target = where_counted(mask, input, target)
    loss = _of_both(input, target, function, **static)
    (weight,) = in_float32(jnp.broadcast_to(weight, shape) if mask is not None else weight)
    return reduced(loss * weight, reduction, dtype, mask, weight=weight if weighted_mean else None)


class L1Loss(Loss):
    """|input - target|, with derivative 0 where they are equal.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.L1Loss.html

    Args:
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.

    Raises:
      ValueError: for another reduction; called, where the shapes do not broadcast.

    Example:
      >>> L1Loss()(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]))
      Array(1., dtype=float32)
    """

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return l1_loss(input, target, reduction=self.reduction, mask=mask)


class MSELoss(Loss):
    """(input - target)^2; arguments as `L1Loss`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MSELoss.html

    Example:
      >>> MSELoss()(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]))
      Array(2., dtype=float32)
    """

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return mse_loss(input, target, reduction=self.reduction, mask=mask)


class SmoothL1Loss(Loss):
    """d^2 / (2 beta) below beta and |d| - beta / 2 from there on, d being `input - target`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SmoothL1Loss.html

    Args:
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.
      beta: 0 or more.

    Raises:
      ValueError: for another reduction or a negative beta; called, where the shapes do not broadcast.

    Example:
      >>> SmoothL1Loss()(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]))
      Array(0.75, dtype=float32)
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: Reduction = "mean",
        beta: float = 1.0,
    ):
        super().__init__(size_average, reduce, reduction)
        if not beta >= 0:
            raise ValueError(f"beta is {beta!r}; give 0 or more")
        self.beta = beta

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta, mask=mask)


class HuberLoss(Loss):
    """d^2 / 2 up to delta and delta (|d| - delta / 2) beyond, d being `input - target`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.HuberLoss.html

    Args:
      reduction: none, mean or sum.
      delta: positive.

    Raises:
      ValueError: for another reduction or a delta that is not positive; called, where the shapes do not broadcast.
      TypeError: for a delta that is no number; called, where the dtypes differ.

    Example:
      >>> HuberLoss(delta=0.5)(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]))
      Array(0.4375, dtype=float32)
    """

    def __init__(self, reduction: Reduction = "mean", delta: float = 1.0):
        super().__init__(reduction=reduction)
        if not isinstance(delta, float | int):
            raise TypeError(f"delta is {delta!r}; give a float or an integer")
        if not delta > 0:
            raise ValueError(f"delta is {delta!r}; give a positive number")
        self.delta = delta

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return huber_loss(input, target, reduction=self.reduction, delta=self.delta, mask=mask)
