"""Losses of one class among many: negative log-likelihood and cross-entropy."""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ..arguments import as_probability, check_floating, check_same_dtype
from ..autocast import autocasts
from ..folded_sum import sum_and_count
from ..layout import DataFormat, as_layout, channel_axis
from .reduction import (
    Reduction,
    WeightedLoss,
    as_array,
    as_indices,
    as_mask,
    as_reduction,
    check_within,
    in_float32,
    poisoned,
    reduced,
    value_of,
)


@autocasts
def nll_loss(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    *,
    data_format: DataFormat = "channels_last",
    mask: jax.Array | None = None,
) -> jax.Array:
    """-input[target]: negative log-likelihood, `input` being log-probabilities.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.nll_loss.html

    Args:
      input: `[C]`, `[N, C]`, or `[N, d1, ..., C]` (`[N, C, d1, ...]` where channels are first).
      target: class indices, of `input`'s shape without the classes. In a graph, one out of range gives NaN.
      weight: of each class, `[C]`; a mean is divided by the sum of the targets' weights.
      size_average, reduce: deprecated; see `reduction`.
      ignore_index: a target that does not count; a mean in which none counts is NaN.
      reduction: none, mean or sum.
      data_format: where the classes are.
      mask: True where a target counts; of a shape that broadcasts to `target`'s.

    Raises:
      ValueError: for another reduction, shapes that do not fit, or (outside a graph) a target out of range.
      TypeError: where `input` is not floating, `weight` of another dtype, `target` not of integers, or `mask` not
        boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    input, target, weight = as_array(input), as_array(target), None if weight is None else as_array(weight)
    axis = class_axis(input, weight, data_format)
    dtype = input.dtype
    picked = _picked(input.shape, target, weight, ignore_index, axis, mask)
    (input,) = in_float32(_where_rows(picked.mask, input, axis))
    return picked.reduced(picked.weighted(-_picked_from(input, picked.index, axis)), reduction, dtype)


@autocasts
def cross_entropy(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    *,
    data_format: DataFormat = "channels_last",
    mask: jax.Array | None = None,
) -> jax.Array:
    """Cross-entropy between classes, or probabilities of classes, and `softmax(input)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html

    Args:
      input: logits, `[C]`, `[N, C]`, or `[N, d1, ..., C]` (`[N, C, d1, ...]` where channels are first).
      target: class indices, of `input`'s shape without the classes; or probabilities, of `input`'s shape. In a graph,
        an index out of range gives NaN.
      weight: of each class, `[C]`; a mean over class indices is divided by the sum of the targets' weights.
      size_average, reduce: deprecated; see `reduction`.
      ignore_index: a class index that does not count; a mean in which none counts is NaN.
      reduction: none, mean or sum.
      label_smoothing: how much of each target is spread evenly over all classes.
      data_format: where the classes are, of a `target` of probabilities too.
      mask: True where a target counts; of a shape that broadcasts to the unreduced loss.

    Raises:
      ValueError: for another reduction, shapes that do not fit, a smoothing outside of 0 to 1, an `ignore_index` beside
        probabilities, or (outside a graph) an index out of range.
      TypeError: where `input` is not floating, `weight` of another dtype, `target` of the wrong kind, or `mask` not
        boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    smoothing = as_probability("label_smoothing", label_smoothing)
    input, target, weight = as_array(input), as_array(target), None if weight is None else as_array(weight)
    axis = class_axis(input, weight, data_format)
    dtype = jnp.result_type(input, target) if target.shape == input.shape else input.dtype
    rows = unreduced(input, target, weight, ignore_index, smoothing, axis, mask)
    return reduced_rows(rows, input.shape, target, weight, ignore_index, reduction, dtype, axis, mask)


def unreduced(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    ignore_index: int,
    smoothing: float,
    axis: int,
    mask: Any,
) -> jax.Array:
    """Cross-entropy of each target, in float32 for half precisions; 0 where one does not count."""
    classes = input.shape[axis]
    if target.shape == input.shape:
        mask = _mask_of_probabilities(input.shape, target, ignore_index, axis, mask)
        logits, target = in_float32(_where_rows(mask, input, axis), _where_rows(mask, target, axis))
        shifted, log_sum, _ = _shifted(logits, axis)
        if smoothing > 0:
            target = target * (1 - smoothing) + smoothing / max(classes, 1)
        loss = (jnp.expand_dims(log_sum, axis) - shifted) * target
        return (loss if weight is None else loss * _along(in_float32(weight)[0], axis, input.ndim)).sum(axis)
    picked = _picked(input.shape, target, weight, ignore_index, axis, mask)
    (logits,) = in_float32(_where_rows(picked.mask, input, axis))
    shifted, log_sum, largest = _shifted(logits, axis)
    rows = picked.weighted(log_sum - (_picked_beside_softmax(logits, picked.index, axis) - largest))
    if smoothing > 0:
        spread = jnp.expand_dims(log_sum, axis) - shifted
        spread = (spread if weight is None else spread * _along(in_float32(weight)[0], axis, input.ndim)).sum(axis)
        share = smoothing / classes if classes else math.nan
        rows = (1 - smoothing) * rows + share * picked.checked(spread)
    return rows


def reduced_rows(
    rows: jax.Array,
    shape: tuple[int, ...],
    target: jax.Array,
    weight: jax.Array | None,
    ignore_index: int,
    reduction: str,
    dtype: Any,
    axis: int,
    mask: Any,
) -> jax.Array:
    """What `unreduced` gave for logits of this shape, in its reduction."""
    if target.shape == shape:
        return reduced(rows, reduction, dtype, as_mask(mask, rows.shape))
    return _picked(shape, target, weight, ignore_index, axis, mask).reduced(rows, reduction, dtype)


def _mask_of_probabilities(
    shape: tuple[int, ...], target: jax.Array, ignore_index: int, axis: int, mask: Any
) -> jax.Array | None:
    if not jnp.issubdtype(target.dtype, jnp.floating):
        raise TypeError(
            f"target is {target.dtype} and has input's shape {shape}, so probabilities of classes were wanted; cast it "
            "to a floating dtype, or give class indices without the axis of the classes"
        )
    if ignore_index >= 0:
        raise ValueError(f"ignore_index is {ignore_index}, which has no meaning where target is probabilities")
    return as_mask(mask, shape[:axis] + shape[axis + 1 :])


@dataclass(frozen=True)
class _Picked:
    """Class indices, ready to be looked up.

    Attributes:
      index: within range, everywhere.
      counts: where one is neither ignored nor masked.
      valid: where one is in range, or does not count.
      mask: where one counts by the caller's mask; None where there was none.
      class_weight: `[C]`; None for 1.
      axis: of the classes.
    """

    index: jax.Array
    counts: jax.Array
    valid: jax.Array
    mask: jax.Array | None
    class_weight: jax.Array | None
    axis: int

    def weighted(self, loss: jax.Array) -> jax.Array:
        if self.class_weight is None or not self.class_weight.size:
            return self.checked(loss)
        # An infinite weight of a class that is ignored would make NaN of its gradients.
        return self.checked(loss * jnp.where(self.counts, self.class_weight[self.index], 0))

    def checked(self, loss: jax.Array) -> jax.Array:
        return jnp.where(self.counts, poisoned(loss, self.valid), 0)

    def reduced(self, loss: jax.Array, reduction: str, dtype: Any) -> jax.Array:
        if reduction != "mean":
            return reduced(loss, reduction, dtype)
        # Counted first and weighted then: exact but for C roundings, however many targets there are.
        if self.class_weight is None:
            summed, total = sum_and_count(loss, self.counts)
        else:
            summed = loss.sum()
            each = jnp.zeros(self.class_weight.shape, jnp.int32).at[self.index].add(self.counts.astype(jnp.int32))
            total = jnp.where(each > 0, each * self.class_weight, 0).sum()
        # Smoothing leaves something to divide by a weight of 0; PyTorch has NaN there too.
        return (summed / jnp.where(total == 0, jnp.nan, total)).astype(dtype)


def _picked_from(values: jax.Array, index: jax.Array, axis: int) -> jax.Array:
    """`values` at `index`, which is in range, along an axis that it does not have; 0 where that is of length 0."""
    if values.shape[axis] == 0:
        return jnp.zeros(index.shape, values.dtype)
    found = jnp.take_along_axis(values, jnp.expand_dims(index, axis), axis, mode="promise_in_bounds")
    return found.squeeze(axis)


# The gradient of a gather is a scatter, which nothing fuses with; of a comparison it is one pass with the softmax's.
@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _picked_beside_softmax(values: jax.Array, index: jax.Array, axis: int) -> jax.Array:
    return _picked_from(values, index, axis)


@_picked_beside_softmax.defjvp
def _picked_beside_softmax_jvp(axis: int, primals: Any, tangents: Any) -> Any:
    values, index = primals
    classes = jax.lax.broadcasted_iota(index.dtype, values.shape, axis)
    chosen = jnp.where(classes == jnp.expand_dims(index, axis), tangents[0], 0)
    return _picked_from(values, index, axis), chosen.sum(axis)


def _picked(
    of: tuple[int, ...], target: jax.Array, weight: jax.Array | None, ignore_index: int, axis: int, mask: Any
) -> _Picked:
    shape = of[:axis] + of[axis + 1 :]
    if len(of) == 1 and target.shape == (1,):
        target = target.reshape(())
    if target.shape != shape:
        raise ValueError(
            f"target has shape {target.shape}, and {shape} was wanted: input has shape {of} with its classes on axis "
            f"{axis}; move the axis, or set data_format"
        )
    target = as_indices("target", target)
    mask = as_mask(mask, shape)
    counts = target != ignore_index
    if mask is not None:
        counts = counts & mask
    classes = of[axis]
    valid = ~counts | ((target >= 0) & (target < classes))
    check_within("target", target, valid, f"a class from 0 to {classes - 1}, or ignore_index = {ignore_index},")
    index = jnp.where(counts & valid, target, 0)
    return _Picked(index, counts, valid, mask, None if weight is None else in_float32(weight)[0], axis)


def class_axis(input: jax.Array, weight: jax.Array | None, data_format: str) -> int:
    """The axis of the classes, counted from 0, of a floating input that has one."""
    layout = as_layout(data_format)
    check_floating("input", input)
    if input.ndim == 0:
        raise ValueError("input has no axes, and [C], [N, C] or one with further axes was wanted")
    axis = channel_axis(layout, input.ndim)
    if weight is not None:
        check_same_dtype(input=input, weight=weight)
        if weight.shape != (input.shape[axis],):
            raise ValueError(
                f"weight has shape {weight.shape}; give one weight for each of the {input.shape[axis]} classes on axis "
                f"{axis} of input, or set data_format"
            )
    return axis


def _shifted(logits: jax.Array, axis: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The logits less their largest, the logarithm of the sum of their exponentials, and the largest."""
    largest = jax.lax.stop_gradient(logits.max(axis, keepdims=True, initial=None if logits.shape[axis] else 0))
    shifted = logits - largest
    return shifted, jnp.log(jnp.exp(shifted).sum(axis)), largest.squeeze(axis)


def _where_rows(mask: jax.Array | None, values: jax.Array, axis: int) -> jax.Array:
    if mask is None:
        return values
    shape = values.shape[:axis] + values.shape[axis + 1 :]
    return jnp.where(jnp.expand_dims(jnp.broadcast_to(mask, shape), axis), values, 0)


def _along(weight: jax.Array, axis: int, ndim: int) -> jax.Array:
    return weight.reshape([-1 if i == axis else 1 for i in range(ndim)])


class NLLLoss(WeightedLoss):
    """-input[target]: negative log-likelihood, `input` being log-probabilities.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.NLLLoss.html

    Args:
      weight: of each class, `[C]`; a mean is divided by the sum of the targets' weights.
      size_average, reduce: deprecated; see `reduction`.
      ignore_index: a target that does not count.
      reduction: none, mean or sum.
      data_format: where the classes are: last (`[N, d1, ..., C]`), or first (`[N, C, d1, ...]`).

    Raises:
      ValueError: for another reduction or layout; called, as `functional.nll_loss`.

    Example:
      >>> NLLLoss()(jnp.array([[-1.0, -2.0], [-3.0, -4.0]]), jnp.array([0, 1]))
      Array(2.5, dtype=float32)
    """

    def __init__(
        self,
        weight: jax.Array | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: Reduction = "mean",
        *,
        data_format: DataFormat = "channels_last",
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.data_format = as_layout(data_format)

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return nll_loss(
            input,
            target,
            value_of(self.weight),
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            data_format=self.data_format,
            mask=mask,
        )


class NLLLoss2d(NLLLoss):
    """PyTorch's deprecated name of `NLLLoss`, which this warns of."""

    def __init__(
        self,
        weight: jax.Array | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: Reduction = "mean",
        *,
        data_format: DataFormat = "channels_last",
    ):
        warnings.warn("NLLLoss2d is deprecated; use NLLLoss, which is the same", FutureWarning, stacklevel=2)
        super().__init__(weight, size_average, ignore_index, reduce, reduction, data_format=data_format)


class CrossEntropyLoss(WeightedLoss):
    """Cross-entropy between classes, or probabilities of classes, and `softmax(input)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html

    Args:
      weight: of each class, `[C]`; a mean over class indices is divided by the sum of the targets' weights.
      size_average, reduce: deprecated; see `reduction`.
      ignore_index: a class index that does not count.
      reduction: none, mean or sum.
      label_smoothing: how much of each target is spread evenly over all classes.
      data_format: where the classes are: last (`[N, d1, ..., C]`), or first (`[N, C, d1, ...]`).

    Raises:
      ValueError: for another reduction or layout, or a smoothing outside of 0 to 1; called, as
        `functional.cross_entropy`.

    Example:
      >>> round(float(CrossEntropyLoss()(jnp.array([[0.0, 0.0], [3.0, 3.0]]), jnp.array([0, 1]))), 4)
      0.6931
    """

    def __init__(
        self,
        weight: jax.Array | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        *,
        data_format: DataFormat = "channels_last",
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = as_probability("label_smoothing", label_smoothing)
        self.data_format = as_layout(data_format)

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return cross_entropy(
            input,
            target,
            value_of(self.weight),
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            data_format=self.data_format,
            mask=mask,
        )
