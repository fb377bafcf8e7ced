"""Losses that bring embeddings together and push them apart: cosine, and triplets by any distance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from ..arguments import as_number, check_floating
from ..autocast import autocasts
from ..distance.similarity import products
from ..folded_sum import joint_row_sums
from .kinks import at_least, distances, norm
from .reduction import (
    Loss,
    Reduction,
    as_array,
    as_mask,
    as_reduction,
    broadcast_shape,
    in_float32,
    reduced,
    where_counted,
)

Distance = Callable[[jax.Array, jax.Array], jax.Array]


@autocasts
def cosine_embedding_loss(
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
    """1 - cos(input1, input2) where target is 1, and max(0, cos - margin) where it is -1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cosine_embedding_loss.html

    Args:
      input1, input2: `[N, D]` or `[D]`.
      target: 1 or -1, `[N]` or `[]`; any other gives 0.
      margin: of the cosine, from -1 to 1.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.
      mask: True where a pair counts; of a shape that broadcasts to `target`'s.

    Raises:
      ValueError: for another reduction, or shapes that do not fit.
      TypeError: where inputs are not floating, or for a mask that is not boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    input1, input2, target = as_array(input1), as_array(input2), as_array(target)
    if target.ndim > 1 or not input1.ndim == input2.ndim == target.ndim + 1:
        raise ValueError(
            f"input1 has shape {input1.shape}, input2 {input2.shape} and target {target.shape}; [N, D], [N, D] and "
            "[N], or [D], [D] and [] were wanted"
        )
    dtype = jnp.result_type(input1, input2)
    check_floating("input1 * input2", jnp.empty(0, dtype))
    shape = jnp.broadcast_shapes(broadcast_shape(input1=input1, input2=input2)[:-1], target.shape)
    mask = as_mask(mask, shape)
    input1, input2 = in_float32(*where_counted(mask, input1, input2, trailing=1))
    product, square1, square2 = joint_row_sums(products, input1, input2)
    cosine = product / jnp.sqrt((square1 + 1e-12) * (square2 + 1e-12))
    together = jnp.where(target == 1, 1 - cosine, 0)
    return reduced(together + jnp.where(target == -1, at_least(cosine - margin, 0), 0), reduction, dtype, mask)


@autocasts
def triplet_margin_loss(
    anchor: jax.Array,
    positive: jax.Array,
    negative: jax.Array,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    *,
    mask: jax.Array | None = None,
) -> jax.Array:
    """max(0, margin + |anchor - positive| - |anchor - negative|), in the p-norm over the last axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.triplet_margin_loss.html

    Args:
      anchor, positive, negative: `[..., D]`, of shapes that broadcast.
      margin: positive.
      p: of the norm.
      eps: that is added to each difference.
      swap: whether the negative may be compared with the positive, where that is nearer to it than the anchor.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none (`[...]`), mean or sum.
      mask: True where a triplet counts; of a shape that broadcasts to `[...]`.

    Raises:
      ValueError: for another reduction, a margin that is not positive, or shapes that do not fit.
      TypeError: where inputs are not floating, or for a mask that is not boolean.
    """
    reduction = as_reduction(reduction, size_average, reduce)
    _check_margin(margin)
    anchor, positive, negative = as_array(anchor), as_array(positive), as_array(negative)
    _check_triplet(anchor, positive, negative)
    if anchor.ndim == 0:
        raise ValueError("anchor has no axes, and [..., D] was wanted")
    dtype = jnp.result_type(anchor, positive, negative)
    mask = as_mask(mask, broadcast_shape(anchor=anchor, positive=positive, negative=negative)[:-1])
    anchor, positive, negative = in_float32(*where_counted(mask, anchor, positive, negative, trailing=1))

    static = {"p": as_number("p", p), "eps": as_number("eps", eps)}
    to_positive, to_negative = distances(anchor, (positive, negative), **static)
    if swap:
        to_negative = jnp.minimum(to_negative, *distances(positive, (negative,), **static))
    return reduced(at_least(margin + to_positive - to_negative, 0), reduction, dtype, mask)


