"""Losses of yes and no: binary cross-entropy of probabilities and of logits, and the soft margins."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..activation.smooth import logsigmoid_summed
from ..arguments import check_floating, check_same_dtype
from ..autocast import autocasts
from .reduction import (
    Loss,
    Reduction,
    WeightedLoss,
    as_array,
    as_buffer,
    as_mask,
    as_reduction,
    broadcast_shape,
    check_within,
    in_float32,
    poisoned,
    reduced,
    value_of,
    where_counted,
)

_LEAST_LOG = -100.0
_LEAST_VARIANCE = float(np.float32(1e-12))  # PyTorch's constant is a float, in float64 too


@jax.custom_jvp
def _bce(x: jax.Array, target: jax.Array) -> jax.Array:
    by_no, by_yes = (jnp.maximum(log, _LEAST_LOG) for log in (jnp.log1p(-x), jnp.log(x)))
    return (target - 1) * by_no - target * by_yes


@_bce.defjvp
def _bce_jvp(primals, tangents):
    # PyTorch bounds the logarithms and the variance in the derivative apart, and bounds nothing for the target.
    (x, target), (dx, dtarget) = primals, tangents
    slope = (x - target) / jnp.maximum((1 - x) * x, _LEAST_VARIANCE)
    return _bce(x, target), slope * dx + (jnp.log1p(-x) - jnp.log(x)) * dtarget


@autocasts
def binary_cross_entropy(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """-(target log input + (1 - target) log(1 - input)), the logarithms at least -100.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy.html

    Args:
      input: probabilities; in a graph, one outside of 0 to 1 gives NaN.
      target: of the same shape and dtype.
      weight: of each element; of a shape that broadcasts to `input`'s.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum; a mean is divided by the number of elements.
      mask: True where an element counts; of a shape that broadcasts to `input`'s.

    Raises:
      ValueError: for another reduction, shapes that do not fit, or (outside a graph) an input outside of 0 to 1.
      TypeError: where dtypes differ or are not floating, or for a mask that is not boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    input, target = as_array(input), as_array(target)
    _check_same_shape(input, target)
    check_floating("input", input)
    weight = None if weight is None else as_array(weight)
    check_same_dtype(input=input, target=target, weight=weight)
    dtype = input.dtype
    mask = as_mask(mask, input.shape)
    input, target = in_float32(*where_counted(mask, input, target))
    valid = (input >= 0) & (input <= 1)
    check_within("input", input, valid, "a probability from 0 to 1")
    loss = _weighted(poisoned(_bce(input, target), valid), weight, "weight")
    return reduced(loss, reduction, dtype, mask)


@autocasts
def binary_cross_entropy_with_logits(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    pos_weight: jax.Array | None = None,
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """`binary_cross_entropy` of `sigmoid(input)`, exact for logits of any size.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy_with_logits.html

    Args:
      input: logits.
      target: of the same shape, floating; the result has its dtype.
      weight: of each element; of a shape that broadcasts to `input`'s.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum; a mean is divided by the number of elements.
      pos_weight: of the positive part; of a shape that broadcasts to `input`'s.
      mask: True where an element counts; of a shape that broadcasts to `input`'s.

    Raises:
      ValueError: for another reduction, or shapes that do not fit.
      TypeError: where input or target is not floating, or for a mask that is not boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    input, target = as_array(input), as_array(target)
    _check_same_shape(input, target)
    check_floating("input", input)
    check_floating("target", target)
    dtype = target.dtype
    mask = as_mask(mask, input.shape)
    input, target = in_float32(*where_counted(mask, input, target))
    log_sigmoid = logsigmoid_summed(input)
    if pos_weight is not None:
        (pos_weight,) = in_float32(as_array(pos_weight))
        log_sigmoid = log_sigmoid * _weighted(target, pos_weight - 1, "pos_weight", plus=1)
    loss = _weighted((1 - target) * input - log_sigmoid, weight, "weight")
    return reduced(loss, reduction, dtype, mask)


@autocasts
def soft_margin_loss(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """log(1 + exp(-target input)), infinite where the exponential overflows, as PyTorch's.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.soft_margin_loss.html

    Args:
      input: of a shape that broadcasts to `target`'s.
      target: 1 or -1.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.
      mask: True where an element counts; of a shape that broadcasts to `target`'s.

    Raises:
      ValueError: for another reduction, or shapes that do not fit.
      TypeError: where `input` is not floating, or for a mask that is not boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    input, target = as_array(input), as_array(target)
    check_floating("input", input)
    try:
        fits = jnp.broadcast_shapes(input.shape, target.shape) == target.shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"input has shape {input.shape}; give one that broadcasts to target's, {target.shape}")
    dtype = input.dtype
    mask = as_mask(mask, target.shape)
    input, target = in_float32(*where_counted(mask, input, target))
    return reduced(jnp.log1p(jnp.exp(-(target * input))), reduction, dtype, mask)  # a negative uint8 wraps


