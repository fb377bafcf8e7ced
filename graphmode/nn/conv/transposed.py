"""`torch.nn.ConvTranspose1d`, `ConvTranspose2d` and `ConvTranspose3d`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode.weights import ConvTransposeKernel, carries

from ..arguments import as_integer, as_word
from ..default_init import uniform
from ..layer import Layer
from ..layout import DataFormat, as_layout, check_shape, spatial_axes, spelled
from .conv import as_channels
from .functional import conv_transpose1d, conv_transpose2d, conv_transpose3d
from .geometry import Axes, as_axes, as_output_padding, output_padding_for, transposed_output


class ConvTransposeNd(Layer):
    """What they share over any number of axes; use `ConvTranspose1d`, `ConvTranspose2d` or `ConvTranspose3d`."""

    spatial: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: Literal["zeros"] = "zeros",
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
        self.padding = as_axes("padding", padding, spatial, least=0)
        self.dilation = as_axes("dilation", dilation, spatial, least=1)
        self.output_padding = as_output_padding(output_padding, self.stride, self.dilation)
        self.padding_mode = as_word("padding_mode", padding_mode, ("zeros",))
        self.data_format = spelled(as_layout(data_format, spatial), spatial)
        self.precision = precision
        # PyTorch takes the second axis of its weight, `[in, out / groups, *kernel]`, for the one that is summed over.
        fan_in = out_channels // groups * math.prod(self.kernel_size)
        shape = (*self.kernel_size, out_channels // groups, in_channels)
        self.weight = nnx.Param(uniform(rngs, shape, fan_in, param_dtype), **carries(ConvTransposeKernel()))
        self.bias = nnx.data(None)
        if bias:
            self.bias = nnx.Param(uniform(rngs, (out_channels,), fan_in, param_dtype))

    def __call__(self, input: jax.Array, output_size: Sequence[int] | None = None) -> jax.Array:
        """The result for `input`.

        Args:
          input: as `data_format` says, the batch axis optional.
          output_size: of the spatial axes of the result, or its whole shape in the layout of `input`; in place of
            `output_padding`.
        """
        layout = as_layout(self.data_format)
        check_shape(input, layout, self.spatial, channels=self.in_channels, channels_name="in_channels")
        function = (conv_transpose1d, conv_transpose2d, conv_transpose3d)[self.spatial - 1]
        return function(
            input,
            self.weight[...],
            None if self.bias is None else self.bias[...],
            self.stride,
            self.padding,
            self._output_padding(input, output_size),
            self.groups,
            self.dilation,
            data_format=self.data_format,  # type: ignore[arg-type]
            precision=self.precision,
        )

    def _output_padding(self, input: jax.Array, output_size: Sequence[int] | None) -> Axes:
        if output_size is None:
            return self.output_padding
        layout = as_layout(self.data_format)
        size = tuple(input.shape[axis] for axis in spatial_axes(layout, input.ndim, self.spatial))
        none = (0,) * self.spatial
        stride = as_axes("stride", self.stride, self.spatial, least=1)
        padding = as_axes("padding", self.padding, self.spatial, least=0)
        dilation = as_axes("dilation", self.dilation, self.spatial, least=1)
        smallest = transposed_output(size, self.kernel_size, stride, padding, none, dilation)
        return output_padding_for(output_size, input.shape, smallest, stride, layout)


class ConvTranspose1d(ConvTransposeNd):
    """The transpose of `Conv1d` over sequences; arguments and errors are those of `ConvTranspose2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConvTranspose1d.html

    `data_format` is `"NLC"` for `[B, L, C]` (the default) or `"NCL"`; `weight` is `[l, out_channels / groups,
    in_channels]`.

    Example:
      >>> upsample = ConvTranspose1d(3, 8, 4, stride=2, padding=1, rngs=nnx.Rngs(0))
      >>> upsample(jnp.ones((1, 16, 3))).shape
      (1, 32, 8)
    """

    spatial = 1


class ConvTranspose2d(ConvTransposeNd):
    """The transpose of `Conv2d` over images: its gradient by its input, as a layer that enlarges.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConvTranspose2d.html

    Args:
      in_channels: channels of `input`, a multiple of `groups`.
      out_channels: channels of the result, a multiple of `groups`.
      kernel_size: height and width, or one integer for both.
      stride: by which it enlarges.
      padding: rows and columns that are cut from both sides of the result.
      output_padding: rows and columns more at the end, less than the stride or the dilation.
      groups: blocks of channels that do not see each other.
      bias: whether there is one.
      dilation: between the elements of the kernel.
      padding_mode: `"zeros"` only.
      data_format: `"NHWC"` for `[B, H, W, C]` (the default), or `"NCHW"`; the batch axis is optional.
      param_dtype: of the parameters.
      precision: of the products, as `jax.lax` has it.
      rngs: `params` is drawn from, as PyTorch draws: U(-1/sqrt(fan_in), 1/sqrt(fan_in)), with out_channels / groups
        in its fan_in.

    Attributes:
      weight: `[kernel height, kernel width, out_channels / groups, in_channels]`; PyTorch's is `[in, out, h, w]`.
      bias: `[out_channels]`, or None.

    Raises:
      ValueError: where an argument is out of range, `input` has other channels, nothing is left of the output, or
        `output_size` is out of reach.
      TypeError: where `input` and `weight` differ in dtype.

    Example:
      >>> upsample = ConvTranspose2d(3, 8, 3, stride=2, padding=1, rngs=nnx.Rngs(0))
      >>> upsample(jnp.ones((1, 16, 16, 3)), output_size=(32, 32)).shape
      (1, 32, 32, 8)
    """

    spatial = 2


class ConvTranspose3d(ConvTransposeNd):
    """The transpose of `Conv3d` over volumes; arguments and errors are those of `ConvTranspose2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ConvTranspose3d.html

    `data_format` is `"NDHWC"` for `[B, D, H, W, C]` (the default) or `"NCDHW"`; `weight` is `[d, h, w, out_channels /
    groups, in_channels]`.

    Example:
      >>> upsample = ConvTranspose3d(4, 2, 2, stride=2, rngs=nnx.Rngs(0))
      >>> upsample(jnp.ones((1, 3, 4, 5, 4))).shape
      (1, 6, 8, 10, 2)
    """

    spatial = 3
