"""Batch norm of ragged batches: the statistics are those of what is no padding."""

from __future__ import annotations

from typing import NamedTuple

import jax
from jax import lax

from graphmode.ops import masked_moments


class Standardized(NamedTuple):
    """What `standardize_valid` gives; the statistics with their axes kept.

    Attributes:
      output: in `x`'s shape; what stands in the padding is normalised like the rest.
      mean: of the valid entries.
      unbiased_var: NaN where fewer than two are valid.
    """

    output: jax.Array
    mean: jax.Array
    unbiased_var: jax.Array


def standardize_valid(
    x: jax.Array,
    mask: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    axes: tuple[int, ...],
    eps: float,
) -> Standardized:
    """`(x - mean) / sqrt(variance + eps) * weight + bias`, mean and variance over the entries that the mask picks.

    Args:
      x: float32 or float64.
      mask: bool, broadcasts to `x`.
      weight, bias: of `x`'s rank, of length 1 along `axes`; or None.
      axes: of one group.
      eps: added to the variance.
    """
    moments = masked_moments(x, mask, axes, keepdims=True)
    rate = lax.rsqrt(moments.var + eps)
    output = (x - moments.mean) * (rate if weight is None else rate * weight)
    return Standardized(output if bias is None else output + bias, moments.mean, moments.unbiased_var)
