"""`torch.nn.Conv1d`, `Conv2d` and `Conv3d`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode.weights import CONV, carries

from ..arguments import as_integer, as_word
from ..default_init import uniform
from ..layer import Layer
from ..layout import DataFormat, as_layout, check_shape, spatial_axes, spelled
from .functional import conv1d, conv2d, conv3d
from .geometry import (
    PADDING_MODES,
    Axes,
    Padding,
    PaddingMode,
    Paddings,
    as_axes,
    as_padding,
    padded_from_itself,
    paddings_of,
)


class ConvNd(Layer):
    """What convolutions over any number of axes share; use `Conv1d`, `Conv2d` or `Conv3d`."""

    spatial: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: Padding = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        *,
        data_format: DataFormat = "channels_last",
        param_dtype: jnp.dtype = jnp.float32,
        precision: jax.lax.PrecisionLike = None,
        rngs: nnx.Rngs,
    ):
        spatial = self.spatial
        self.groups = as_integer("groups", groups, least=1)
        self.in_channels = as_channels("in_channels", in_channels, self.groups)
        self.out_channels = as_channels("out_channels", out_channels, self.groups)
        self.kernel_size = as_axes("kernel_size", kernel_size, spatial, least=1)
        self.stride = as_axes("stride", stride, spatial, least=1)
        self.padding = as_padding(padding, self.stride)
        self.dilation = as_axes("dilation", dilation, spatial, least=1)
        self.padding_mode = as_word("padding_mode", padding_mode, tuple(PADDING_MODES))
        self.data_format = spelled(as_layout(data_format, spatial), spatial)
        self.precision = precision
        fan_in = in_channels // groups * math.prod(self.kernel_size)
        shape = (*self.kernel_size, in_channels // groups, out_channels)
        self.weight = nnx.Param(uniform(rngs, shape, fan_in, param_dtype), **carries(CONV))
        self.bias = nnx.data(None)
        if bias:
            self.bias = nnx.Param(uniform(rngs, (out_channels,), fan_in, param_dtype))

    def __call__(self, input: jax.Array) -> jax.Array:
        layout = as_layout(self.data_format)
        check_shape(input, layout, self.spatial, channels=self.in_channels, channels_name="in_channels")
        size = tuple(input.shape[axis] for axis in spatial_axes(layout, input.ndim, self.spatial))
        paddings = self.paddings(size)
        if self.padding_mode != "zeros":
            input = padded_from_itself(input, paddings, self.padding_mode, layout)
            paddings = ((0, 0),) * self.spatial
        function = (conv1d, conv2d, conv3d)[self.spatial - 1]
        return function(
            input,
            self.weight[...],
            None if self.bias is None else self.bias[...],
            self.stride,
            paddings,
            self.dilation,
            self.groups,
            data_format=self.data_format,  # type: ignore[arg-type]
            precision=self.precision,
        )

    def paddings(self, size: Axes) -> Paddings:
        """Padding before and after each axis of an input of this size: override it for another convention."""
        # As they were set last, be it to one integer for all axes.
        stride = as_axes("stride", self.stride, self.spatial, least=1)
        dilation = as_axes("dilation", self.dilation, self.spatial, least=1)
        return paddings_of(as_padding(self.padding, stride), self.kernel_size, dilation)


class Conv1d(ConvNd):
    """Cross-correlation of sequences with a bank of kernels; arguments and errors are those of `Conv2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv1d.html

    `data_format` is `"NLC"` for `[B, L, C]` (the default) or `"NCL"`; `weight` is `[l, in_channels / groups,
    out_channels]`.

    Example:
      >>> conv = Conv1d(3, 8, 5, padding="same", rngs=nnx.Rngs(0))
      >>> conv(jnp.ones((1, 32, 3))).shape
      (1, 32, 8)
    """

    spatial = 1


class Conv2d(ConvNd):
    """Cross-correlation of images with a bank of kernels.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv2d.html

    Args:
      in_channels: channels of `input`, a multiple of `groups`.
      out_channels: channels of the result, a multiple of `groups`.
      kernel_size: height and width, or one integer for both.
      stride: of the kernel over the image.
      padding: on both sides of each axis (PyTorch pads symmetrically); `"same"` for an output as large as the
        input, with a stride of 1 only and the odd element at the end; `"valid"` for none; beyond PyTorch, a pair
        (before, after) for each axis.
      dilation: between the elements of the kernel.
      groups: blocks of channels that do not see each other; `in_channels` makes it depthwise.
      bias: whether there is one.
      padding_mode: what is padded: `"zeros"`, or the image itself: `"reflect"`, `"replicate"` or `"circular"`.
      data_format: `"NHWC"` for `[B, H, W, C]` (the default), or `"NCHW"`; the batch axis is optional.
      param_dtype: of the parameters.
      precision: of the products, as `jax.lax` has it.
      rngs: `params` is drawn from, as PyTorch draws: U(-1/sqrt(fan_in), 1/sqrt(fan_in)).

    Attributes:
      weight: `[kernel height, kernel width, in_channels / groups, out_channels]`; PyTorch's is `[out, in, h, w]`.
      bias: `[out_channels]`, or None.

    Raises:
      ValueError: where an argument is out of range, `input` has other channels, or the kernel does not fit.
      TypeError: where `input` and `weight` differ in dtype.

    A depthwise layer has reverse-mode derivatives only (`jax.grad`, nested too): it defines its own, so `jax.jvp`,
    `jax.jacfwd` and `jax.hessian` are refused; `jax.jacrev(jax.grad(loss))` is the Hessian.

    Example:
      >>> conv = Conv2d(3, 8, 3, stride=2, padding=1, rngs=nnx.Rngs(0))
      >>> conv(jnp.ones((1, 32, 32, 3))).shape
      (1, 16, 16, 8)
    """

    spatial = 2


class Conv3d(ConvNd):
    """Cross-correlation of volumes with a bank of kernels; arguments and errors are those of `Conv2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv3d.html

    `data_format` is `"NDHWC"` for `[B, D, H, W, C]` (the default) or `"NCDHW"`; `weight` is `[d, h, w, in_channels /
    groups, out_channels]`.

    Example:
      >>> conv = Conv3d(1, 4, (1, 3, 3), padding=(0, 1, 1), rngs=nnx.Rngs(0))
      >>> conv(jnp.ones((2, 4, 8, 8, 1))).shape
      (2, 4, 8, 8, 4)
    """

    spatial = 3


def as_channels(name: str, channels: int, groups: int) -> int:
    """A positive multiple of `groups`."""
    channels = as_integer(name, channels, least=1)
    if channels % groups:
        raise ValueError(f"{name} is {channels}; give a positive multiple of groups = {groups}")
    return channels
