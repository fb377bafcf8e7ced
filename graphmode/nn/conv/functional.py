"""The functional forms of this room; weights are laid out as the layers hold them."""

from __future__ import annotations

from typing import Any

import jax

from ..arguments import as_integer, check_same_dtype
from ..autocast import autocasts
from ..layout import DataFormat, Layout, as_layout, check_shape, spatial_axes, spelled
from . import onednn_gradients as onednn_gradients  # registers derivatives
from .blocks import fold, unfold
from .geometry import (
    Geometry,
    Padding,
    as_axes,
    as_output_padding,
    as_padding,
    check_fit,
    paddings_of,
    transposed_output,
)
from .lowering import convolve
from .native import with_bias
from .transposed_lowering import Transposed, convolve_transposed

__all__: list[str] = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "fold",
    "unfold",
]


@autocasts
def conv1d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: Any = 1,
    padding: Padding = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    data_format: DataFormat = "NLC",
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """Cross-correlation of `[B, L, C]` with `weight`, `[l, C / groups, out]`; the rest as `conv2d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv1d.html
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups, data_format, precision)


@autocasts
def conv2d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: Any = 1,
    padding: Padding = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    data_format: DataFormat = "NHWC",
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """Cross-correlation of images with a bank of kernels.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv2d.html

    Args:
      input: `[B, H, W, C]`, or as `data_format` says; the batch axis is optional.
      weight: `[h, w, C / groups, out]`, in the dtype of `input`; PyTorch's is `[out, C / groups, h, w]`.
      bias: `[out]`, in the dtype of `input`.
      stride, dilation: an integer, or one for each spatial axis.
      padding: zeros on both sides, an integer or one for each axis; `"same"` or `"valid"`; beyond PyTorch, a pair
        (before, after) for each axis.
      groups: blocks of channels that do not see each other.
      data_format: where the channels are.
      precision: of the products, as `jax.lax` has it.

    Raises:
      ValueError: where an argument is out of range, a shape does not fit, or the kernel is larger than the image.
      TypeError: where the dtypes differ.
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups, data_format, precision)


@autocasts
def conv3d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: Any = 1,
    padding: Padding = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    data_format: DataFormat = "NDHWC",
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """Cross-correlation of `[B, D, H, W, C]` with `weight`, `[d, h, w, C / groups, out]`; the rest as `conv2d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv3d.html
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups, data_format, precision)


@autocasts
def conv_transpose1d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    data_format: DataFormat = "NLC",
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """Transposed convolution of `[B, L, C]` with `weight`, `[l, out / groups, C]`; the rest as `conv_transpose2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose1d.html
    """
    return _transposed(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation, data_format, precision
    )


@autocasts
def conv_transpose2d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    data_format: DataFormat = "NHWC",
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """The gradient of `conv2d` by its input, as a layer: every element of `input` adds a scaled kernel to the output.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose2d.html

    Args:
      input: `[B, H, W, C]`, or as `data_format` says; the batch axis is optional.
      weight: `[h, w, out / groups, C]`, that of the `conv2d` from `out` to `C` channels, in the dtype of `input`;
        PyTorch's is `[C, out / groups, h, w]`.
      bias: `[out]`, in the dtype of `input`.
      stride, dilation: of that convolution, an integer or one for each spatial axis.
      padding: of that convolution: rows and columns that are cut from both sides of the output.
      output_padding: rows and columns more at the end, less than the stride or the dilation.
      groups: blocks of channels that do not see each other.
      data_format: where the channels are.
      precision: of the products, as `jax.lax` has it.

    Raises:
      ValueError: where an argument is out of range, a shape does not fit, or no output is left.
      TypeError: where the dtypes differ.
    """
    return _transposed(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation, data_format, precision
    )


@autocasts
def conv_transpose3d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    data_format: DataFormat = "NDHWC",
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """Transposed convolution of `[B, D, H, W, C]` with `weight`, `[d, h, w, out / groups, C]`; as `conv_transpose2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose3d.html
    """
    return _transposed(
        3, input, weight, bias, stride, padding, output_padding, groups, dilation, data_format, precision
    )


def _conv(spatial, input, weight, bias, stride, padding, dilation, groups, data_format, precision):
    layout = as_layout(data_format, spatial)
    groups = as_integer("groups", groups, least=1)
    stride = as_axes("stride", stride, spatial, least=1)
    dilation = as_axes("dilation", dilation, spatial, least=1)
    padding = as_padding(padding, stride)
    kernel = _kernel(weight, spatial)
    in_channels, out_channels = weight.shape[-2] * groups, weight.shape[-1]
    if in_channels < 1 or out_channels < 1 or out_channels % groups:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)} and groups is {groups}; give weight[*kernel, in / groups, out] "
            "with out a positive multiple of groups"
        )
    size = _check_operands(spatial, layout, input, weight, bias, in_channels, out_channels)
    geometry = Geometry(stride, paddings_of(padding, kernel, dilation), dilation, groups)
    check_fit(size, kernel, geometry)
    batch = input if input.ndim == spatial + 2 else input[None]
    output = convolve(batch, weight, geometry, layout, precision, bias)
    return output if input.ndim == spatial + 2 else output[0]


def _transposed(
    spatial, input, weight, bias, stride, padding, output_padding, groups, dilation, data_format, precision
):
    layout = as_layout(data_format, spatial)
    groups = as_integer("groups", groups, least=1)
    stride = as_axes("stride", stride, spatial, least=1)
    dilation = as_axes("dilation", dilation, spatial, least=1)
    padding = as_axes("padding", padding, spatial, least=0)
    output_padding = as_output_padding(output_padding, stride, dilation)
    kernel = _kernel(weight, spatial)
    out_channels, in_channels = weight.shape[-2] * groups, weight.shape[-1]
    if in_channels < 1 or out_channels < 1 or in_channels % groups:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)} and groups is {groups}; give weight[*kernel, out / groups, in] "
            "with in a positive multiple of groups"
        )
    size = _check_operands(spatial, layout, input, weight, bias, in_channels, out_channels)
    output_size = transposed_output(size, kernel, stride, padding, output_padding, dilation)
    batch = input if input.ndim == spatial + 2 else input[None]
    how = Transposed(stride, padding, dilation, groups, output_size, layout, precision)
    output = convolve_transposed(batch, weight, how)
    output = with_bias(output, bias, layout, spatial)
    return output if input.ndim == spatial + 2 else output[0]


def _kernel(weight: jax.Array, spatial: int) -> tuple[int, ...]:
    if weight.ndim != spatial + 2 or 0 in weight.shape[:spatial]:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}; give {spatial} kernel axes, not empty, and two of channels"
        )
    return tuple(weight.shape[:spatial])


def _check_operands(
    spatial: int,
    layout: Layout,
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    in_channels: int,
    out_channels: int,
) -> tuple[int, ...]:
    """Raises where they do not fit each other; the input's size."""
    check_shape(input, layout, spatial, channels=in_channels, channels_name="the number that weight and groups want")
    check_same_dtype(input=input, weight=weight, bias=bias)
    if bias is not None and bias.shape != (out_channels,):
        raise ValueError(f"bias has shape {tuple(bias.shape)}, and {(out_channels,)} was wanted, one for each channel")
    size = tuple(input.shape[axis] for axis in spatial_axes(layout, input.ndim, spatial))
    if 0 in size:
        raise ValueError(f"input has shape {tuple(input.shape)}, {spelled(layout, spatial)}; only the batch may be 0")
    return size
