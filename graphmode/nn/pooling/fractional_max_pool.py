"""Fractional max pooling: windows of one size at distances that are drawn, so that any output size can be had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from ..arguments import check_floating, check_same_dtype
from ..layer import Layer
from ..layout import DataFormat, Layout, as_layout, channel_axis, spatial_axes
from .largest import Walk, largest_over
from .span import Sizes, Span, as_axes, check_pooled

Ratios = float | Sequence[float]
Pooled = jax.Array | Any  # a pair, where the indices are asked for too


class RandomSamples(nnx.Variable):
    """Where the windows of a fractional pooling stand: `[B, C, axes]` in [0, 1)."""


def as_ratios(value: Any, spatial: int) -> tuple[float, ...]:
    """One number for all spatial axes, or one each."""
    items = tuple(value) if isinstance(value, Sequence) else (value,)
    items = items * spatial if len(items) == 1 else items
    if len(items) != spatial or not all(isinstance(item, int | float) for item in items):
        raise ValueError(f"output_ratio is {value!r}; give a number, or a tuple of {spatial} of them")
    return tuple(float(item) for item in items)


def _starts(samples: jax.Array, size: int, kernel: int, count: int) -> jax.Array:
    """`[..., count]`: where the windows begin along one axis, for each of the samples; the last ends with the axis.

    Every step is rounded to the dtype of the samples, as PyTorch's are: a window may hang on it.
    """
    dtype = samples.dtype
    last = jnp.full((*samples.shape, 1), size - kernel)
    if count == 1:
        return last
    wide = jnp.promote_types(dtype, jnp.float32)
    alpha = np.asarray(np.asarray(size - kernel, dtype) / np.asarray(count - 1, dtype), dtype)

    def rounded(x: Any) -> Any:
        return lax.reduce_precision(x, jnp.finfo(dtype).nexp, jnp.finfo(dtype).nmant) if dtype != wide else x

    alpha, number = alpha.astype(wide), np.arange(count - 1).astype(dtype).astype(wide)
    each = samples.astype(wide)[..., None]
    moved = rounded(rounded(each + number) * alpha)
    return jnp.concatenate([moved.astype(int) - rounded(each * alpha).astype(int), last], -1)


def _walk(starts: jax.Array, axis: int, size: int, kernel: int) -> Walk:
    """`starts` broadcasts against the input, with the windows along `axis`."""
    count = starts.shape[axis]
    shape = [count * kernel if i == axis else n for i, n in enumerate(starts.shape)]
    within = np.arange(kernel).reshape(-1, *[1] * (starts.ndim - axis - 1))
    places = (jnp.expand_dims(starts, axis + 1) + within).reshape(shape)
    span = Span(axis, count * kernel, kernel, kernel, 1, 0, count)
    return Walk(span, lambda tap: starts + tap, lambda x: jnp.take_along_axis(x, places, axis))


def _fractional_max_pool(
    spatial: int,
    input: jax.Array,
    kernel_size: Sizes,
    output_size: Sizes | None,
    output_ratio: Ratios | None,
    return_indices: bool,
    random_samples: jax.Array | None,
    rngs: nnx.Rngs | nnx.RngStream | None,
    data_format: str,
) -> Pooled:
    layout = as_layout(data_format, spatial)
    kernel = as_axes("kernel_size", kernel_size, spatial, least=1)
    if output_size is None and output_ratio is None:
        raise ValueError("output_size and output_ratio are both None; give one of them")
    check_pooled(input, layout, spatial, channels="where batched")
    check_floating("input", input)
    axes = spatial_axes(layout, input.ndim, spatial)
    sizes = [input.shape[axis] for axis in axes]
    if output_size is not None:
        counts = as_axes("output_size", output_size, spatial, least=0)
    else:
        counts = tuple(int(size * ratio) for size, ratio in zip(sizes, as_ratios(output_ratio, spatial), strict=True))
    spare = spatial == 3  # PyTorch's kernel of three axes wants one element more than the windows need
    if any(n + k - 1 + spare > size for n, k, size in zip(counts, kernel, sizes, strict=True)):
        raise ValueError(
            f"input has shape {tuple(input.shape)}, too small for {counts} windows of kernel_size {kernel}: each axis "
            f"takes at least their number and the size of one{'' if spare else ', less 1'}; give a smaller output"
        )
    samples = _samples(input, layout, spatial, random_samples, rngs)
    if not all(counts):
        shape = list(input.shape)
        for axis, count in zip(axes, counts, strict=True):
            shape[axis] = count
        output = jnp.zeros(shape, input.dtype)
        return (output, jnp.zeros(shape, int)) if return_indices else output
    walks = []
    for i, (axis, size, k, count) in enumerate(zip(axes, sizes, kernel, counts, strict=True)):
        # PyTorch's first sample is that of the width in two dimensions, and of the depth in three.
        starts = _starts(samples[..., spatial - 1 - i if spatial == 2 else i], size, k, count)
        if layout == "channels_last":
            starts = jnp.moveaxis(starts, -1, -2)
        starts = jnp.expand_dims(starts, [other for other in axes if other != axis])
        walks.append(_walk(starts, axis, size, k))
    output, places = largest_over(input, walks, positions=return_indices)
    return output if places is None else (output, places)


def _samples(
    input: jax.Array,
    layout: Layout,
    spatial: int,
    given: jax.Array | None,
    rngs: nnx.Rngs | nnx.RngStream | None,
) -> jax.Array:
    """`[B, C, spatial]`, or `[C, spatial]` where `input` has no batch: what was given, or drawn."""
    batched = input.ndim == spatial + 2
    batch, channels = input.shape[0] if batched else 1, input.shape[channel_axis(layout, input.ndim, spatial)]
    if given is None:
        if rngs is None:
            raise ValueError("rngs and random_samples are both None; give one, to draw from or to take")
        key = rngs.dropout() if isinstance(rngs, nnx.Rngs) else rngs()
        given = jax.random.uniform(key, (batch, channels, spatial), input.dtype)
    check_same_dtype(input=input, random_samples=given)
    if given.ndim != 3 or given.shape[0] < batch or given.shape[1:] != (channels, spatial):
        raise ValueError(
            f"random_samples has shape {tuple(given.shape)}; give {(batch, channels, spatial)}: a sample for each axis "
            "of each channel"
        )
    return given[:batch] if batched else given[0]


def fractional_max_pool2d(
    input: jax.Array,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    random_samples: jax.Array | None = None,
    *,
    rngs: nnx.Rngs | nnx.RngStream | None = None,
    data_format: DataFormat = "NHWC",
) -> Pooled:
    """The largest element of each window, the windows at distances that are drawn, as `FractionalMaxPool2d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.fractional_max_pool2d.html
    """
    return _fractional_max_pool(
        2, input, kernel_size, output_size, output_ratio, return_indices, random_samples, rngs, data_format
    )


def fractional_max_pool2d_with_indices(
    input: jax.Array,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = True,
    random_samples: jax.Array | None = None,
    *,
    rngs: nnx.Rngs | nnx.RngStream | None = None,
    data_format: DataFormat = "NHWC",
) -> Pooled:
    """`fractional_max_pool2d` with its indices, whatever `return_indices` says."""
    return _fractional_max_pool(
        2, input, kernel_size, output_size, output_ratio, True, random_samples, rngs, data_format
    )


def fractional_max_pool3d(
    input: jax.Array,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    random_samples: jax.Array | None = None,
    *,
    rngs: nnx.Rngs | nnx.RngStream | None = None,
    data_format: DataFormat = "NDHWC",
) -> Pooled:
    """The largest element of each window, the windows at distances that are drawn, as `FractionalMaxPool3d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.fractional_max_pool3d.html
    """
    return _fractional_max_pool(
        3, input, kernel_size, output_size, output_ratio, return_indices, random_samples, rngs, data_format
    )


def fractional_max_pool3d_with_indices(
    input: jax.Array,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = True,
    random_samples: jax.Array | None = None,
    *,
    rngs: nnx.Rngs | nnx.RngStream | None = None,
    data_format: DataFormat = "NDHWC",
) -> Pooled:
    """`fractional_max_pool3d` with its indices, whatever `return_indices` says."""
    return _fractional_max_pool(
        3, input, kernel_size, output_size, output_ratio, True, random_samples, rngs, data_format
    )


class _FractionalMaxPool(Layer):
    _spatial: int

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: Ratios | None = None,
        return_indices: bool = False,
        random_samples: jax.Array | None = None,
        *,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
        data_format: DataFormat = "channels_last",
    ):
        self.kernel_size = as_axes("kernel_size", kernel_size, self._spatial, least=1)
        if (output_size is None) == (output_ratio is None):
            raise ValueError(
                f"output_size is {output_size!r} and output_ratio is {output_ratio!r}; give one of them, and not both"
            )
        self.output_size = None if output_size is None else as_axes("output_size", output_size, self._spatial, least=0)
        self.output_ratio = None if output_ratio is None else as_ratios(output_ratio, self._spatial)
        if self.output_ratio and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio is {output_ratio!r}; give numbers between 0 and 1")
        self.return_indices = return_indices
        self.data_format = as_layout(data_format, self._spatial)
        self._random_samples = nnx.data(None if random_samples is None else RandomSamples(jnp.asarray(random_samples)))
        stream = rngs.dropout if isinstance(rngs, nnx.Rngs) else rngs
        self.rngs = nnx.data(None if stream is None else stream.fork())

    def __call__(
        self,
        input: jax.Array,
        *,
        random_samples: jax.Array | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Pooled:
        if random_samples is None and self._random_samples is not None:
            random_samples = self._random_samples.get_value()
        sizes = self.kernel_size, self.output_size, self.output_ratio
        drawn = random_samples, self.rngs if rngs is None else rngs
        return _fractional_max_pool(self._spatial, input, *sizes, self.return_indices, *drawn, self.data_format)


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest element of each window, the windows as many as asked for, at distances that are drawn at every call.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.FractionalMaxPool2d.html

    Args:
      kernel_size: of a window: an integer, or (height, width).
      output_size: the number of windows along each axis; at most the size of the axis, less `kernel_size`, plus 1.
      output_ratio: the same as a fraction of the size, between 0 and 1, in place of `output_size`.
      return_indices: whether to return, beside the output, where each element stands among those of its channel, row by
        row.
      random_samples: `[B, C, 2]` in [0, 1), in the dtype of the input: taken at every call in place of drawing. PyTorch
        has it as `_random_samples`, in the state_dict too. A call takes some of its own, as a keyword.
      rngs: to draw from, the stream `dropout`; a call takes one too.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    Raises:
      ValueError: where an argument is out of range, or the windows do not fit into `input`.
      TypeError: where `input` is not floating, or of another dtype than the samples.

    Example:
      >>> FractionalMaxPool2d(2, output_size=4, rngs=nnx.Rngs(0))(jnp.ones((1, 8, 8, 3))).shape
      (1, 4, 4, 3)
    """

    _spatial = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest element of each window, the windows as many as asked for, at distances that are drawn at every call.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.FractionalMaxPool3d.html

    Args:
      kernel_size: of a window: an integer, or (depth, height, width).
      output_size: the number of windows along each axis; at most the size of the axis, less `kernel_size`.
      output_ratio: the same as a fraction of the size, between 0 and 1, in place of `output_size`.
      return_indices: whether to return, beside the output, where each element stands among those of its channel, row by
        row.
      random_samples: `[B, C, 3]` in [0, 1), in the dtype of the input: taken at every call in place of drawing. PyTorch
        has it as `_random_samples`, in the state_dict too. A call takes some of its own, as a keyword.
      rngs: to draw from, the stream `dropout`; a call takes one too.
      data_format: `"NDHWC"` for `[B, D, H, W, C]`, or `"NCDHW"`; the batch axis is optional.

    Raises:
      ValueError: where an argument is out of range, or the windows do not fit into `input`.
      TypeError: where `input` is not floating, or of another dtype than the samples.

    Example:
      >>> FractionalMaxPool3d(2, output_size=4, rngs=nnx.Rngs(0))(jnp.ones((1, 8, 8, 8, 3))).shape
      (1, 4, 4, 4, 3)
    """

    _spatial = 3
