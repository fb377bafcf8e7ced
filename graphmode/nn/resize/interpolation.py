"""`torch.nn.functional.interpolate` and its older names: every mode is one linear map an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..arguments import as_integer, as_word, check_floating
from ..autocast import autocasts
from ..compiled_once import compiled_once
from ..layout import DataFormat, as_layout, check_shape, spatial_axes
from .taps import Taps, antialiased, apply_phases, apply_taps, cubic, linear, nearest, phases

Mode = Literal["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"]
MODES: dict[Mode, tuple[int, ...]] = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "area": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "bicubic": (2,),
    "trilinear": (3,),
}


def interpolate(
    input: jax.Array,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: Mode = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
    *,
    data_format: DataFormat = "channels_last",
) -> jax.Array:
    """Resizes the spatial axes.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html

    Args:
      input: `[B, *spatial, C]`, one to three spatial axes (or channels first); floating, for nearest any dtype.
      size: of the result, one number or one for each spatial axis.
      scale_factor: in place of `size`; the result has `floor(length * scale_factor)`.
      mode: linear is for one spatial axis, bilinear and bicubic for two, trilinear for three.
      align_corners: whether the corners' centres are kept, for linear and cubic modes.
      recompute_scale_factor: whether positions follow from the resulting size rather than from `scale_factor`.
      antialias: whether to widen the kernel where the image shrinks; bilinear and bicubic only.
      data_format: where the channels are.

    Returns:
      `[B, *size, C]`, in the dtype of `input`.

    Raises:
      ValueError: where neither or both of `size` and `scale_factor` are given, or a mode does not fit.
    """
    spatial = input.ndim - 2
    if spatial not in (1, 2, 3):
        raise ValueError(f"input has shape {tuple(input.shape)}, and a batch with 1 to 3 spatial axes was wanted")
    as_word("mode", mode, list(MODES))
    if spatial not in MODES[mode]:
        wanted = " or ".join(map(str, MODES[mode]))
        raise ValueError(f"mode is {mode!r}, for {wanted} spatial axes, and input has {spatial}: {tuple(input.shape)}")
    if mode in ("nearest", "nearest-exact", "area") and align_corners is not None:
        raise ValueError(f"align_corners is {align_corners} and mode {mode!r}; it is for linear and cubic modes")
    if mode not in ("nearest", "nearest-exact"):
        check_floating("input", input)
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(f"antialias is for mode 'bilinear' and 'bicubic', and mode is {mode!r}")
    layout = as_layout(data_format, spatial)
    check_shape(input, layout, spatial, batched=True)
    axes = spatial_axes(layout, input.ndim, spatial)
    lengths = [input.shape[axis] for axis in axes]
    sizes, factors = _sizes(lengths, size, scale_factor, recompute_scale_factor)
    if not all(lengths) or not all(sizes):
        raise ValueError(f"input is {lengths} long and {sizes} was asked for; give lengths of 1 or more")
    resize = _resized_along
    if mode != "area":
        resize = _upsampled
    elif spatial == 3:
        resize = _averaged_volumes
    return resize(input, axes, lengths, sizes, factors, mode, bool(align_corners), antialias)


def _resized_along(
    input: jax.Array,
    axes: Sequence[int],
    lengths: list[int],
    sizes: list[int],
    factors: list[float | None],
    mode: Mode,
    align_corners: bool,
    antialias: bool,
) -> jax.Array:
    dtype = input.dtype
    if mode not in ("nearest", "nearest-exact") and dtype in (jnp.bfloat16, jnp.float16):
        input = input.astype(jnp.float32)
    for axis, length, out, factor in zip(axes, lengths, sizes, factors, strict=True):
        if mode == "nearest" and len(axes) == 2 and out in (length, 2 * length):
            factor = None  # PyTorch's kernel for images then goes by the lengths
        input = _resized(input, axis, length, out, factor, mode, align_corners, antialias)
    return input.astype(dtype)


_upsampled = autocasts(_resized_along, name="interpolate")
_averaged_volumes = autocasts(_resized_along, name="adaptive_avg_pool3d")


def upsample(
    input: jax.Array,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: Mode = "nearest",
    align_corners: bool | None = None,
    *,
    data_format: DataFormat = "channels_last",
) -> jax.Array:
    """The older name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners, data_format=data_format)


