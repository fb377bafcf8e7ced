"""`masked_moments`: the statistics of batch and layer norm over what is no padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.export
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..arguments import as_axes, as_broadcast_mask, as_inexact, as_ordered
from .masked import corrected, mean_and_count, sum_of_squares, wide


class Moments(NamedTuple):
    """What `masked_moments` gives; all of one shape, floating ones at least float32.

    Attributes:
      mean: 0 where nothing is valid.
      var: biased, by which a batch is normalised; 0 where nothing is valid.
      unbiased_var: by which `running_var` moves in PyTorch; NaN where fewer than two entries are valid.
      entries: int32, how many are valid.
    """

    mean: jax.Array
    var: jax.Array
    unbiased_var: jax.Array
    entries: jax.Array


def masked_moments(
    x: ArrayLike, mask: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False
) -> Moments:
    """Mean, biased and unbiased variance, and number of the entries that the mask picks, in two passes.

    For batch norm of a ragged batch `[B, T, C]` with a mask `[B, T]` call
    `masked_moments(x, mask[..., None], axis=(0, 1))`, which gives the statistics of `torch.nn.BatchNorm1d` on the
    sequences laid end to end, `[sum of lengths, C]`. What stands in the padding reaches no statistic and no gradient,
    and normalising a group of nothing but padding stays finite: its mean and variance are 0. (`nnx.BatchNorm` and
    `nnx.LayerNorm` take `mask=` themselves, where their biased running variance will do.)

    Args:
      x: `[...]`, floating.
      mask: bool, broadcasts to `x`.
      axis: one, several, or `None` for all.
      keepdims: whether the reduced axes stay, of size 1.

    Returns:
      `Moments`, in float32 for half precision, which PyTorch's norms keep their statistics in too.

    Raises:
      ValueError: where mask or axis do not fit, or `x` holds integers.

    Example:
      >>> import jax.numpy as jnp
      >>> x, mask = jnp.array([[1.0, 3.0, 99.0], [5.0, 99.0, 99.0]]), jnp.array([[1, 1, 0], [1, 0, 0]], bool)
      >>> mean, var, unbiased_var, entries = masked_moments(x, mask)
      >>> mean.item(), unbiased_var.item(), entries.item()
      (3.0, 4.0, 3)
    """
    x = wide(as_ordered(as_inexact(x, "a norm"), "a norm"))
    mask, axes = as_broadcast_mask(mask, x.shape), as_axes(axis, x.ndim)
    mean, count = mean_and_count(x, mask, axes)
    squares = sum_of_squares(x, mask, mean, axes)
    biased = squares / jnp.maximum(count, 1).astype(x.dtype)
    moments = Moments(mean, biased, corrected(squares, count, 1), count)
    return moments if keepdims else jax.tree.map(lambda moment: jnp.squeeze(moment, axes), moments)


jax.export.register_namedtuple_serialization(Moments, serialized_name="graphmode.Moments")
