"""Max pooling: the largest element of each window, over one, two or three axes."""

from __future__ import annotations

from typing import Any

import jax

from ..autocast import autocasts
from ..layer import Layer
from ..layout import DataFormat, as_layout
from .largest import largest_over, regular
from .span import Sizes, as_windows, check_ordered, check_pooled

Pooled = jax.Array | Any  # a pair, where the indices are asked for too


def max_pool_nd(
    spatial: int,
    input: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    return_indices: bool,
    data_format: str,
) -> Any:
    layout = as_layout(data_format, spatial)
    windows = as_windows(spatial, kernel_size, stride, padding, dilation)
    check_pooled(input, layout, spatial)
    check_ordered(input)
    if spatial == 3 and not return_indices:  # with indices it is another function, and has no rule
        input = _as_volumes(input)
    walks = [regular(span, input.ndim) for span in windows.spans(input, layout, ceil_mode=ceil_mode)]
    output, indices = largest_over(input, walks, positions=return_indices)
    return output if indices is None else (output, indices)


_as_volumes = autocasts(lambda input: input, name="max_pool3d")


def max_pool1d(
    input: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    data_format: DataFormat = "NLC",
) -> Pooled:
    """The largest element of each window of a sequence, `[B, L, C]` (the batch optional), as `MaxPool1d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_pool1d.html
    """
    return max_pool_nd(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, data_format)


def max_pool2d(
    input: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    data_format: DataFormat = "NHWC",
) -> Pooled:
    """The largest element of each window of an image, `[B, H, W, C]` (the batch optional), as `MaxPool2d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_pool2d.html
    """
    return max_pool_nd(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, data_format)


def max_pool3d(
    input: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    data_format: DataFormat = "NDHWC",
) -> Pooled:
    """The largest element of each window of a volume, `[B, D, H, W, C]` (the batch optional), as `MaxPool3d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_pool3d.html
    """
    return max_pool_nd(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, data_format)


def max_pool1d_with_indices(
    input: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
    *,
    data_format: DataFormat = "NLC",
) -> Pooled:
    """`max_pool1d` with its indices, whatever `return_indices` says."""
    return max_pool_nd(1, input, kernel_size, stride, padding, dilation, ceil_mode, True, data_format)


def max_pool2d_with_indices(
    input: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
    *,
    data_format: DataFormat = "NHWC",
) -> Pooled:
    """`max_pool2d` with its indices, whatever `return_indices` says."""
    return max_pool_nd(2, input, kernel_size, stride, padding, dilation, ceil_mode, True, data_format)


def max_pool3d_with_indices(
    input: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
    *,
    data_format: DataFormat = "NDHWC",
) -> Pooled:
    """`max_pool3d` with its indices, whatever `return_indices` says."""
    return max_pool_nd(3, input, kernel_size, stride, padding, dilation, ceil_mode, True, data_format)


class _MaxPool(Layer):
    _spatial: int

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        *,
        data_format: DataFormat = "channels_last",
    ):
        windows = as_windows(self._spatial, kernel_size, stride, padding, dilation)
        self.kernel_size, self.stride = windows.kernel_size, windows.stride
        self.padding, self.dilation = windows.padding, windows.dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode
        self.data_format = as_layout(data_format, self._spatial)

    def __call__(self, input: jax.Array) -> Pooled:
        windows = self.kernel_size, self.stride, self.padding, self.dilation
        return max_pool_nd(self._spatial, input, *windows, self.ceil_mode, self.return_indices, self.data_format)


class MaxPool1d(_MaxPool):
    """The largest element of each window; of several the first, in value, index and gradient, and NaN before all.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool1d.html

    Args:
      kernel_size: of a window: an integer.
      stride: between windows; None for `kernel_size`.
      padding: implicit minus infinity on both sides of each axis, at most half of `kernel_size`.
      dilation: between the elements of a window.
      return_indices: whether to return, beside the output, where each element stands among those of its channel, row by
        row: what `MaxUnpool1d` takes. int64 as in PyTorch where x64 is enabled, else int32.
      ceil_mode: whether a last window may hang over the end of the input. It may not start beyond it.
      data_format: `"NLC"` for `[B, L, C]`, or `"NCL"`; the batch axis is optional.

    Raises:
      ValueError: where an argument is out of range, or no window fits into `input`.
      TypeError: where `input` is boolean or complex.

    Example:
      >>> MaxPool1d(2)(jnp.ones((1, 8, 3))).shape
      (1, 4, 3)
    """

    _spatial = 1


class MaxPool2d(_MaxPool):
    """The largest element of each window; of several the first, in value, index and gradient, and NaN before all.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html

    Args:
      kernel_size: of a window: an integer, or (height, width).
      stride: between windows; None for `kernel_size`.
      padding: implicit minus infinity on both sides of each axis, at most half of `kernel_size`.
      dilation: between the elements of a window.
      return_indices: whether to return, beside the output, where each element stands among those of its channel, row by
        row: what `MaxUnpool2d` takes. int64 as in PyTorch where x64 is enabled, else int32.
      ceil_mode: whether a last window may hang over the end of the input. It may not start beyond it.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    Raises:
      ValueError: where an argument is out of range, or no window fits into `input`.
      TypeError: where `input` is boolean or complex.

    Example:
      >>> MaxPool2d(2)(jnp.ones((1, 8, 8, 3))).shape
      (1, 4, 4, 3)
    """

    _spatial = 2


class MaxPool3d(_MaxPool):
    """The largest element of each window; of several the first, in value, index and gradient, and NaN before all.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool3d.html

    Args:
      kernel_size: of a window: an integer, or (depth, height, width).
      stride: between windows; None for `kernel_size`.
      padding: implicit minus infinity on both sides of each axis, at most half of `kernel_size`.
      dilation: between the elements of a window.
      return_indices: whether to return, beside the output, where each element stands among those of its channel, row by
        row: what `MaxUnpool3d` takes. int64 as in PyTorch where x64 is enabled, else int32.
      ceil_mode: whether a last window may hang over the end of the input. It may not start beyond it.
      data_format: `"NDHWC"` for `[B, D, H, W, C]`, or `"NCDHW"`; the batch axis is optional.

    Raises:
      ValueError: where an argument is out of range, or no window fits into `input`.
      TypeError: where `input` is boolean or complex.

    Example:
      >>> MaxPool3d(2)(jnp.ones((1, 8, 8, 8, 3))).shape
      (1, 4, 4, 4, 3)
    """

    _spatial = 3
