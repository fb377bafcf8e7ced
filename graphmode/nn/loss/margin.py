"""Losses that ask for a margin between scores: hinge, ranking, multi-class and multi-label margins."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..arguments import as_number, check_floating, check_same_dtype
from ..autocast import autocasts
from ..folded_sum import folded_rows
from .kinks import above, at_least
from .reduction import (
    Loss,
    Reduction,
    WeightedLoss,
    as_array,
    as_indices,
    as_mask,
    as_reduction,
    broadcast_shape,
    check_within,
    in_float32,
    poisoned,
    reduced,
    reduced_each,
    value_of,
    where_counted,
)


@autocasts
def hinge_embedding_loss(
    input: jax.Array,
    target: jax.Array,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """`input` where target is 1 and max(0, margin - input) where it is -1; both for any other target.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hinge_embedding_loss.html

    Args:
      input: distances.
      target: 1 or -1, of a shape that broadcasts with it.
      margin: that pairs of target -1 are to be apart.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.
      mask: True where an element counts; of a shape that broadcasts to the unreduced loss.

    Raises:
      ValueError: for another reduction, or shapes that do not broadcast.
      TypeError: where `input` is not floating, or for a mask that is not boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    input, target = as_array(input), as_array(target)
    check_floating("input", input)
    shape, dtype = broadcast_shape(input=input, target=target), input.dtype
    mask = as_mask(mask, shape)
    return reduced_each(_hinge_embedding, (input, target), reduction, dtype, mask, margin=as_number("margin", margin))


def _hinge_embedding(input: jax.Array, target: jax.Array, margin: float) -> jax.Array:
    input, target = in_float32(input, target)
    apart = at_least(margin - input, 0)
    return jnp.where(target == 1, input, jnp.where(target == -1, apart, apart + input))