def triplet_margin_with_distance_loss(
    anchor: jax.Array,
    positive: jax.Array,
    negative: jax.Array,
    *,
    distance_function: Distance | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: Reduction = "mean",
    mask: jax.Array | None = None,
) -> jax.Array:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)) for any distance d.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.triplet_margin_with_distance_loss.html

    Args:
      anchor, positive, negative: with equally many axes, as the distance takes them.
      distance_function: of two arrays; None is the Euclidean distance over the last axis, 1e-6 added to each
        difference.
      margin: positive.
      swap: whether the negative may be compared with the positive, where that is nearer to it than the anchor.
      reduction: none, mean or sum.
      mask: True where a triplet counts: over leading axes of the inputs, and of a shape that broadcasts to the
        unreduced loss.

    Raises:
      ValueError: for another reduction, a margin that is not positive, or shapes that do not fit.
      TypeError: for a mask that is not boolean.
    """
    reduction = as_reduction(reduction)
    _check_margin(margin)
    anchor, positive, negative = as_array(anchor), as_array(positive), as_array(negative)
    _check_triplet(anchor, positive, negative)
    distance = euclidean if distance_function is None else distance_function
    if mask is not None:
        leading = jnp.ndim(mask)
        mask = as_mask(mask, broadcast_shape(anchor=anchor, positive=positive, negative=negative)[:leading])
        rest = anchor.ndim - leading
        anchor, positive, negative = where_counted(mask, anchor, positive, negative, trailing=rest)
    to_positive, to_negative = distance(anchor, positive), distance(anchor, negative)
    if swap:
        to_negative = jnp.minimum(to_negative, distance(positive, negative))
    loss = at_least(margin + to_positive - to_negative, 0)
    (wide,) = in_float32(loss)
    return reduced(wide, reduction, loss.dtype, as_mask(mask, loss.shape))


@partial(autocasts, name="pairwise_distance")
def euclidean(a: jax.Array, b: jax.Array) -> jax.Array:
    """|a - b + 1e-6| over the last axis: what `PairwiseDistance()` computes."""
    return norm(*in_float32(a - b + 1e-6), 2).astype(jnp.result_type(a, b))


def _check_margin(margin: float) -> None:
    if not margin > 0:
        raise ValueError(f"margin is {margin!r}; give a positive number")


def _check_triplet(anchor: jax.Array, positive: jax.Array, negative: jax.Array) -> None:
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ValueError(
            f"anchor has shape {anchor.shape}, positive {positive.shape} and negative {negative.shape}; give them "
            "equally many axes"
        )
    for name, array in (("anchor", anchor), ("positive", positive), ("negative", negative)):
        check_floating(name, array)
    broadcast_shape(anchor=anchor, positive=positive, negative=negative)


class CosineEmbeddingLoss(Loss):
    """1 - cos(input1, input2) where target is 1, and max(0, cos - margin) where it is -1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CosineEmbeddingLoss.html

    Args:
      margin: of the cosine, from -1 to 1.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.

    Raises:
      ValueError: for another reduction; called, where the shapes do not fit.

    Example:
      >>> CosineEmbeddingLoss()(jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]]), jnp.array([1]))
      Array(1., dtype=float32)
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
        return cosine_embedding_loss(input1, input2, target, self.margin, reduction=self.reduction, mask=mask)


class TripletMarginLoss(Loss):
    """max(0, margin + |anchor - positive| - |anchor - negative|), in the p-norm over the last axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TripletMarginLoss.html

    Args:
      margin: positive.
      p: of the norm.
      eps: that is added to each difference.
      swap: whether the negative may be compared with the positive, where that is nearer to it than the anchor.
      size_average, reduce: deprecated; see `reduction`.
      reduction: none, mean or sum.

    Raises:
      ValueError: for another reduction, or a margin that is not positive; called, where the shapes do not fit.

    Example:
      >>> round(float(TripletMarginLoss()(jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.array([[0.0, 0.75]]))), 4)
      0.25
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        _check_margin(margin)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def __call__(
        self, anchor: jax.Array, positive: jax.Array, negative: jax.Array, *, mask: jax.Array | None = None
    ) -> jax.Array:
        return triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
            mask=mask,
        )


class TripletMarginWithDistanceLoss(Loss):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)) for any distance d.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TripletMarginWithDistanceLoss.html

    Args:
      distance_function: of two arrays, a function or a module; None is the Euclidean distance over the last axis.
      margin: positive.
      swap: whether the negative may be compared with the positive, where that is nearer to it than the anchor.
      reduction: none, mean or sum.

    Raises:
      ValueError: for another reduction, or a margin that is not positive; called, where the shapes do not fit.

    Example:
      >>> loss = TripletMarginWithDistanceLoss(distance_function=lambda a, b: jnp.abs(a - b).sum(-1))
      >>> loss(jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.array([[0.0, 0.75]]))
      Array(0.25, dtype=float32)
    """

    def __init__(
        self,
        *,
        distance_function: Distance | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction=reduction)
        _check_margin(margin)
        self.distance_function = distance_function
        self.margin = margin
        self.swap = swap

    def __call__(
        self, anchor: jax.Array, positive: jax.Array, negative: jax.Array, *, mask: jax.Array | None = None
    ) -> jax.Array:
        return triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
            mask=mask,
        )
