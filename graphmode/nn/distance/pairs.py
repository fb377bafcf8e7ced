"""Distances between vectors: pair by pair, all pairs of one set, all pairs of two."""

from __future__ import annotations

import functools
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..arguments import as_word, check_floating
from ..autocast import autocasts
from ..layer import Layer
from .norms import vector_norm
from .similarity import _broadcast

ComputeMode = Literal["use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"]
COMPUTE_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)
BY_PRODUCT_ABOVE = 25  # vectors on either side


@autocasts
def pairwise_distance(
    x1: jax.Array, x2: jax.Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> jax.Array:
    """The p-norm of `x1 - x2 + eps` over the last axis: `eps` is added to each entry.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pairwise_distance.html

    Args:
      x1, x2: `[..., D]`, floating; their shapes broadcast.
      p: of the norm.
      eps: that is added to each difference.
      keepdim: whether the last axis stays, with length 1.

    Returns:
      `[...]`, or `[..., 1]`.

    Raises:
      ValueError: where the shapes do not broadcast, or both are numbers.
      TypeError: where the wider dtype is no floating one.
    """
    dtype = jnp.promote_types(x1.dtype, x2.dtype)
    x1, x2 = (x.astype(dtype) for x in _broadcast(x1, x2))
    check_floating("x1", x1)
    if x1.ndim == 0:
        raise ValueError("x1 and x2 have no axes, and vectors [..., D] were wanted")
    return vector_norm(x1 - x2 + eps, p, (-1,), keepdim=keepdim)


@autocasts
def pdist(input: jax.Array, p: float = 2.0) -> jax.Array:
    """The p-norm distances of all pairs of rows, in the order of the upper triangle.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pdist.html

    Args:
      input: `[N, D]`, floating.
      p: of the norm, at least 0.

    Returns:
      `[N * (N - 1) / 2]`.

    Raises:
      ValueError: where `input` has not 2 axes, or `p` is negative.
      TypeError: where `input` is not floating.
    """
    check_floating("input", input)
    _check_p(p)
    if input.ndim != 2:
        raise ValueError(f"input has shape {tuple(input.shape)}, and [N, D] was wanted")
    first, second = np.triu_indices(len(input), 1)
    return _distance(input[first], input[second], p)


@autocasts
def cdist(
    x1: jax.Array,
    x2: jax.Array,
    p: float = 2.0,
    compute_mode: ComputeMode = "use_mm_for_euclid_dist_if_necessary",
    *,
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """The p-norm distances of all pairs of a row of `x1` and a row of `x2`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.cdist.html

    Args:
      x1: `[..., P, D]`, floating.
      x2: `[..., R, D]`; the axes before the last two broadcast.
      p: of the norm, at least 0.
      compute_mode: for p = 2, whether the distances come of one matrix product, which is quick and loses the digits of
        small distances: always, never, or where P or R is above 25.
      precision: of that product; `"highest"` where distances are small beside the vectors.

    Returns:
      `[..., P, R]`.

    Raises:
      ValueError: where the shapes do not fit, `p` is negative, or there is no such mode.
      TypeError: where the dtypes are not floating.
    """
    as_word("compute_mode", compute_mode, COMPUTE_MODES)
    _check_p(p)
    dtype = jnp.promote_types(x1.dtype, x2.dtype)
    x1, x2 = x1.astype(dtype), x2.astype(dtype)
    check_floating("x1", x1)
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ValueError(
            f"x1 has shape {tuple(x1.shape)} and x2 {tuple(x2.shape)}, and [..., P, D] and [..., R, D] were wanted"
        )
    try:
        jnp.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    except ValueError:
        raise ValueError(
            f"x1 has shape {tuple(x1.shape)} and x2 {tuple(x2.shape)}; the axes before the last two do not broadcast"
        ) from None
    large = max(x1.shape[-2], x2.shape[-2]) > BY_PRODUCT_ABOVE
    if p == 2 and (compute_mode == COMPUTE_MODES[1] or (compute_mode == COMPUTE_MODES[0] and large)):
        return _by_product(x1, x2, precision)
    return _distance(x1[..., :, None, :], x2[..., None, :, :], p)


class PairwiseDistance(Layer):
    """The p-norm of `x1 - x2 + eps` over the last axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.PairwiseDistance.html

    Args:
      p: of the norm.
      eps: that is added to each difference.
      keepdim: whether the last axis stays, with length 1.

    Example:
      >>> PairwiseDistance()(jnp.ones((5, 3)), jnp.zeros((5, 3))).shape
      (5,)
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def __call__(self, x1: jax.Array, x2: jax.Array) -> jax.Array:
        return pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


def _distance(first: jax.Array, second: jax.Array, p: float) -> jax.Array:
    """Entries that tie for the largest difference each take the whole derivative: unlike those of a norm."""
    difference = first - second
    if difference.shape[-1] == 0:
        return jnp.zeros(difference.shape[:-1], difference.dtype)
    distance = vector_norm(difference, p, (-1,), split_ties=False)
    if p == 0:  # a norm counts NaN as any other entry that is not 0
        distance = jnp.where(jnp.isnan(difference).any(-1), jnp.nan, distance)
    return distance


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _by_product(x1: jax.Array, x2: jax.Array, precision: jax.lax.PrecisionLike) -> jax.Array:
    """`sqrt(|a|^2 + |b|^2 - 2 a b)` as one product, `[-2 a, |a|^2, 1] [b, 1, |b|^2]`, as PyTorch takes it."""
    one, two = (jnp.ones_like(x[..., :1]) for x in (x1, x2))
    left = jnp.concatenate([-2 * x1, jnp.sum(x1 * x1, -1, keepdims=True), one], -1)
    right = jnp.concatenate([x2, two, jnp.sum(x2 * x2, -1, keepdims=True)], -1)
    return jnp.sqrt(jnp.maximum(jnp.matmul(left, jnp.swapaxes(right, -1, -2), precision=precision), 0))


@_by_product.defjvp
def _by_product_jvp(precision, primals, tangents):
    (x1, x2), (t1, t2) = primals, tangents
    distance = _by_product(x1, x2, precision)
    inverse = jnp.where(distance == 0, 0, 1 / jnp.where(distance == 0, 1, distance))
    product = functools.partial(jnp.matmul, precision=precision)
    moved = jnp.sum(x1 * t1, -1)[..., :, None] + jnp.sum(x2 * t2, -1)[..., None, :]
    crossed = product(t1, jnp.swapaxes(x2, -1, -2)) + product(x1, jnp.swapaxes(t2, -1, -2))
    return distance, inverse * (moved - crossed)


def _check_p(p: float) -> None:
    if not p >= 0:
        raise ValueError(f"p is {p!r}; give 0 or more")
