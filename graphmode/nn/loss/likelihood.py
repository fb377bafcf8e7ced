"""Losses that are likelihoods of a distribution: Kullback-Leibler, Poisson, Gaussian."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp

from ..arguments import as_number, check_floating
from ..autocast import autocasts
from .kinks import raised_to
from .reduction import (
    Loss,
    Reduction,
    as_array,
    as_mask,
    as_reduction,
    broadcast_shape,
    check_within,
    in_float32,
    reduced,
    reduced_each,
    where_counted,
)


@jax.custom_jvp
def _x_log_x(x: jax.Array) -> jax.Array:
    return jnp.where(x == 0, 0, x * jnp.log(jnp.where(x == 0, 1, x)))


@_x_log_x.defjvp
def _x_log_x_jvp(primals, tangents):
    # As PyTorch's xlogy(x, x): its second part is x / x, NaN at 0.
    (x,), (dx,) = primals, tangents
    first = jnp.where(x <= 0, jnp.where(x == 0, 0, jnp.nan), jnp.log(jnp.where(x <= 0, 1, x)))
    return _x_log_x(x), (first + x / x) * dx


@autocasts
def kl_div(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Literal["none", "batchmean", "mean", "sum"] = "mean",
    log_target: bool = False,
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """target (log target - input): the divergence of a distribution from one given by log-probabilities.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.kl_div.html

    Args:
      input: log-probabilities.
      target: probabilities of a shape that broadcasts with it; 0 counts as nothing where `input` is finite.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, sum, mean (over all elements), or batchmean (the sum divided by the length of the first axis),
        which is the divergence as it is defined.
      log_target: whether `target` is log-probabilities too.
      mask: True where an element counts; of a shape that broadcasts to the unreduced loss. batchmean then divides by
        the number of rows of the first axis where something counts.

    Raises:
      ValueError: for another reduction, or shapes that do not broadcast.
      TypeError: for integers, or a mask that is not boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce, also=("batchmean",))
    input, target = as_array(input), as_array(target)
    check_floating("input", input)
    check_floating("target", target)
    shape, dtype = broadcast_shape(input=input, target=target), jnp.result_type(input, target)
    mask = as_mask(mask, shape)
    rows = input.shape[0] if input.ndim else 1
    arrays, total = (input, target), "sum" if reduction == "batchmean" else reduction
    loss_dtype = jnp.promote_types(dtype, jnp.float32) if reduction == "batchmean" else dtype
    loss = reduced_each(_divergence, arrays, total, loss_dtype, mask, log_target=log_target)
    if reduction != "batchmean":
        return loss
    counted = jnp.asarray(rows)
    if mask is not None and shape:
        counted = jnp.broadcast_to(mask, shape).any(tuple(range(1, len(shape)))).sum()
    return (loss / counted.astype(loss_dtype)).astype(dtype)


def _divergence(input: jax.Array, target: jax.Array, log_target: bool) -> jax.Array:
    input, target = in_float32(input, target)
    return jnp.exp(target) * (target - input) if log_target else _x_log_x(target) - target * input