def upsample_nearest(
    input: jax.Array,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    *,
    data_format: DataFormat = "channels_last",
) -> jax.Array:
    """`interpolate` with mode `"nearest"`."""
    return interpolate(input, size, scale_factor, "nearest", data_format=data_format)


def upsample_bilinear(
    input: jax.Array,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    *,
    data_format: DataFormat = "channels_last",
) -> jax.Array:
    """`interpolate` with mode `"bilinear"` and the corners aligned."""
    return interpolate(input, size, scale_factor, "bilinear", True, data_format=data_format)


def _sizes(
    lengths: list[int],
    size: int | Sequence[int] | None,
    scale_factor: float | Sequence[float] | None,
    recompute_scale_factor: bool | None,
) -> tuple[list[int], list[float | None]]:
    """Of the result, and the factors that positions follow from (None: from the sizes)."""
    count = len(lengths)
    if (size is None) == (scale_factor is None):
        raise ValueError("give one of size and scale_factor" + ("" if size is None else ", not both"))
    if size is not None:
        if recompute_scale_factor:
            raise ValueError("recompute_scale_factor is for a scale_factor, and size was given")
        sizes = list(size) if isinstance(size, Sequence) else [size] * count
        if len(sizes) != count:
            raise ValueError(f"size is {size!r}; give an integer, or {count}, one for each spatial axis")
        return [as_integer("size", item, least=1) for item in sizes], [None] * count
    factors = list(scale_factor) if isinstance(scale_factor, Sequence) else [scale_factor] * count
    if len(factors) != count:
        raise ValueError(f"scale_factor is {scale_factor!r}; give a number, or {count}, one for each spatial axis")
    numbers = [float(factor) for factor in factors if factor is not None]
    if len(numbers) != count or not all(factor > 0 and math.isfinite(factor) for factor in numbers):
        raise ValueError(f"scale_factor is {scale_factor!r}; give positive numbers")
    sizes = [math.floor(length * factor) for length, factor in zip(lengths, numbers, strict=True)]
    return sizes, [None] * count if recompute_scale_factor else list(numbers)


@compiled_once("axis", "length", "out", "factor", "mode", "align_corners", "antialias")
def _resized(
    input: jax.Array,
    axis: int,
    length: int,
    out: int,
    factor: float | None,
    mode: str,
    align_corners: bool,
    antialias: bool,
) -> jax.Array:
    if mode == "area":
        return input if out == length else apply_taps(input, axis, _bins(length, out))
    if mode in ("nearest", "nearest-exact"):
        return apply_taps(input, axis, nearest(length, out, factor, exact=mode == "nearest-exact"))
    is_cubic = mode == "bicubic"
    if antialias:
        taps = antialiased(length, out, factor, align_corners=align_corners, is_cubic=is_cubic)
        return apply_taps(input, axis, taps)
    if not align_corners and (found := phases(length, out, factor, is_cubic=is_cubic)):
        return apply_phases(input, axis, found)
    return apply_taps(input, axis, (cubic if is_cubic else linear)(length, out, factor, align_corners=align_corners))


def _bins(size: int, bins: int) -> Taps:
    """Averages over `floor(i * size / bins) .. ceil((i + 1) * size / bins)`."""
    starts = np.arange(bins) * size // bins
    ends = -(-(np.arange(bins) + 1) * size // bins)
    indices = starts[:, None] + np.arange(int((ends - starts).max()))
    weights = np.where(indices < ends[:, None], 1 / (ends - starts)[:, None], 0)
    return Taps(np.where(indices < ends[:, None], indices, -1), weights)
