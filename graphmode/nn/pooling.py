"""`torch.nn.MaxPool2d` and `torch.nn.AdaptiveAvgPool2d`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from .arguments import DataFormat, as_data_format, as_pair, check_image, spatial
from .windows import taps_of


class MaxPool2d(nnx.Module):
    """The largest value of each window.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html

    Args:
      kernel_size: height and width of a window.
      stride: between windows; None for `kernel_size`.
      padding: implicit minus infinity on both sides of each axis, at most half a window.
      dilation: between the elements of a window.
      ceil_mode: whether a last window may hang over the end of the image. It may not start beyond it.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    Where several elements are the largest, the gradient goes to the first, as in PyTorch.

    Raises:
      ValueError: where an argument is out of range, or no window fits into `x`.
    """

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        *,
        data_format: DataFormat = "NHWC",
    ):
        self.kernel_size = as_pair("kernel_size", kernel_size, least=1)
        self.stride = self.kernel_size if stride is None else as_pair("stride", stride, least=1)
        self.padding = as_pair("padding", padding, least=0)
        self.dilation = as_pair("dilation", dilation, least=1)
        self.ceil_mode = ceil_mode
        self.data_format = as_data_format(data_format)
        extents = [d * (k - 1) + 1 for k, d in zip(self.kernel_size, self.dilation, strict=True)]
        if any(2 * p > extent for p, extent in zip(self.padding, extents, strict=True)):
            raise ValueError(f"padding is {padding!r}; give at most half of the window, which spans {tuple(extents)}")

    def __call__(self, x: jax.Array) -> jax.Array:
        check_image(x, self.data_format)
        y = self._pool(x if x.ndim == 4 else x[None])
        return y if x.ndim == 4 else y[0]

    def _pool(self, x: jax.Array) -> jax.Array:
        paddings = [self._axis(*row) for row in self._rows(x)]
        lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min

        def spread(axes: Sequence[Any], other: Any) -> tuple[Any, ...]:
            height, width = axes
            return (other, height, width, other) if self.data_format == "NHWC" else (other, other, height, width)

        def shifted(x: jax.Array) -> jax.Array:
            return self._largest_tap(jnp.pad(x, spread(paddings, (0, 0)), constant_values=lowest))

        def reduced(x: jax.Array) -> jax.Array:
            window, strides = (
                spread(self.kernel_size, 1),
                spread(self.stride, 1),
            )
            return lax.reduce_window(x, np.array(lowest, x.dtype), lax.max, window, strides, spread(paddings, (0, 0)))

        if self.dilation != (1, 1):  # for which XLA has no derivative
            return shifted(x)
        # XLA's CPU backend takes 42 ms for the gradient at 1x112x112x64, and this 7 ms.
        return lax.platform_dependent(x, cpu=shifted, default=reduced)

    def _largest_tap(self, x: jax.Array) -> jax.Array:
        """Of the padded image; a later element wins only where it is larger, or NaN."""
        if self.data_format == "NCHW":
            x = jnp.moveaxis(x, 1, -1)
        largest, *others = taps_of(lax.optimization_barrier(x), self.kernel_size, self.stride, self.dilation)
        for tap in others:
            largest = jnp.where((tap > largest) | (tap != tap), tap, largest)
        return jnp.moveaxis(largest, -1, 1) if self.data_format == "NCHW" else largest

    def _rows(self, x: jax.Array):
        size = spatial(x, self.data_format)
        return zip(size, self.kernel_size, self.stride, self.padding, self.dilation, strict=True)

    def _axis(self, size: int, kernel: int, stride: int, padding: int, dilation: int) -> tuple[int, int]:
        """Padding before and after one axis, the latter long enough for the last window of `ceil_mode`."""
        room = size + 2 * padding - dilation * (kernel - 1) - 1
        if room < 0:
            raise ValueError(
                f"x is {size} long on an axis with kernel_size {kernel}, dilation {dilation} and padding {padding}: "
                "no window fits; give a larger image or a smaller window"
            )
        steps = -(-room // stride) if self.ceil_mode else room // stride
        if self.ceil_mode and steps * stride >= size + padding:
            steps -= 1
        return padding, padding + max(0, steps * stride - room)


class AdaptiveAvgPool2d(nnx.Module):
    """Averages over as many bins a side as asked; `(1, 1)` is the mean of the image.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html

    Args:
      output_size: height and width of the result; None for that of the input.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    Raises:
      ValueError: where a size is below 1, or `x` is no image.
    """

    def __init__(self, output_size: int | Sequence[int | None] | None, *, data_format: DataFormat = "NHWC"):
        pair = (output_size, output_size) if output_size is None or isinstance(output_size, int) else output_size
        self.output_size = tuple(pair)
        if len(self.output_size) != 2 or not all(size is None or size >= 1 for size in self.output_size):
            raise ValueError(f"output_size is {output_size!r}; give 1 or more, None, or a pair of them (height, width)")
        self.data_format = as_data_format(data_format)

    def __call__(self, x: jax.Array) -> jax.Array:
        check_image(x, self.data_format)
        first = x.ndim - 3 if self.data_format == "NHWC" else x.ndim - 2
        if self.output_size == (1, 1):
            return jnp.mean(x, (first, first + 1), keepdims=True)
        for axis, size in zip((first, first + 1), self.output_size, strict=True):
            if size is not None and size != x.shape[axis]:
                x = jnp.moveaxis(jnp.tensordot(_bins(x.shape[axis], size, x.dtype), x, (1, axis)), 0, axis)
        return x


def _bins(size: int, bins: int, dtype: jnp.dtype) -> np.ndarray:
    """`[bins, size]`: row `i` averages over `floor(i * size / bins) .. ceil((i + 1) * size / bins)`."""
    starts = np.arange(bins) * size // bins
    ends = -(-(np.arange(bins) + 1) * size // bins)
    position = np.arange(size)
    inside = (position >= starts[:, None]) & (position < ends[:, None])
    return (inside / (ends - starts)[:, None]).astype(dtype)
