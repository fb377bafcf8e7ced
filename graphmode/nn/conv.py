"""`torch.nn.Conv2d`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode.weights import CONV, carries

from .arguments import DataFormat, Paddings, Pair, as_data_format, as_pair, check_image, spatial
from .conv_lowering import convolve
from .linear import uniform


class Conv2d(nnx.Module):
    """Cross-correlation of images with a bank of kernels, as PyTorch's.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv2d.html

    Args:
      in_channels: channels of `x`, a multiple of `groups`.
      out_channels: channels of the result, a multiple of `groups`.
      kernel_size: height and width.
      stride: of the kernel over the image.
      padding: zeros on both sides of each axis (PyTorch pads symmetrically); `"same"` for an output as large as the
        input, with a stride of 1 only and the odd zero at the end; `"valid"` for none.
      dilation: between the elements of the kernel.
      groups: blocks of channels that do not see each other; `in_channels` makes it depthwise.
      bias: whether there is one.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.
      param_dtype: of the parameters.
      rngs: `params` is drawn from, as PyTorch draws: U(-1/sqrt(fan_in), 1/sqrt(fan_in)).

    Attributes:
      weight: `[kernel height, kernel width, in_channels / groups, out_channels]`; PyTorch's is `[out, in, h, w]`.
      bias: `[out_channels]`, or None.

    Raises:
      ValueError: where an argument is out of range, `x` has other channels, or the kernel does not fit.
      TypeError: where `x` and `weight` differ in dtype.

    A depthwise layer has reverse-mode derivatives only (`jax.grad`, nested too): it defines its own, so `jax.jvp` and
    `jax.jacfwd` are refused.

    Example:
      >>> conv = Conv2d(3, 8, 3, stride=2, padding=1, rngs=nnx.Rngs(0))
      >>> conv(jnp.ones((1, 32, 32, 3))).shape
      (1, 16, 16, 8)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | Literal["same", "valid"] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        data_format: DataFormat = "NHWC",
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        if groups < 1:
            raise ValueError(f"groups is {groups}; give 1 or more")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels < 1 or channels % groups:
                raise ValueError(f"{name} is {channels}; give a positive multiple of groups = {groups}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = as_pair("kernel_size", kernel_size, least=1)
        self.stride = as_pair("stride", stride, least=1)
        self.dilation = as_pair("dilation", dilation, least=1)
        self.groups = groups
        self.data_format = as_data_format(data_format)
        self.padding = self._padding(padding)
        fan_in = in_channels // groups * self.kernel_size[0] * self.kernel_size[1]
        shape = (*self.kernel_size, in_channels // groups, out_channels)
        self.weight = nnx.Param(uniform(rngs, shape, fan_in, param_dtype), **carries(CONV))
        self.bias = nnx.data(None)
        if bias:
            self.bias = nnx.Param(uniform(rngs, (out_channels,), fan_in, param_dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        check_image(x, self.data_format, channels=self.in_channels)
        weight = self.weight[...]
        if x.dtype != weight.dtype:
            raise TypeError(f"x is {x.dtype} and weight is {weight.dtype}; cast one of them to the other's dtype")
        paddings = self.paddings(spatial(x, self.data_format))
        self._check_fit(spatial(x, self.data_format), paddings)
        y = convolve(
            x if x.ndim == 4 else x[None],
            weight,
            stride=self.stride,
            paddings=paddings,
            dilation=self.dilation,
            groups=self.groups,
            data_format=self.data_format,
        )
        if self.bias is not None:
            y = y + (self.bias[...] if self.data_format == "NHWC" else self.bias[...][:, None, None])
        return y if x.ndim == 4 else y[0]

    def paddings(self, size: Pair) -> Paddings:
        """Zeros before and after each axis of an image of this size: override it for another convention."""
        return self.padding

    def _padding(self, padding: int | Sequence[int] | str) -> Paddings:
        if padding == "valid":
            return ((0, 0), (0, 0))
        if padding == "same":
            if self.stride != (1, 1):
                raise ValueError(f"padding is 'same' and stride {self.stride}; 'same' is for a stride of 1")
            total = [d * (k - 1) for k, d in zip(self.kernel_size, self.dilation, strict=True)]
            return (total[0] // 2, total[0] - total[0] // 2), (total[1] // 2, total[1] - total[1] // 2)
        if isinstance(padding, str):
            raise ValueError(f"padding is {padding!r}; give 'same', 'valid', an integer or a pair of them")
        height, width = as_pair("padding", padding, least=0)
        return (height, height), (width, width)

    def _check_fit(self, size: Pair, paddings: Paddings) -> None:
        extents = tuple(d * (k - 1) + 1 for k, d in zip(self.kernel_size, self.dilation, strict=True))
        padded = tuple(n + sum(p) for n, p in zip(size, paddings, strict=True))
        if any(extent > n for extent, n in zip(extents, padded, strict=True)):
            raise ValueError(f"x is {padded} high and wide with its padding, and the kernel spans {extents}")
