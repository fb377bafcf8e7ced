"""`roi_align`: torchvision's, its adaptive number of samples included, at a static size and without a cap.

How many samples a bin takes depends on the size of its box, so they are taken in a loop, one of each bin of all boxes
a turn, as often as the largest box needs. Samples far outside of the image give nothing and are skipped, so no box,
however large, makes the loop longer than about twice the image's height times twice its width.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from ..masking.padded import Padded
from .boxes import as_boxes
from .rounding import divided, rounded

DataFormat = Literal["NHWC", "NCHW"]


class Axis(NamedTuple):
    """Where the samples of each of `K` boxes lie along one axis of the image, in `bins` bins.

    `begin`: `[K, bins]`, the first edge of each bin; `step`: `[K, 1]`, the size of a bin; `samples`: `[K, 1]`, how many
    are averaged in it; `first`: `[K, bins]`, the first of them that counts; `turns`: 0-d, or an int, how many count.
    """

    begin: jax.Array
    step: jax.Array
    samples: jax.Array
    first: jax.Array
    turns: jax.Array | int


def roi_align(
    features: ArrayLike,
    rois: ArrayLike | Padded[jax.Array] | Sequence[ArrayLike | Padded[jax.Array]],
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    *,
    data_format: DataFormat = "NHWC",
) -> jax.Array:
    """Bilinear samples of each box, averaged within the bins of a grid of fixed size.

    The gradient goes to the features; boxes get none, as in torchvision. With an adaptive number of samples it is
    reverse mode only; with a fixed one forward mode works too.

    Source: `torchvision.ops.roi_align`; https://arxiv.org/abs/1703.06870.

    Args:
      features: `[B, H, W, C]`, or `[B, C, H, W]` as data_format says; floating-point.
      rois: `[K, 5]`, floating-point: the image's index in the batch, then x1, y1, x2, y2. Or a sequence of `B` arrays
        `[L, 4]` of boxes, one for each image. Either may be `Padded`: rows that are not valid give 0.
      output_size: bins, (height, width) or one integer for both.
      spatial_scale: what box coordinates are multiplied with to be those of the features.
      sampling_ratio: samples of a bin along each axis; 0 or less for as many as `ceil(box size / bins)`.
      aligned: whether pixel centres are half a pixel in, as Detectron2 has them. If not, boxes are at least 1 x 1.
      data_format: `"NHWC"` or `"NCHW"`, of the features and of what is returned.

    Returns:
      `[K, height, width, C]`, or `[K, C, height, width]`, in the dtype of `features`; sums are of float32 at least. A
      row whose index is none of the batch's is NaN, where torchvision reads elsewhere in memory.

    Raises:
      ValueError: where features, rois, output_size, spatial_scale, sampling_ratio or data_format do not fit.

    Example:
      >>> image = jnp.arange(16.0).reshape(1, 4, 4, 1)
      >>> roi_align(image, jnp.array([[0, 0.0, 0.0, 4.0, 4.0]]), 2, sampling_ratio=1, aligned=True)[0, :, :, 0].tolist()
      [[2.5, 4.5], [10.5, 12.5]]
    """
    features = as_features(features, data_format)
    rois, valid = as_rois(rois, len(features))
    bins = as_bins(output_size)
    if isinstance(sampling_ratio, bool) or not isinstance(sampling_ratio, int | np.integer):
        raise ValueError(f"sampling_ratio is {sampling_ratio!r}; give an integer, or -1 to suit the size of each box")
    if np.shape(spatial_scale):
        raise ValueError(f"spatial_scale has shape {np.shape(spatial_scale)}, and one number was wanted")
    images, height, width, _ = features.shape

    dtype = jnp.promote_types(features.dtype, jnp.float32)
    rois = lax.stop_gradient(rois).astype(jnp.promote_types(rois.dtype, dtype))
    edges = rounded(rois[:, 1:] * jnp.asarray(spatial_scale, rois.dtype)) - (0.5 if aligned else 0)
    x1, y1, x2, y2 = edges.T
    ys = _axis(y1, y2, bins[0], height, int(sampling_ratio), aligned)
    xs = _axis(x1, x2, bins[1], width, int(sampling_ratio), aligned)
    known = (rois[:, 0] > -1) & (rois[:, 0] < images)
    image = jnp.where(known, rois[:, 0], 0).astype(jnp.int32)
    total = _sampled if isinstance(ys.turns, int) else functools.partial(_sampled_reverse, features.shape)
    number = jnp.maximum(ys.samples * xs.samples, 1)[:, :, None, None]
    mean = total(features.astype(dtype), image, ys, xs) / number.astype(dtype)
    mean = jnp.where(known[:, None, None, None], mean, jnp.nan)
    if valid is not None:
        mean = jnp.where(valid[:, None, None, None], mean, 0)
    mean = mean.astype(features.dtype)
    return jnp.moveaxis(mean, -1, 1) if data_format == "NCHW" else mean


def as_features(features: ArrayLike, data_format: DataFormat) -> jax.Array:
    """Images `[B, H, W, C]` of at least one pixel."""
    if data_format not in get_args(DataFormat):
        raise ValueError(f"data_format is {data_format!r}; choose 'NHWC' (channels last) or 'NCHW' (channels first)")
    array = jnp.asarray(features)
    if array.ndim != 4 or not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(
            f"features is {array.dtype}{list(array.shape)}, and a floating-point array of 4 axes was wanted: "
            f"{', '.join(data_format)}"
        )
    array = jnp.moveaxis(array, 1, -1) if data_format == "NCHW" else array
    if not all(array.shape[:3]):
        raise ValueError(f"features has shape {np.shape(features)}, and holds no pixel; give an image of at least one")
    return array


def as_bins(output_size: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width of the grid of bins."""
    pair: Any = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size, output_size)
    if len(pair) != 2 or not all(isinstance(size, int | np.integer) and size >= 1 for size in pair):
        raise ValueError(f"output_size is {output_size!r}; give an integer of at least 1, or a pair (height, width)")
    return int(pair[0]), int(pair[1])