@autocasts
def multilabel_soft_margin_loss(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """Binary cross-entropy of logits, averaged over the classes on the last axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multilabel_soft_margin_loss.html

    Args:
      input: logits, `[..., C]`.
      target: 0 or 1, of the same shape.
      weight: of each class, `[C]`.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none (which gives `[...]`), mean or sum.
      mask: True where a row of classes counts; of a shape that broadcasts to `[...]`.

    Raises:
      ValueError: for another reduction, or shapes that do not fit.
      TypeError: where `input` is not floating, or for a mask that is not boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    input, target = as_array(input), as_array(target)
    check_floating("input", input)
    if input.ndim == 0:
        raise ValueError("input has no axes, and [..., C] was wanted")
    dtype = jnp.result_type(input, target, *([] if weight is None else [as_array(weight)]))
    shape = broadcast_shape(input=input, target=target)
    mask = as_mask(mask, shape[:-1])
    input, target = in_float32(*where_counted(mask, input, target, trailing=1))
    loss = -(target * logsigmoid_summed(input) + (1 - target) * logsigmoid_summed(-input))
    loss = _weighted(loss, weight, "weight").sum(-1) / input.shape[-1]
    return reduced(loss, reduction, dtype, mask)


def _check_same_shape(input: jax.Array, target: jax.Array) -> None:
    if input.shape != target.shape:
        raise ValueError(f"target has shape {target.shape} and input {input.shape}; give them one shape")


def _weighted(loss: jax.Array, weight: jax.Array | None, name: str, plus: float = 0) -> jax.Array:
    if weight is None:
        return loss
    (weight,) = in_float32(as_array(weight))
    try:
        fits = jnp.broadcast_shapes(loss.shape, weight.shape) == loss.shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} has shape {weight.shape}; give one that broadcasts to {loss.shape}")
    return loss * weight + plus if plus else loss * weight


class BCELoss(WeightedLoss):
    """-(target log input + (1 - target) log(1 - input)), the logarithms at least -100.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BCELoss.html

    Args:
      weight: of each element; of a shape that broadcasts to `input`'s.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.

    Raises:
      ValueError: for another reduction; called, as `functional.binary_cross_entropy`.

    Example:
      >>> round(float(BCELoss()(jnp.array([0.5, 1.0]), jnp.array([1.0, 1.0]))), 4)
      0.3466
    """

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return binary_cross_entropy(input, target, value_of(self.weight), reduction=self.reduction, mask=mask)


class BCEWithLogitsLoss(WeightedLoss):
    """Binary cross-entropy of `sigmoid(input)`, exact for logits of any size.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html

    Args:
      weight: of each element; of a shape that broadcasts to `input`'s.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.
      pos_weight: of the positive part; of a shape that broadcasts to `input`'s.

    Raises:
      ValueError: for another reduction; called, as `functional.binary_cross_entropy_with_logits`.

    Example:
      >>> loss = BCEWithLogitsLoss(pos_weight=jnp.array([3.0]))
      >>> round(float(loss(jnp.array([0.0, 0.0]), jnp.array([1.0, 0.0]))), 4)
      1.3863
    """

    def __init__(
        self,
        weight: jax.Array | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: Reduction = "mean",
        pos_weight: jax.Array | None = None,
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.pos_weight = as_buffer(pos_weight)

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return binary_cross_entropy_with_logits(
            input,
            target,
            value_of(self.weight),
            reduction=self.reduction,
            pos_weight=value_of(self.pos_weight),
            mask=mask,
        )


class SoftMarginLoss(Loss):
    """log(1 + exp(-target input)), targets being 1 or -1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SoftMarginLoss.html

    Args:
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.

    Raises:
      ValueError: for another reduction; called, as `functional.soft_margin_loss`.

    Example:
      >>> round(float(SoftMarginLoss()(jnp.array([0.0, 1.0]), jnp.array([1.0, -1.0]))), 4)
      1.0032
    """

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return soft_margin_loss(input, target, reduction=self.reduction, mask=mask)


class MultiLabelSoftMarginLoss(WeightedLoss):
    """Binary cross-entropy of logits, averaged over the classes on the last axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiLabelSoftMarginLoss.html

    Args:
      weight: of each class, `[C]`.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none (one loss a row), mean or sum.

    Raises:
      ValueError: for another reduction; called, as `functional.multilabel_soft_margin_loss`.

    Example:
      >>> round(float(MultiLabelSoftMarginLoss()(jnp.zeros((2, 3)), jnp.ones((2, 3)))), 4)
      0.6931
    """

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return multilabel_soft_margin_loss(input, target, value_of(self.weight), reduction=self.reduction, mask=mask)
