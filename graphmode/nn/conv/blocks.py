"""Sliding blocks of an image as columns, and columns added up to an image: `unfold` and `fold`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from ..arguments import as_integers
from ..layout import DataFormat, Layout, as_layout, channel_axis, from_channels_last, spatial_axes, spelled
from ..windows import taps_along
from .geometry import Axes, Geometry


def unfold(
    input: jax.Array,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
    *,
    data_format: DataFormat = "NHWC",
) -> jax.Array:
    """What a sliding window covers, flattened, one block after the other.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.unfold.html

    Args:
      input: `[B, H, W, C]`, or as `data_format` says; the batch axis is optional.
      kernel_size, dilation, stride: of the window, an integer or a pair.
      padding: zeros on both sides of each axis.
      data_format: `"NHWC"` gives `[B, blocks, C * h * w]`, `"NCHW"` PyTorch's `[B, C * h * w, blocks]`; in both the
        channel is the slowest within a block.

    Raises:
      ValueError: where an argument is out of range, or no window fits.
    """
    layout = as_layout(data_format, 2)
    kernel, geometry = _geometry(kernel_size, dilation, padding, stride)
    if input.ndim not in (3, 4) or 0 in input.shape[input.ndim - 3 :]:
        raise ValueError(
            f"input has shape {tuple(input.shape)}, and {spelled(layout, 2)} was wanted, the batch axis optional and "
            "none but it empty"
        )
    batch = input if input.ndim == 4 else input[None]
    height, width = spatial_axes(layout, 4, 2)
    size, channels = (batch.shape[height], batch.shape[width]), batch.shape[channel_axis(layout, 4)]
    blocks, values = _blocks(size, kernel, geometry), channels * math.prod(kernel)
    windows = _windows(batch, layout, kernel, geometry, geometry.output(size, kernel))
    if layout == "channels_first":
        columns = windows.reshape(batch.shape[0], values, blocks)
    else:
        columns = windows.reshape(batch.shape[0], blocks, math.prod(kernel), channels).swapaxes(2, 3)
        columns = columns.reshape(batch.shape[0], blocks, values)
    return columns if input.ndim == 4 else columns[0]


def _windows(batch: jax.Array, layout: Layout, kernel: Axes, geometry: Geometry, counts: Axes) -> jax.Array:
    """`[B, C, h, w, rows, columns]`, or `[B, rows, columns, h, w, C]` where channels are last.

    Each axis of the window is stacked by itself, and beside the channels: of 8x56x56x64 and 3x3 that takes XLA's CPU
    backend 15 ms, and nine taps stacked on the last axis 160.
    """
    axes = spatial_axes(layout, 4, 2)
    stacked, steps = (2, (0, 1)) if layout == "channels_first" else (3, (0, 0))
    windows = jnp.pad(batch, [geometry.paddings[axes.index(axis)] if axis in axes else (0, 0) for axis in range(4)])
    for i, step in zip((1, 0), steps, strict=True):
        taps = taps_along(
            windows,
            axes[i] + step,  # behind the axis that is already stacked
            kernel=kernel[i],
            stride=geometry.stride[i],
            dilation=geometry.dilation[i],
            count=counts[i],
        )
        windows = jnp.stack(taps, stacked)
    return windows


def fold(
    input: jax.Array,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
    *,
    data_format: DataFormat = "NHWC",
) -> jax.Array:
    """Blocks added up to an image, where they overlap: the transpose of `unfold`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.fold.html

    Args:
      input: `[B, blocks, C * h * w]`, or, for `"NCHW"`, PyTorch's `[B, C * h * w, blocks]`; the batch axis is optional.
      output_size: height and width of the image.
      kernel_size, dilation, stride: of the window, an integer or a pair.
      padding: what `unfold` would have padded on both sides; blocks that reach into it lose that part.
      data_format: of the result, `"NHWC"` for `[B, H, W, C]`.

    Raises:
      ValueError: where an argument is out of range, or `input` has another number of blocks or values.
    """
    layout = as_layout(data_format, 2)
    size = as_integers("output_size", output_size, 2, least=1)
    kernel, geometry = _geometry(kernel_size, dilation, padding, stride)
    wanted = _blocks(size, kernel, geometry)
    if input.ndim not in (2, 3):
        raise ValueError(f"input has shape {tuple(input.shape)}, and blocks, values and an optional batch were wanted")
    blocks, values = input.shape[-2:] if layout == "channels_last" else input.shape[:-3:-1]
    if blocks != wanted or not values or values % math.prod(kernel):
        raise ValueError(
            f"input has shape {tuple(input.shape)}, so {blocks} blocks of {values} values; output_size {size} and "
            f"kernel_size {kernel} want {wanted} blocks of a positive multiple of {math.prod(kernel)}"
        )
    columns = input if input.ndim == 3 else input[None]
    columns = columns if layout == "channels_last" else columns.swapaxes(1, 2)
    rows, width = geometry.output(size, kernel)
    taps = columns.reshape(columns.shape[0], rows, width, values // math.prod(kernel), *kernel)
    image = from_channels_last(_added(taps, size, geometry), layout, 2)
    return image if input.ndim == 3 else image[0]


def _added(taps: jax.Array, size: Axes, geometry: Geometry) -> jax.Array:
    """`[B, rows, columns, C, h, w]` to `[B, *size, C]`."""
    zero = jnp.zeros((), taps.dtype)
    add = jnp.logical_or if taps.dtype == bool else jnp.add
    images = []
    for i in range(taps.shape[-2]):
        for j in range(taps.shape[-1]):
            spread = [(0, 0, 0)]
            for offset, d, s, n, count, (before, _) in zip(
                (i, j), geometry.dilation, geometry.stride, size, taps.shape[1:3], geometry.paddings, strict=True
            ):
                low = offset * d - before
                spread.append((low, n - low - (count - 1) * s - 1, s - 1))
            images.append(lax.pad(taps[..., i, j], zero, (*spread, (0, 0, 0))))
    total = images[0]
    for image in images[1:]:
        total = add(total, image)
    return total


def _geometry(kernel_size, dilation, padding, stride) -> tuple[Axes, Geometry]:
    kernel = as_integers("kernel_size", kernel_size, 2, least=1)
    dilations = as_integers("dilation", dilation, 2, least=1)
    paddings = tuple((p, p) for p in as_integers("padding", padding, 2, least=0))
    return kernel, Geometry(as_integers("stride", stride, 2, least=1), paddings, dilations)


def _blocks(size: Sequence[int], kernel: Axes, geometry: Geometry) -> int:
    output = geometry.output(size, kernel)
    if min(output) < 1:
        raise ValueError(
            f"kernel_size {kernel} with dilation {geometry.dilation} does not fit into the size {tuple(size)} with "
            f"padding {tuple(before for before, _ in geometry.paddings)}"
        )
    return math.prod(output)