def as_rois(rois: Any, images: int) -> tuple[jax.Array, jax.Array | None]:
    """Rows `[K, 5]` of image and corners, and which of them are there, None for all."""
    if isinstance(rois, tuple | list):
        if len(rois) != images:
            raise ValueError(f"rois holds {len(rois)} arrays of boxes, and {images} were wanted, one for each image")
        each = [as_boxes(r.values if isinstance(r, Padded) else r, name=f"rois[{i}]") for i, r in enumerate(rois)]
        there = [r.valid if isinstance(r, Padded) else jnp.ones(len(b), bool) for r, b in zip(rois, each, strict=True)]
        if not each:
            return jnp.zeros((0, 5), jnp.float32), None
        dtype = jnp.result_type(*each)
        rows = [jnp.concatenate([jnp.full((len(b), 1), i, dtype), b.astype(dtype)], 1) for i, b in enumerate(each)]
        array = jnp.concatenate(rows)
        valid = jnp.concatenate(there) if any(isinstance(r, Padded) for r in rois) else None
    else:
        array = jnp.asarray(rois.values if isinstance(rois, Padded) else rois)
        valid = rois.valid if isinstance(rois, Padded) else None
    if array.ndim != 2 or array.shape[1] != 5:
        raise ValueError(
            f"rois has shape {array.shape}, and [K, 5] was wanted, the image's index and 4 corners; or give a list of "
            f"arrays [L, 4], one for each image"
        )
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"rois has dtype {array.dtype}, and a floating-point one was wanted; convert it")
    return array, valid


def _axis(start: jax.Array, end: jax.Array, bins: int, length: int, sampling_ratio: int, aligned: bool) -> Axis:
    size = end - start if aligned else jnp.maximum(end - start, 1)
    step = divided(size, bins)[:, None]
    begin = start[:, None] + rounded(jnp.arange(bins, dtype=start.dtype) * step)
    if sampling_ratio > 0:
        return Axis(begin, step, jnp.full_like(step, sampling_ratio), jnp.zeros_like(begin), sampling_ratio)
    # Beyond 2**31 samples, torchvision's integer overflows; NaN and no size at all give no sample here as there.
    samples = jnp.where((step > 0) & (step < 2.0**31), jnp.ceil(step), 0)
    spacing = step / jnp.maximum(samples, 1)
    apart = jnp.where(spacing > 0, spacing, 1)
    # One to spare on either side, and more where coordinates are so large that they are rounded to more than that.
    spare = 1 + 8 * jnp.finfo(step.dtype).eps * (jnp.abs(begin) + step + length) / apart
    first = jnp.clip(jnp.floor((-1 - begin) / apart - spare), 0, samples)
    last = jnp.clip(jnp.ceil((length - begin) / apart + spare), 0, samples)
    count = jnp.where(jnp.isfinite(begin), last - first, 0)
    return Axis(begin, step, samples, first, jnp.max(count, initial=0).astype(jnp.int32))


