"""Convolutions that take the number of their channels from the first input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from ..arguments import as_integer
from ..layout import DataFormat, Layout, as_layout, channel_axis, spelled
from ..lazy import Lazy
from .conv import Conv1d, Conv2d, Conv3d, ConvNd
from .geometry import Padding, PaddingMode
from .transposed import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, ConvTransposeNd


class LazyConvNd(Lazy, ConvNd):
    """What lazy convolutions over any number of axes share."""

    def __init__(
        self,
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
        self._defer(
            rngs,
            {"in_channels": as_integer("groups", groups, least=1)},
            out_channels=out_channels,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bias,
            padding_mode=padding_mode,
            data_format=data_format,
            param_dtype=param_dtype,
            precision=precision,
        )

    def _sizes(self, shape: tuple[int, ...]) -> Mapping[str, int]:
        return {"in_channels": _channels(shape, as_layout(self.data_format), self.spatial)}


class LazyConvTransposeNd(Lazy, ConvTransposeNd):
    """What lazy transposed convolutions over any number of axes share."""

    def __init__(
        self,
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
        self._defer(
            rngs,
            {"in_channels": as_integer("groups", groups, least=1)},
            out_channels=out_channels,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            groups=groups,
            bias=bias,
            dilation=dilation,
            padding_mode=padding_mode,
            data_format=data_format,
            param_dtype=param_dtype,
            precision=precision,
        )

    def _sizes(self, shape: tuple[int, ...]) -> Mapping[str, int]:
        return {"in_channels": _channels(shape, as_layout(self.data_format), self.spatial)}


class LazyConv1d(LazyConvNd, Conv1d):
    """`Conv1d` without `in_channels`; see `LazyConv2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConv1d.html
    """

    becomes = Conv1d


class LazyConv2d(LazyConvNd, Conv2d):
    """`Conv2d` without `in_channels`, which the first input gives: the layer then becomes a `Conv2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConv2d.html

    The first call makes the parameters, and so does `initialize(shape)`; both outside of `jit`, `grad` and `vmap`,
    or inside of an `nnx.eval_shape` that builds the layer too. Arguments are those of `Conv2d`.

    Raises:
      ValueError: where an argument is out of range, or the input's channels are no multiple of `groups`.
      RuntimeError: where the first call is inside of a transformation.

    Example:
      >>> conv = LazyConv2d(8, 3, rngs=nnx.Rngs(0))
      >>> conv(jnp.ones((1, 32, 32, 3))).shape
      (1, 30, 30, 8)
      >>> type(conv).__name__, conv.in_channels
      ('Conv2d', 3)
    """

    becomes = Conv2d


class LazyConv3d(LazyConvNd, Conv3d):
    """`Conv3d` without `in_channels`; see `LazyConv2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConv3d.html
    """

    becomes = Conv3d


class LazyConvTranspose1d(LazyConvTransposeNd, ConvTranspose1d):
    """`ConvTranspose1d` without `in_channels`; see `LazyConv2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConvTranspose1d.html
    """

    becomes = ConvTranspose1d


class LazyConvTranspose2d(LazyConvTransposeNd, ConvTranspose2d):
    """`ConvTranspose2d` without `in_channels`; see `LazyConv2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConvTranspose2d.html
    """

    becomes = ConvTranspose2d


class LazyConvTranspose3d(LazyConvTransposeNd, ConvTranspose3d):
    """`ConvTranspose3d` without `in_channels`; see `LazyConv2d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConvTranspose3d.html
    """

    becomes = ConvTranspose3d


def _channels(shape: tuple[int, ...], layout: Layout, spatial: int) -> int:
    if len(shape) not in (spatial + 1, spatial + 2):
        letters = spelled(layout, spatial)
        raise ValueError(f"input has shape {shape}, and {letters}, or {letters[1:]} without a batch, was wanted")
    return shape[channel_axis(layout, len(shape), spatial)]