@autocasts
def poisson_nll_loss(
    input: jax.Array,
    target: jax.Array,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """Negative log-likelihood of counts under a Poisson distribution.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.poisson_nll_loss.html

    Args:
      input: logarithms of the expected counts, or the counts themselves.
      target: counts, of a shape that broadcasts with it.
      log_input: whether `input` is logarithms.
      full: whether to add Stirling's approximation of log(target!), where target is above 1.
      size_average, reduce: deprecated; see `reduction`.
      eps: that is added to `input` before its logarithm is taken.
      reduction: none, mean or sum.
      mask: True where an element counts; of a shape that broadcasts to the unreduced loss.

    Raises:
      ValueError: for another reduction, or shapes that do not broadcast.
      TypeError: for an `input` of integers, or a mask that is not boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    input, target = as_array(input), as_array(target)
    check_floating("input", input)
    shape, dtype = broadcast_shape(input=input, target=target), jnp.result_type(input, target)
    mask = as_mask(mask, shape)
    target = target.astype(jnp.result_type(target, input.dtype))
    static = {"log_input": log_input, "full": full, "eps": as_number("eps", eps)}
    return reduced_each(_poisson_nll, (input, target), reduction, dtype, mask, **static)


def _poisson_nll(input: jax.Array, target: jax.Array, log_input: bool, full: bool, eps: float) -> jax.Array:
    input, target = in_float32(input, target)
    loss = jnp.exp(input) - target * input if log_input else input - target * jnp.log(input + eps)
    if not full:
        return loss
    stirling = target * jnp.log(target) - target + 0.5 * jnp.log(2 * math.pi * target)
    return loss + jnp.where(target <= 1, 0, stirling)


@autocasts
def gaussian_nll_loss(
    input: jax.Array,
    target: jax.Array,
    var: jax.Array | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: Reduction = "mean",
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """Negative log-likelihood of `target` under normal distributions of mean `input` and variance `var`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gaussian_nll_loss.html

    Args:
      input: expectations.
      target: of a shape that broadcasts with it.
      var: variances, of `input`'s shape, or with 1 in place of one axis, or without the last axis; or one number. At
        least `eps` is taken, and the gradient goes through as if it were not.
      full: whether to add log(2 pi) / 2.
      eps: the least variance.
      reduction: none, mean or sum.
      mask: True where an element counts; of a shape that broadcasts to the unreduced loss.

    Raises:
      ValueError: for another reduction, shapes that do not fit, or (outside a graph, where it gives NaN) a negative
        variance.
      TypeError: for an `input` of integers, or a mask that is not boolean.
    """
    reduction = as_reduction(reduction)
    input, target = as_array(input), as_array(target)
    check_floating("input", input)
    if isinstance(var, float | int):
        var = jnp.full(input.shape, var, input.dtype)
    var = as_array(var)
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var[..., None]
        elif var.ndim != input.ndim or sum(v for i, v in zip(input.shape, var.shape, strict=True) if i != v) != 1:
            raise ValueError(
                f"var has shape {var.shape} and input {input.shape}; give var input's shape, 1 in place of one axis, "
                "or leave the last axis out"
            )
    shape = broadcast_shape(input=input, target=target, var=var)
    dtype = jnp.result_type(input, target, var)
    mask = as_mask(mask, shape)
    input, target, var = in_float32(*where_counted(mask, input, target, var))
    check_within("var", var, var >= 0, "a variance of at least 0")
    var = jnp.where(var < 0, jnp.nan, raised_to(var, eps))
    loss = 0.5 * (jnp.log(var) + jnp.square(input - target) / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction, dtype, mask)


class KLDivLoss(Loss):
    """target (log target - input): the divergence of a distribution from one given by log-probabilities.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.KLDivLoss.html

    Args:
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, sum, mean (over all elements), or batchmean, which is the divergence as it is defined.
      log_target: whether `target` is log-probabilities too.

    Raises:
      ValueError: for another reduction; called, where the shapes do not broadcast.

    Example:
      >>> loss = KLDivLoss(reduction="batchmean")
      >>> round(float(loss(jnp.log(jnp.array([[0.5, 0.5]])), jnp.array([[1.0, 0.0]]))), 4)
      0.6931
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: Literal["none", "batchmean", "mean", "sum"] = "mean",
        log_target: bool = False,
    ):
        self.reduction: Any = as_reduction(reduction, size_average, reduce, also=("batchmean",))
        self.log_target = log_target

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return kl_div(input, target, reduction=self.reduction, log_target=self.log_target, mask=mask)


class PoissonNLLLoss(Loss):
    """Negative log-likelihood of counts under a Poisson distribution.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.PoissonNLLLoss.html

    Args:
      log_input: whether the input is logarithms of expected counts.
      full: whether to add Stirling's approximation of log(target!), where target is above 1.
      size_average, reduce: deprecated; see `reduction`.
      eps: that is added to an input before its logarithm is taken.
      reduction: none, mean or sum.

    Raises:
      ValueError: for another reduction; called, where the shapes do not broadcast.

    Example:
      >>> PoissonNLLLoss()(jnp.zeros(2), jnp.array([0.0, 3.0]))
      Array(1., dtype=float32)
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def __call__(self, log_input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
            mask=mask,
        )


class GaussianNLLLoss(Loss):
    """Negative log-likelihood of `target` under normal distributions of mean `input` and variance `var`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GaussianNLLLoss.html

    Args:
      full: whether to add log(2 pi) / 2.
      eps: the least variance.
      reduction: none, mean or sum.

    Raises:
      ValueError: for another reduction; called, as `functional.gaussian_nll_loss`.

    Example:
      >>> GaussianNLLLoss()(jnp.zeros(2), jnp.array([0.0, 2.0]), jnp.ones(2))
      Array(1., dtype=float32)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: Reduction = "mean"):
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def __call__(
        self, input: jax.Array, target: jax.Array, var: jax.Array | float, *, mask: jax.Array | None = None
    ) -> jax.Array:
        return gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction, mask=mask)