def _samples(axis: Axis, turn: jax.Array, length: int) -> tuple[jax.Array, ...]:
    """Both neighbours of one sample of each bin, the weight of the second, whether it is inside: `[K, bins]` each."""
    number = axis.first + jnp.asarray(turn, axis.first.dtype)  # without jit a loop counts with Python's integers
    place = axis.begin + divided((number + 0.5) * axis.step, axis.samples)
    inside = (number < axis.samples) & (place >= -1) & (place <= length)
    place = jnp.where(inside, jnp.maximum(place, 0), 0)
    low = jnp.minimum(place.astype(jnp.int32), length - 1)
    high = jnp.minimum(low + 1, length - 1)
    return low, high, jnp.where(low == high, 0, place - low), inside


def _corners(ys: Axis, xs: Axis, turn: jax.Array, height: int, width: int, dtype: Any) -> tuple[list[Any], jax.Array]:
    """Row, column and weight `[K, h, w, 1]` of four pixels, and whether the sample is inside."""
    y_low, y_high, y_part, y_inside = _samples(ys, turn // xs.turns, height)
    x_low, x_high, x_part, x_inside = _samples(xs, turn % xs.turns, width)
    rows, columns = ((y_low, 1 - y_part), (y_high, y_part)), ((x_low, 1 - x_part), (x_high, x_part))
    four = [
        (y[:, :, None], x[:, None, :], (wy[:, :, None] * wx[:, None, :]).astype(dtype)[..., None])
        for y, wy in rows
        for x, wx in columns
    ]
    return four, (y_inside[:, :, None] & x_inside[:, None, :])[..., None]


def _sampled(features: jax.Array, image: jax.Array, ys: Axis, xs: Axis) -> jax.Array:
    """Sums of the samples of each bin, `[K, h, w, C]`."""
    _, height, width, channels = features.shape

    def add(turn: jax.Array, total: jax.Array) -> jax.Array:
        four, inside = _corners(ys, xs, turn, height, width, features.dtype)
        value = sum(features[image[:, None, None], y, x] * weight for y, x, weight in four)
        return total + jnp.where(inside, value, 0)

    shape = (len(image), ys.begin.shape[1], xs.begin.shape[1], channels)
    return _repeated(ys, xs, add, jnp.zeros(shape, features.dtype))


def _repeated(ys: Axis, xs: Axis, body: Callable[[jax.Array, jax.Array], jax.Array], start: jax.Array) -> jax.Array:
    return lax.fori_loop(0, ys.turns * xs.turns, body, start) if start.size else start


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sampled_reverse(shape: tuple[int, ...], features: jax.Array, image: jax.Array, ys: Axis, xs: Axis) -> jax.Array:
    """`_sampled` for a number of turns that is known only when the graph runs, where JAX has no reverse mode."""
    return _sampled(features, image, ys, xs)


def _forward(shape: tuple[int, ...], features: jax.Array, *where: Any) -> tuple[jax.Array, Any]:
    return _sampled(features, *where), where


def _backward(shape: tuple[int, ...], where: Any, cotangent: jax.Array) -> tuple[jax.Array, None, None, None]:
    image, ys, xs = where
    height, width = shape[1:3]

    def add(turn: jax.Array, total: jax.Array) -> jax.Array:
        four, inside = _corners(ys, xs, turn, height, width, cotangent.dtype)
        for y, x, weight in four:
            total = total.at[image[:, None, None], y, x].add(jnp.where(inside, cotangent * weight, 0))
        return total

    total = jnp.zeros(shape, cotangent.dtype)
    return _repeated(ys, xs, add, total), None, None, None


_sampled_reverse.defvjp(_forward, _backward)
