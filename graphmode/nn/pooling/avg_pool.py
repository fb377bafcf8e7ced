"""Average pooling: the mean of each window, over one, two or three axes."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..autocast import autocasts
from ..compiled_once import compiled_once
from ..layer import Layer
from ..layout import DataFormat, as_layout
from .span import Sizes, Span, as_windows, check_pooled

UNROLLED = 32  # elements of a window that are added one by one; XLA's own loop takes ten times as long on a CPU


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
@compiled_once("span")
def sum_along(x: jax.Array, span: Span) -> jax.Array:
    """The sum of each window along one axis."""
    if _takes_all(span) or span.kernel > UNROLLED:
        return _sum_of_padded(x, span)
    return span.over(x, 0, lambda _, taps: functools.reduce(lax.add, taps.values()))


@sum_along.defjvp
def _sum_along_jvp(span: Span, primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return sum_along(*primals, span), _sum_of_padded(*tangents, span)  # of which XLA runs the transpose faster


@compiled_once("span")
def _sum_of_padded(x: jax.Array, span: Span) -> jax.Array:
    if _takes_all(span):
        return x.sum(span.axis, keepdims=True)
    padded = span.padded(x, 0)
    if span.kernel <= UNROLLED:
        return functools.reduce(lax.add, span.taps(padded))
    shape, strides = ([n if i == span.axis else 1 for i in range(x.ndim)] for n in (span.kernel, span.stride))
    sums = lax.reduce_window(padded, np.zeros((), x.dtype), lax.add, shape, strides, "VALID")
    return lax.slice_in_dim(sums, 0, span.count, axis=span.axis)


def _takes_all(span: Span) -> bool:
    return span.count == 1 and span.kernel == span.size and not span.padding and span.dilation == 1


def as_accumulated(x: jax.Array) -> jax.Array:
    """Sums of half precision are taken in float32."""
    return x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x


def check_averaged(input: jax.Array) -> None:
    """Raises `TypeError` unless PyTorch has an average of this dtype: floating, or int64 (int32 without x64)."""
    if not jnp.issubdtype(input.dtype, jnp.floating) and input.dtype not in (jnp.int32, jnp.int64):
        raise TypeError(f"input is {input.dtype}, and a floating dtype, int32 or int64 was wanted; cast it")


def as_divisor(divisor_override: int | None) -> int | None:
    if divisor_override == 0:
        raise ValueError("divisor_override is 0; give another integer, or None for the size of each window")
    return divisor_override


def _counts(spans: Sequence[Span], ndim: int, *, count_include_pad: bool) -> np.ndarray:
    """How many elements each window has, as an array that broadcasts over batch and channels."""
    counts = np.ones((), int)
    for span in spans:
        before, after = (-span.padding, span.size + span.padding) if count_include_pad else (0, span.size)
        ends = np.minimum(span.starts + span.kernel, after)
        counts = counts * span.along(ends - np.maximum(span.starts, before), ndim)
    return counts


def avg_pool_nd(
    spatial: int,
    input: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    data_format: str,
) -> jax.Array:
    layout = as_layout(data_format, spatial)
    windows = as_windows(spatial, kernel_size, stride, padding)
    divisor = as_divisor(divisor_override)
    check_pooled(input, layout, spatial)
    check_averaged(input)
    spans = windows.spans(input, layout, ceil_mode=ceil_mode)
    if spatial == 3 and any(span.size < span.kernel for span in spans):
        raise ValueError(
            f"input has shape {tuple(input.shape)}, and kernel_size is {windows.kernel_size}: a window is larger than "
            "the input without its padding, which PyTorch refuses for volumes; give a smaller one"
        )
    total = as_accumulated(input)
    for span in reversed(spans):
        total = sum_along(total, span)
    by = np.asarray(_counts(spans, input.ndim, count_include_pad=count_include_pad) if divisor is None else divisor)
    by = by.flat[0] if (by == by.flat[0]).all() else by
    # Of integers the quotient is cut off, as in PyTorch.
    return lax.div(total, jnp.broadcast_to(jnp.asarray(by, total.dtype), total.shape)).astype(input.dtype)


def avg_pool1d(
    input: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    data_format: DataFormat = "NLC",
) -> jax.Array:
    """The mean of each window of a sequence, `[B, L, C]` (the batch optional), as `AvgPool1d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.avg_pool1d.html
    """
    return avg_pool_nd(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None, data_format)


def avg_pool2d(
    input: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    data_format: DataFormat = "NHWC",
) -> jax.Array:
    """The mean of each window of an image, `[B, H, W, C]` (the batch optional), as `AvgPool2d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.avg_pool2d.html
    """
    return avg_pool_nd(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, data_format
    )


@autocasts
def avg_pool3d(
    input: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    data_format: DataFormat = "NDHWC",
) -> jax.Array:
    """The mean of each window of a volume, `[B, D, H, W, C]` (the batch optional), as `AvgPool3d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.avg_pool3d.html
    """
    return avg_pool_nd(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, data_format
    )


class AvgPool1d(Layer):
    """The mean of each window.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AvgPool1d.html

    Args:
      kernel_size: of a window: an integer.
      stride: between windows; None for `kernel_size`.
      padding: implicit zeros on both sides of each axis, at most half of `kernel_size`.
      ceil_mode: whether a last window may hang over the end of the input. It may not start beyond it.
      count_include_pad: whether the zeros of the padding count in the mean.
      data_format: `"NLC"` for `[B, L, C]`, or `"NCL"`; the batch axis is optional.

    Raises:
      ValueError: where an argument is out of range, or no window fits into `input`.
      TypeError: where `input` is neither floating nor int32 or int64, whose means are cut off towards 0.

    Example:
      >>> AvgPool1d(2)(jnp.ones((1, 8, 3))).shape
      (1, 4, 3)
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        *,
        data_format: DataFormat = "NLC",
    ):
        windows = as_windows(1, kernel_size, stride, padding)
        self.kernel_size, self.stride, self.padding = windows.kernel_size, windows.stride, windows.padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.data_format = as_layout(data_format, 1)

    def __call__(self, input: jax.Array) -> jax.Array:
        return avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            data_format=self.data_format,
        )


class AvgPool2d(Layer):
    """The mean of each window.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AvgPool2d.html

    Args:
      kernel_size: of a window: an integer, or (height, width).
      stride: between windows; None for `kernel_size`.
      padding: implicit zeros on both sides of each axis, at most half of `kernel_size`.
      ceil_mode: whether a last window may hang over the end of the input. It may not start beyond it.
      count_include_pad: whether the zeros of the padding count in the mean.
      divisor_override: what the sums are divided by, in place of the sizes of the windows; not 0.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    Raises:
      ValueError: where an argument is out of range, or no window fits into `input`.
      TypeError: where `input` is neither floating nor int32 or int64, whose means are cut off towards 0.

    Example:
      >>> AvgPool2d(2)(jnp.ones((1, 8, 8, 3))).shape
      (1, 4, 4, 3)
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        data_format: DataFormat = "NHWC",
    ):
        windows = as_windows(2, kernel_size, stride, padding)
        self.kernel_size, self.stride, self.padding = windows.kernel_size, windows.stride, windows.padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = as_divisor(divisor_override)
        self.data_format = as_layout(data_format, 2)

    def __call__(self, input: jax.Array) -> jax.Array:
        return avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            divisor_override=self.divisor_override,
            data_format=self.data_format,
        )


class AvgPool3d(Layer):
    """The mean of each window.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AvgPool3d.html

    Args:
      kernel_size: of a window: an integer, or (depth, height, width).
      stride: between windows; None for `kernel_size`.
      padding: implicit zeros on both sides of each axis, at most half of `kernel_size`.
      ceil_mode: whether a last window may hang over the end of the input. It may not start beyond it.
      count_include_pad: whether the zeros of the padding count in the mean.
      divisor_override: what the sums are divided by, in place of the sizes of the windows; not 0.
      data_format: `"NDHWC"` for `[B, D, H, W, C]`, or `"NCDHW"`; the batch axis is optional.

    Raises:
      ValueError: where an argument is out of range, or no window fits into `input`.
      TypeError: where `input` is neither floating nor int32 or int64, whose means are cut off towards 0.

    Example:
      >>> AvgPool3d(2)(jnp.ones((1, 8, 8, 8, 3))).shape
      (1, 4, 4, 4, 3)
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        data_format: DataFormat = "NDHWC",
    ):
        windows = as_windows(3, kernel_size, stride, padding)
        self.kernel_size, self.stride, self.padding = windows.kernel_size, windows.stride, windows.padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = as_divisor(divisor_override)
        self.data_format = as_layout(data_format, 3)

    def __call__(self, input: jax.Array) -> jax.Array:
        return avg_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            divisor_override=self.divisor_override,
            data_format=self.data_format,
        )
