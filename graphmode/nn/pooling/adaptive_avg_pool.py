"""Adaptive average pooling: the means of as many windows as asked for."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from ..arguments import check_floating
from ..autocast import autocasts
from ..folded_sum import sum_over_positions
from ..layer import Layer
from ..layout import DataFormat, as_layout
from .avg_pool import as_accumulated
from .bins import OutputSize, bins_of, shape_if_empty
from .span import as_output_size, check_pooled


def _adaptive_avg_pool(spatial: int, input: jax.Array, output_size: OutputSize, data_format: str) -> jax.Array:
    layout = as_layout(data_format, spatial)
    sizes = as_output_size(output_size, spatial)
    check_pooled(input, layout, spatial, channels="may be empty" if spatial < 3 else "where batched")
    check_floating("input", input)
    if spatial == 3:
        input = _as_volumes(input)
    bins = bins_of(input, layout, sizes)
    if empty := shape_if_empty(input, bins):
        return jnp.zeros(empty, input.dtype)
    total, lengths = as_accumulated(input), np.ones((), int)
    if all(one.count == 1 for one in bins):
        # As one axis: XLA's CPU backend takes half the time of one axis after the other.
        axes = [one.axis for one in bins]
        lead, positions, rest = input.shape[: axes[0]], math.prod(one.size for one in bins), input.shape[axes[-1] + 1 :]
        flat = total.reshape(math.prod(lead), positions, math.prod(rest))
        mean = sum_over_positions(flat).reshape(*lead, *rest) / positions
        return jnp.expand_dims(mean, axes).astype(input.dtype)
    for one in bins:
        if one.count != one.size:
            total = one.sums(total)
            lengths = lengths * one.laid_out.along(one.lengths, input.ndim)
    if (lengths == lengths.flat[0]).all():
        lengths = lengths.flat[0]
    return (total / jnp.asarray(lengths, total.dtype)).astype(input.dtype)


_as_volumes = autocasts(lambda input: input, name="adaptive_avg_pool3d")


def adaptive_avg_pool1d(input: jax.Array, output_size: OutputSize, *, data_format: DataFormat = "NLC") -> jax.Array:
    """Averages of as many windows as asked for, as `AdaptiveAvgPool1d` has them.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_avg_pool1d.html
    """
    return _adaptive_avg_pool(1, input, output_size, data_format)


def adaptive_avg_pool2d(input: jax.Array, output_size: OutputSize, *, data_format: DataFormat = "NHWC") -> jax.Array:
    """Averages of as many windows as asked for, as `AdaptiveAvgPool2d` has them.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_avg_pool2d.html
    """
    return _adaptive_avg_pool(2, input, output_size, data_format)


def adaptive_avg_pool3d(input: jax.Array, output_size: OutputSize, *, data_format: DataFormat = "NDHWC") -> jax.Array:
    """Averages of as many windows as asked for, as `AdaptiveAvgPool3d` has them.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_avg_pool3d.html
    """
    return _adaptive_avg_pool(3, input, output_size, data_format)


class _AdaptiveAvgPool(Layer):
    _spatial: int

    def __init__(self, output_size: OutputSize, *, data_format: DataFormat = "channels_last"):
        self.output_size = as_output_size(output_size, self._spatial)
        self.data_format = as_layout(data_format, self._spatial)

    def __call__(self, input: jax.Array) -> jax.Array:
        return _adaptive_avg_pool(self._spatial, input, self.output_size, self.data_format)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Averages over as many windows along each axis as asked for; 1 is the mean of all.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool1d.html

    Args:
      output_size: an integer; None for that of the input.
      data_format: `"NLC"` for `[B, L, C]`, or `"NCL"`; the batch axis is optional.

    Raises:
      ValueError: where a size is negative, or `input` has other axes.
      TypeError: where `input` is not floating.

    Example:
      >>> AdaptiveAvgPool1d(5)(jnp.ones((1, 8, 3))).shape
      (1, 5, 3)
    """

    _spatial = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Averages over as many windows along each axis as asked for; 1 is the mean of all.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html

    Args:
      output_size: an integer, or (height, width); None for that of the input.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    Raises:
      ValueError: where a size is negative, or `input` has other axes.
      TypeError: where `input` is not floating.

    Example:
      >>> AdaptiveAvgPool2d(5)(jnp.ones((1, 8, 8, 3))).shape
      (1, 5, 5, 3)
    """

    _spatial = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Averages over as many windows along each axis as asked for; 1 is the mean of all.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool3d.html

    Args:
      output_size: an integer, or (depth, height, width); None for that of the input.
      data_format: `"NDHWC"` for `[B, D, H, W, C]`, or `"NCDHW"`; the batch axis is optional.

    Raises:
      ValueError: where a size is negative, or `input` has other axes.
      TypeError: where `input` is not floating.

    Example:
      >>> AdaptiveAvgPool3d(5)(jnp.ones((1, 8, 8, 8, 3))).shape
      (1, 5, 5, 5, 3)
    """

    _spatial = 3
