"""`grid_sample` and `affine_grid`: an image read at positions that are themselves computed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from ..arguments import as_integer, as_word, check_floating, check_same_dtype
from ..autocast import autocasts
from ..layout import DataFormat, as_layout, check_shape, from_channels_last, to_channels_last

Padding = Literal["zeros", "border", "reflection"]


@autocasts
def grid_sample(
    input: jax.Array,
    grid: jax.Array,
    mode: Literal["bilinear", "nearest", "bicubic"] = "bilinear",
    padding_mode: Padding = "zeros",
    align_corners: bool | None = None,
    *,
    data_format: DataFormat = "channels_last",
) -> jax.Array:
    """Samples an image at the positions of a grid.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html

    Args:
      input: `[B, H, W, C]` or `[B, D, H, W, C]` (or channels first), floating.
      grid: `[B, H', W', 2]` of (x, y), or `[B, D', H', W', 3]` of (x, y, z), from -1 to 1 over the image; the
        coordinates are on the last axis in either layout.
      mode: bilinear means trilinear for volumes; bicubic is for images alone.
      padding_mode: what lies beyond the image.
      align_corners: whether -1 and 1 are the centres of the corners, or their outer edges (the default).
      data_format: where the channels are.

    Returns:
      `[B, H', W', C]` or `[B, D', H', W', C]`, in the dtype of `input`.

    Raises:
      ValueError: where shapes do not fit, or an axis of the image has no length.
      TypeError: where the dtypes differ, or are no floating ones.
    """
    as_word("mode", mode, ("bilinear", "nearest", "bicubic"))
    as_word("padding_mode", padding_mode, ("zeros", "border", "reflection"))
    spatial = input.ndim - 2
    if spatial not in (2, 3):
        raise ValueError(f"input has shape {tuple(input.shape)}, and a batch of images or volumes was wanted")
    layout = as_layout(data_format, spatial)
    check_shape(input, layout, spatial, batched=True)
    if grid.ndim != input.ndim or grid.shape[0] != input.shape[0] or grid.shape[-1] != spatial:
        wanted = f"[{input.shape[0]}, {', '.join(['*'] * spatial)}, {spatial}]"
        raise ValueError(f"grid has shape {tuple(grid.shape)}, and {wanted} was wanted for input {tuple(input.shape)}")
    check_floating("input", input)
    check_same_dtype(input=input, grid=grid)
    if mode == "bicubic" and spatial == 3:
        raise ValueError("mode is 'bicubic', which is for images, and input is a volume; choose 'bilinear'")
    image, grid = to_channels_last(jnp.asarray(input), layout, spatial), jnp.asarray(grid)
    if not all(image.shape[1:-1]):
        raise ValueError(f"input has shape {tuple(input.shape)}; give spatial axes of length 1 or more")
    dtype = image.dtype
    if dtype in (jnp.bfloat16, jnp.float16):
        image, grid = image.astype(jnp.float32), grid.astype(jnp.float32)
    sizes = image.shape[1:-1]
    aligned = bool(align_corners)
    # the last coordinate belongs to the first spatial axis
    positions = [_unnormalised(grid[..., -1 - i], size, aligned) for i, size in enumerate(sizes)]
    if mode == "bicubic":
        out = _cubic(image, positions, sizes, padding_mode, aligned)
    else:
        positions = [_inside(p, size, padding_mode, aligned) for p, size in zip(positions, sizes, strict=True)]
        if mode == "nearest":
            # to even where halfway, as nearbyint
            out = _read(image, [lax.round(p, lax.RoundingMethod.TO_NEAREST_EVEN) for p in positions], sizes)
        else:
            out = _linear(image, positions, sizes)
    return from_channels_last(out.astype(dtype), layout, spatial)


def affine_grid(
    theta: jax.Array,
    size: Sequence[int],
    align_corners: bool | None = None,
    *,
    data_format: DataFormat = "channels_last",
) -> jax.Array:
    """The grid of an affine map for each image of a batch, for `grid_sample`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.affine_grid.html

    Args:
      theta: `[B, 2, 3]` for images, `[B, 3, 4]` for volumes, floating.
      size: shape of the result of `grid_sample`: `[B, H, W, C]` or `[B, D, H, W, C]` (or channels first).
      align_corners: as in `grid_sample`.
      data_format: where the channels are in `size`.

    Returns:
      `[B, H, W, 2]` or `[B, D, H, W, 3]`.

    Raises:
      ValueError: where `theta` and `size` do not fit.
      TypeError: where `theta` holds no floating numbers.
    """
    spatial = len(size) - 2
    if spatial not in (2, 3):
        raise ValueError(f"size is {tuple(size)}; give 4 numbers for images, 5 for volumes")
    check_floating("theta", theta)
    size = [as_integer("size", item, least=1) for item in size]
    if theta.shape != (size[0], spatial, spatial + 1):
        raise ValueError(f"theta has shape {tuple(theta.shape)}, and {(size[0], spatial, spatial + 1)} was wanted")
    layout = as_layout(data_format, spatial)
    lengths = size[1:-1] if layout == "channels_last" else size[2:]
    axes = []
    for length in lengths:
        axis = jnp.linspace(-1, 1, length, dtype=theta.dtype) if length > 1 else jnp.zeros(1, theta.dtype)
        axes.append(axis if align_corners else axis * ((length - 1) / length))
    coordinates = [*jnp.meshgrid(*axes, indexing="ij")[::-1], jnp.ones(lengths, theta.dtype)]
    return jnp.einsum("...k,bik->b...i", jnp.stack(coordinates, -1), theta, precision=lax.Precision.HIGHEST)


def _unnormalised(coordinate: jax.Array, size: int, align_corners: bool) -> jax.Array:
    """From -1 .. 1 to positions in pixels."""
    return (coordinate + 1) / 2 * (size - 1) if align_corners else ((coordinate + 1) * size - 1) / 2


def _inside(position: jax.Array, size: int, padding_mode: str, align_corners: bool) -> jax.Array:
    if padding_mode == "zeros":
        return position
    if padding_mode == "reflection":
        position = _reflected(position, 0, 2 * (size - 1)) if align_corners else _reflected(position, -1, 2 * size - 1)
    # PyTorch's derivative is 0 at the border itself, where jnp.clip's is not; NaN is clipped to 0 like its `max(0, x)`.
    clipped = jnp.where(position >= size - 1, size - 1.0, position)
    return jnp.where(position > 0, clipped, jnp.zeros_like(position))


def _reflected(position: jax.Array, twice_low: int, twice_high: int) -> jax.Array:
    """Back and forth between two borders, given twice as large since they may lie between pixels."""
    if twice_low == twice_high:
        return jnp.zeros_like(position)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    away = position - low
    away = jnp.where(away < 0, -away, away)
    extra = away - lax.stop_gradient(jnp.trunc(away / span)) * span
    flips = lax.stop_gradient(jnp.floor(away / span))
    return jnp.where(jnp.remainder(flips, 2) == 0, extra + low, span - extra + low)


def _linear(image: jax.Array, positions: list[jax.Array], sizes: Sequence[int]) -> jax.Array:
    """The sum over the corners around each position, each times its share."""
    corners = []
    for position in positions:
        floor = lax.stop_gradient(jnp.floor(position))
        fraction = position - floor
        corners.append(((floor, 1 - fraction), (floor + 1, fraction)))
    total = []
    for corner in itertools.product(*corners):
        share = reduce(jnp.multiply, (weight for _, weight in corner))
        total.append(_read(image, [index for index, _ in corner], sizes) * share[..., None])
    return sum(total[1:], start=total[0])


def _cubic(
    image: jax.Array, positions: list[jax.Array], sizes: Sequence[int], padding_mode: str, align_corners: bool
) -> jax.Array:
    """Keys' kernel with a = -0.75 over four by four pixels, each of which is padded by itself."""
    taps = []
    for position, size in zip(positions, sizes, strict=True):
        floor = lax.stop_gradient(jnp.floor(position))
        t = position - floor
        weights = [_far(t + 1), _near(t), _near(1 - t), _far(2 - t)]
        indices = [lax.stop_gradient(_inside(floor + k, size, padding_mode, align_corners)) for k in range(-1, 3)]
        taps.append(list(zip(indices, weights, strict=True)))
    rows = []
    for y, by_y in taps[0]:
        row = [_read(image, [y, x], sizes) * by_x[..., None] for x, by_x in taps[1]]
        rows.append(sum(row[1:], start=row[0]) * by_y[..., None])
    return sum(rows[1:], start=rows[0])


def _near(x: jax.Array) -> jax.Array:
    return (1.25 * x - 2.25) * x * x + 1


def _far(x: jax.Array) -> jax.Array:
    return ((-0.75 * x + 3.75) * x - 6) * x + 3


def _read(image: jax.Array, indices: list[jax.Array], sizes: Sequence[int]) -> jax.Array:
    """`[B, *out, C]`: the pixels at whole positions, zero outside of the image."""
    found = [(index >= 0) & (index < size) for index, size in zip(indices, sizes, strict=True)]
    there = reduce(jnp.logical_and, found)
    whole = [jnp.where(there, index, 0).astype(jnp.int32) for index in indices]
    batch = jnp.arange(image.shape[0]).reshape(-1, *[1] * (whole[0].ndim - 1))
    pixels = image.at[(batch, *whole)].get(mode="promise_in_bounds")
    return jnp.where(there[..., None], pixels, jnp.zeros((), image.dtype))
