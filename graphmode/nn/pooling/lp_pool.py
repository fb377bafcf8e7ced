"""Power-average pooling: the `p`-norm of each window, over one, two or three axes."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from ..autocast import autocasts
from ..layer import Layer
from ..layout import DataFormat, as_layout
from .avg_pool import avg_pool_nd
from .max_pool import max_pool_nd
from .span import Sizes, Windows, as_windows


def _lp_pool(
    spatial: int,
    input: jax.Array,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None,
    ceil_mode: bool,
    data_format: str,
) -> jax.Array:
    norm_type = as_norm_type(norm_type)
    windows = as_windows(spatial, kernel_size, stride, 0)
    if math.isinf(norm_type):
        magnitude = input * _sign(input)
        sizes = windows.kernel_size, windows.stride
        if norm_type > 0:
            return max_pool_nd(spatial, magnitude, *sizes, 0, 1, ceil_mode, False, data_format)
        return -max_pool_nd(spatial, -magnitude, *sizes, 0, 1, ceil_mode, False, data_format)
    return _BY_POWERS[spatial](spatial, input, norm_type, windows, ceil_mode, data_format)


def _by_powers(
    spatial: int, input: jax.Array, norm_type: float, windows: Windows, ceil_mode: bool, data_format: str
) -> jax.Array:
    means = avg_pool_nd(
        spatial, _power(input, norm_type), windows.kernel_size, windows.stride, 0, ceil_mode, True, None, data_format
    )
    # PyTorch's order: the relu cuts off the gradient where a window is all zeros, whose root has an infinite one, and
    # lets that of a NaN through.
    signs = _sign(means)
    magnitude = means * signs
    sums = signs * jnp.where(magnitude <= 0, 0, magnitude) * math.prod(windows.kernel_size)
    return _power(sums, 1 / norm_type)


_BY_POWERS = {spatial: autocasts(_by_powers, name=f"lp_pool{spatial}d") for spatial in (1, 2, 3)}


def _sign(x: jax.Array) -> jax.Array:
    """As `torch.sign`, which is 0 for NaN; `x` times it is `torch.abs`, in its gradient too."""
    return lax.stop_gradient(jnp.where(x == x, lax.sign(x), 0))


def _power(x: jax.Array, exponent: float) -> jax.Array:
    """As `torch.pow` with a number: only an integer to the power of one stays an integer."""
    if isinstance(exponent, int):
        return lax.integer_pow(x, exponent)
    x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)
    return lax.pow(x, lax.full_like(x, exponent))


def as_norm_type(norm_type: float) -> float:
    if isinstance(norm_type, bool) or not isinstance(norm_type, int | float):
        raise TypeError(f"norm_type is {norm_type!r}; give a number")
    if norm_type == 0 or math.isnan(norm_type):
        raise ValueError(f"norm_type is {norm_type!r}; give a number other than 0")
    return norm_type


def lp_pool1d(
    input: jax.Array,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
    *,
    data_format: DataFormat = "NLC",
) -> jax.Array:
    """The norm of each window of a sequence, `[B, L, C]` (the batch optional), as `LPPool1d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.lp_pool1d.html
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode, data_format)


def lp_pool2d(
    input: jax.Array,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
    *,
    data_format: DataFormat = "NHWC",
) -> jax.Array:
    """The norm of each window of an image, `[B, H, W, C]` (the batch optional), as `LPPool2d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.lp_pool2d.html
    """
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode, data_format)


def lp_pool3d(
    input: jax.Array,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
    *,
    data_format: DataFormat = "NDHWC",
) -> jax.Array:
    """The norm of each window of a volume, `[B, D, H, W, C]` (the batch optional), as `LPPool3d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.lp_pool3d.html
    """
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode, data_format)


class _LPPool(Layer):
    _spatial: int

    def __init__(
        self,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
        *,
        data_format: DataFormat = "channels_last",
    ):
        windows = as_windows(self._spatial, kernel_size, stride, 0)
        self.norm_type = as_norm_type(norm_type)
        self.kernel_size, self.stride = windows.kernel_size, windows.stride
        self.ceil_mode = ceil_mode
        self.data_format = as_layout(data_format, self._spatial)

    def __call__(self, input: jax.Array) -> jax.Array:
        windows = self.kernel_size, self.stride
        return _lp_pool(self._spatial, input, self.norm_type, *windows, self.ceil_mode, self.data_format)


class LPPool1d(_LPPool):
    """`sum(x ** p) ** (1 / p)` over each window; an odd or broken `p` is NaN wherever the sum is negative.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LPPool1d.html

    Args:
      norm_type: `p`, not 0; infinity for the largest magnitude.
      kernel_size: of a window: an integer.
      stride: between windows; None for `kernel_size`.
      ceil_mode: whether a last window may hang over the end of the input. Its sum is then that of a whole window with
        the same mean, as in PyTorch.
      data_format: `"NLC"` for `[B, L, C]`, or `"NCL"`; the batch axis is optional.

    The gradient of a window that sums up to 0 is 0.

    Raises:
      ValueError: where an argument is out of range, or no window fits into `input`.
      TypeError: where `norm_type` is no number.

    Example:
      >>> LPPool1d(2, 2)(jnp.ones((1, 8, 3))).shape
      (1, 4, 3)
    """

    _spatial = 1


class LPPool2d(_LPPool):
    """`sum(x ** p) ** (1 / p)` over each window; an odd or broken `p` is NaN wherever the sum is negative.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LPPool2d.html

    Args:
      norm_type: `p`, not 0; infinity for the largest magnitude.
      kernel_size: of a window: an integer, or (height, width).
      stride: between windows; None for `kernel_size`.
      ceil_mode: whether a last window may hang over the end of the input. Its sum is then that of a whole window with
        the same mean, as in PyTorch.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    The gradient of a window that sums up to 0 is 0.

    Raises:
      ValueError: where an argument is out of range, or no window fits into `input`.
      TypeError: where `norm_type` is no number.

    Example:
      >>> LPPool2d(2, 2)(jnp.ones((1, 8, 8, 3))).shape
      (1, 4, 4, 3)
    """

    _spatial = 2


class LPPool3d(_LPPool):
    """`sum(x ** p) ** (1 / p)` over each window; an odd or broken `p` is NaN wherever the sum is negative.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LPPool3d.html

    Args:
      norm_type: `p`, not 0; infinity for the largest magnitude.
      kernel_size: of a window: an integer, or (depth, height, width).
      stride: between windows; None for `kernel_size`.
      ceil_mode: whether a last window may hang over the end of the input. Its sum is then that of a whole window with
        the same mean, as in PyTorch.
      data_format: `"NDHWC"` for `[B, D, H, W, C]`, or `"NCDHW"`; the batch axis is optional.

    The gradient of a window that sums up to 0 is 0.

    Raises:
      ValueError: where an argument is out of range, or no window fits into `input`.
      TypeError: where `norm_type` is no number.

    Example:
      >>> LPPool3d(2, 2)(jnp.ones((1, 8, 8, 8, 3))).shape
      (1, 4, 4, 4, 3)
    """

    _spatial = 3
