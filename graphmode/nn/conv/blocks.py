"""Sliding blocks of an image as columns, and columns added up to an image: `unfold` and `fold`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from ..arguments import as_integers
from ..layout import DataFormat, as_layout, from_channels_last, spelled, to_channels_last
from ..windows import taps_of
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
    batch = to_channels_last(input if input.ndim == 4 else input[None], layout, 2)
    blocks = _blocks(batch.shape[1:3], kernel, geometry)
    padded = jnp.pad(batch, ((0, 0), *geometry.paddings, (0, 0)))
    taps = taps_of(padded, kernel, geometry.stride, geometry.dilation)
    columns = jnp.stack(taps, -1).reshape(batch.shape[0], blocks, batch.shape[-1] * len(taps))
    columns = columns if layout == "channels_last" else columns.swapaxes(1, 2)
    return columns if input.ndim == 4 else columns[0]


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