@autocasts
def margin_ranking_loss(
    input1: jax.Array,
    input2: jax.Array,
    target: jax.Array,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """max(0, margin - target (input1 - input2)): `input1` is to be ranked above where target is 1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.margin_ranking_loss.html

    Args:
      input1, input2: scores.
      target: 1 or -1; the three have equally many axes and broadcast.
      margin: between the two scores.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.
      mask: True where an element counts; of a shape that broadcasts to the unreduced loss.

    Raises:
      ValueError: for another reduction, or shapes that do not fit.
      TypeError: where scores are not floating, or for a mask that is not boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    input1, input2, target = as_array(input1), as_array(input2), as_array(target)
    if not input1.ndim == input2.ndim == target.ndim:
        raise ValueError(
            f"input1 has shape {input1.shape}, input2 {input2.shape} and target {target.shape}; give them equally many "
            "axes"
        )
    dtype = jnp.result_type(input1, input2, target)
    check_floating("input1 - input2", jnp.empty(0, dtype))
    mask = as_mask(mask, broadcast_shape(input1=input1, input2=input2, target=target))
    return reduced_each(
        _margin_ranking, (input1, input2, target), reduction, dtype, mask, margin=as_number("margin", margin)
    )


def _margin_ranking(input1: jax.Array, input2: jax.Array, target: jax.Array, margin: float) -> jax.Array:
    input1, input2, target = in_float32(input1, input2, target)
    return at_least(-target * (input1 - input2) + margin, 0)


@autocasts
def multi_margin_loss(
    input: jax.Array,
    target: jax.Array,
    p: int = 1,
    margin: float = 1.0,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """max(0, margin - input[target] + input[i])^p over all other classes i, divided by the number of classes.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multi_margin_loss.html

    Args:
      input: scores, `[N, C]` or `[C]`.
      target: class indices, `[N]` or `[]`. In a graph, one out of range gives NaN.
      p: 1 or 2.
      margin: between the target's score and any other.
      weight: of each class, `[C]`, taken at the target.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum; a mean is divided by the number of rows.
      mask: True where a row counts; of a shape that broadcasts to `target`'s.

    Raises:
      ValueError: for another reduction or p, shapes that do not fit, or (outside a graph) a target out of range.
      TypeError: where `input` is not floating, `weight` of another dtype, or `target` not of integers.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    input, target = as_array(input), as_indices("target", as_array(target))
    weight = None if weight is None else as_array(weight)
    _check_margin_arguments(p, weight)
    input = _rows(input)
    classes, dtype = input.shape[-1], input.dtype
    if input.ndim == 1 and target.shape == (1,):
        input = input[None]
    if target.shape != input.shape[:-1]:
        raise ValueError(
            f"target has shape {target.shape}, and {input.shape[:-1]} was wanted, as input {input.shape} says"
        )
    if weight is not None:
        check_same_dtype(input=input, weight=weight)
        if weight.shape != (classes,):
            raise ValueError(f"weight has shape {weight.shape}, and {(classes,)} was wanted, one a class")
    mask = as_mask(mask, target.shape)
    (target,) = where_counted(mask, target)
    (input,) = in_float32(*where_counted(mask, input, trailing=1))
    valid = (target >= 0) & (target < classes)
    check_within("target", target, valid, f"a class from 0 to {classes - 1}")
    index = jnp.where(valid, target, 0)
    of_target = jnp.take_along_axis(input, index[..., None], -1, mode="promise_in_bounds")
    numbers = jnp.arange(classes, dtype=index.dtype).reshape((1,) * (input.ndim - 1) + (-1,))
    loss = (
        folded_rows(_short_of, input, of_target, numbers, index[..., None], margin=as_number("margin", margin), p=p)
        / classes
    )
    if weight is not None:
        loss = loss * in_float32(weight)[0][index]
    return reduced(poisoned(loss, valid), reduction, dtype, mask)


def _short_of(
    score: jax.Array, of_target: jax.Array, number: jax.Array, target: jax.Array, margin: float, p: int
) -> jax.Array:
    short = jnp.where(number == target, 0, above(margin - of_target + score))
    return short if p == 1 else jnp.square(short)


@autocasts
def multilabel_margin_loss(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """max(0, 1 - input[t] + input[i]) over all target classes t and other classes i, divided by the number of classes.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multilabel_margin_loss.html

    Args:
      input: scores, `[N, C]` or `[C]`.
      target: of the same shape: each row's class indices, then -1 where there are fewer than C; what follows the first
        -1 does not count. In a graph, an index out of range gives NaN.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none (`[N]` or `[]`), mean or sum; a mean is divided by the number of rows.
      mask: True where a row counts; of a shape that broadcasts to `[N]` or `[]`.

    Raises:
      ValueError: for another reduction, shapes that do not fit, or (outside a graph) a target out of range.
      TypeError: where `input` is not floating, or `target` not of integers.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    input, target = as_array(input), as_indices("target", as_array(target))
    input, target = _rows(input), target[None] if target.ndim == 0 else target
    if target.shape != input.shape:
        raise ValueError(f"target has shape {target.shape}, and input's, {input.shape}, was wanted")
    classes, dtype = input.shape[-1], input.dtype
    mask = as_mask(mask, input.shape[:-1])
    (input,) = in_float32(*where_counted(mask, input, trailing=1))
    (target,) = where_counted(mask, target, trailing=1)
    valid = (target >= -1) & (target < classes)
    check_within("target", target, valid, f"a class from 0 to {classes - 1}, or -1,")
    listed = jnp.cumprod(target >= 0, axis=-1).astype(bool)
    index = jnp.where(listed & valid, target, 0)
    # [..., C, C]: of each listed target, which class it is. Reductions over it fuse, so that it is never there.
    each = (jax.lax.broadcasted_iota(index.dtype, (*index.shape, classes), index.ndim) == index[..., None]) & listed[
        ..., None
    ]
    is_target = each.any(-2)
    of_target = jnp.where(each, input[..., None, :], 0).sum(-1, keepdims=True)
    short = above(1 - of_target + input[..., None, :])
    counts = listed[..., None] & ~is_target[..., None, :]
    loss = jnp.where(counts, short, 0).sum((-2, -1)) / classes
    return reduced(poisoned(loss, valid.all(-1)), reduction, dtype, mask)


def _rows(input: jax.Array) -> jax.Array:
    """Scores as `[C]` or `[N, C]`; one without axes is of a single class."""
    check_floating("input", input)
    input = input[None] if input.ndim == 0 else input
    if input.ndim not in (1, 2) or input.shape[-1] == 0:
        raise ValueError(f"input has shape {input.shape}, and [C] or [N, C] with a C of at least 1 was wanted")
    return input


def _check_margin_arguments(p: int, weight: jax.Array | None) -> None:
    if p not in (1, 2):
        raise ValueError(f"p is {p!r}; choose 1 or 2")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"weight has shape {weight.shape}; give one axis, of the classes")


class HingeEmbeddingLoss(Loss):
    """`input` where target is 1 and max(0, margin - input) where it is -1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.HingeEmbeddingLoss.html

    Args:
      margin: that pairs of target -1 are to be apart.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.

    Raises:
      ValueError: for another reduction; called, where the shapes do not broadcast.

    Example:
      >>> HingeEmbeddingLoss()(jnp.array([0.5, 0.25]), jnp.array([1, -1]))
      Array(0.625, dtype=float32)
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return hinge_embedding_loss(input, target, self.margin, reduction=self.reduction, mask=mask)


class MarginRankingLoss(Loss):
    """max(0, margin - target (input1 - input2)): `input1` is to be ranked above where target is 1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MarginRankingLoss.html

    Args:
      margin: between the two scores.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.

    Raises:
      ValueError: for another reduction; called, where the shapes do not fit.

    Example:
      >>> MarginRankingLoss(margin=0.5)(jnp.array([1.0, 2.0]), jnp.array([1.0, 0.0]), jnp.array([1, 1]))
      Array(0.25, dtype=float32)
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def __call__(
        self, input1: jax.Array, input2: jax.Array, target: jax.Array, *, mask: jax.Array | None = None
    ) -> jax.Array:
        return margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction, mask=mask)


class MultiMarginLoss(WeightedLoss):
    """max(0, margin - input[target] + input[i])^p over all other classes i, divided by the number of classes.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiMarginLoss.html

    Args:
      p: 1 or 2.
      margin: between the target's score and any other.
      weight: of each class, `[C]`, taken at the target.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.

    Raises:
      ValueError: for another reduction or p, or a weight of other than one axis; called, as
        `functional.multi_margin_loss`.

    Example:
      >>> round(float(MultiMarginLoss()(jnp.array([[0.1, 0.2, 0.4, 0.8]]), jnp.array([3]))), 4)
      0.325
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: jax.Array | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__(weight, size_average, reduce, reduction)
        _check_margin_arguments(p, None if weight is None else as_array(weight))
        self.p = p
        self.margin = margin

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return multi_margin_loss(
            input, target, self.p, self.margin, value_of(self.weight), reduction=self.reduction, mask=mask
        )


class MultiLabelMarginLoss(Loss):
    """max(0, 1 - input[t] + input[i]) over all target classes t and other classes i, divided by the number of classes.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiLabelMarginLoss.html

    Args:
      size_average, reduce: deprecated; see `reduction`.
      reduction: none (one loss a row), mean or sum.

    Raises:
      ValueError: for another reduction; called, as `functional.multilabel_margin_loss`.

    Example:
      >>> round(float(MultiLabelMarginLoss()(jnp.array([[0.1, 0.2, 0.4, 0.8]]), jnp.array([[3, 0, -1, 1]]))), 4)
      0.85
    """

    def __call__(self, input: jax.Array, target: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        return multilabel_margin_loss(input, target, reduction=self.reduction, mask=mask)
