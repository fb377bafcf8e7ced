"""Adaptive max pooling: the largest elements of as many windows as asked for."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..arguments import check_floating
from ..autocast import autocasts
from ..layer import Layer
from ..layout import DataFormat, as_layout
from .bins import OutputSize, bins_of, shape_if_empty
from .largest import largest_over
from .span import as_output_size, check_pooled


def _adaptive_max_pool(
    spatial: int, input: jax.Array, output_size: OutputSize, return_indices: bool, data_format: str
) -> jax.Array | tuple[jax.Array, jax.Array]:
    layout = as_layout(data_format, spatial)
    sizes = as_output_size(output_size, spatial)
    check_pooled(input, layout, spatial, channels="where batched")
    check_floating("input", input)
    if spatial == 3:
        input = _as_volumes(input)
    bins = bins_of(input, layout, sizes)
    if empty := shape_if_empty(input, bins):
        output, indices = jnp.zeros(empty, input.dtype), jnp.zeros(empty, int)
        return (output, indices) if return_indices else output
    output, places = largest_over(input, [one.walk(input.ndim) for one in bins], positions=return_indices)
    return output if places is None else (output, places)


_as_volumes = autocasts(lambda input: input, name="adaptive_max_pool3d")


def adaptive_max_pool1d(
    input: jax.Array,
    output_size: OutputSize,
    return_indices: bool = False,
    *,
    data_format: DataFormat = "NLC",
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Largest elements of as many windows as asked for, as `AdaptiveMaxPool1d` has them.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_max_pool1d.html
    """
    return _adaptive_max_pool(1, input, output_size, return_indices, data_format)


def adaptive_max_pool1d_with_indices(
    input: jax.Array,
    output_size: OutputSize,
    return_indices: bool = True,
    *,
    data_format: DataFormat = "NLC",
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """`adaptive_max_pool1d` with its indices, whatever `return_indices` says."""
    return _adaptive_max_pool(1, input, output_size, True, data_format)


def adaptive_max_pool2d(
    input: jax.Array,
    output_size: OutputSize,
    return_indices: bool = False,
    *,
    data_format: DataFormat = "NHWC",
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Largest elements of as many windows as asked for, as `AdaptiveMaxPool2d` has them.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_max_pool2d.html
    """
    return _adaptive_max_pool(2, input, output_size, return_indices, data_format)


def adaptive_max_pool2d_with_indices(
    input: jax.Array,
    output_size: OutputSize,
    return_indices: bool = True,
    *,
    data_format: DataFormat = "NHWC",
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """`adaptive_max_pool2d` with its indices, whatever `return_indices` says."""
    return _adaptive_max_pool(2, input, output_size, True, data_format)


def adaptive_max_pool3d(
    input: jax.Array,
    output_size: OutputSize,
    return_indices: bool = False,
    *,
    data_format: DataFormat = "NDHWC",
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Largest elements of as many windows as asked for, as `AdaptiveMaxPool3d` has them.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.adaptive_max_pool3d.html
    """
    return _adaptive_max_pool(3, input, output_size, return_indices, data_format)


def adaptive_max_pool3d_with_indices(
    input: jax.Array,
    output_size: OutputSize,
    return_indices: bool = True,
    *,
    data_format: DataFormat = "NDHWC",
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """`adaptive_max_pool3d` with its indices, whatever `return_indices` says."""
    return _adaptive_max_pool(3, input, output_size, True, data_format)


class _AdaptiveMaxPool(Layer):
    _spatial: int

    def __init__(
        self, output_size: OutputSize, return_indices: bool = False, *, data_format: DataFormat = "channels_last"
    ):
        self.output_size = as_output_size(output_size, self._spatial)
        self.return_indices = return_indices
        self.data_format = as_layout(data_format, self._spatial)

    def __call__(self, input: jax.Array) -> jax.Array | tuple[jax.Array, jax.Array]:
        return _adaptive_max_pool(self._spatial, input, self.output_size, self.return_indices, self.data_format)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Largest elements of as many windows along each axis as asked for.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveMaxPool1d.html

    Args:
      output_size: an integer; None for that of the input.
      return_indices: whether to return, beside the output, where each element stands among those of its channel, row by
        row.
      data_format: `"NLC"` for `[B, L, C]`, or `"NCL"`; the batch axis is optional.

    Raises:
      ValueError: where a size is negative, or `input` has other axes.
      TypeError: where `input` is not floating.

    Example:
      >>> AdaptiveMaxPool1d(5)(jnp.ones((1, 8, 3))).shape
      (1, 5, 3)
    """

    _spatial = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Largest elements of as many windows along each axis as asked for.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveMaxPool2d.html

    Args:
      output_size: an integer, or (height, width); None for that of the input.
      return_indices: whether to return, beside the output, where each element stands among those of its channel, row by
        row.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    Raises:
      ValueError: where a size is negative, or `input` has other axes.
      TypeError: where `input` is not floating.

    Example:
      >>> AdaptiveMaxPool2d(5)(jnp.ones((1, 8, 8, 3))).shape
      (1, 5, 5, 3)
    """

    _spatial = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Largest elements of as many windows along each axis as asked for.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveMaxPool3d.html

    Args:
      output_size: an integer, or (depth, height, width); None for that of the input.
      return_indices: whether to return, beside the output, where each element stands among those of its channel, row by
        row.
      data_format: `"NDHWC"` for `[B, D, H, W, C]`, or `"NCDHW"`; the batch axis is optional.

    Raises:
      ValueError: where a size is negative, or `input` has other axes.
      TypeError: where `input` is not floating.

    Example:
      >>> AdaptiveMaxPool3d(5)(jnp.ones((1, 8, 8, 8, 3))).shape
      (1, 5, 5, 5, 3)
    """

    _spatial = 3
