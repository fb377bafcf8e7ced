"""The way back from max pooling: each element where it came from, zeros elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ..arguments import as_integers, check_floating
from ..autocast import autocasts
from ..layer import Layer
from ..layout import DataFormat, Layout, as_layout, from_channels_last, spatial_axes, to_channels_last
from .span import Sizes, as_windows, check_pooled


def _unpooled_sizes(
    input: jax.Array, layout: Layout, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], wanted: Any
) -> tuple[int, ...]:
    """Of the spatial axes: what was asked for, checked, or the least that a pooling of such windows comes from."""
    spatial = len(kernel)
    axes = spatial_axes(layout, input.ndim, spatial)
    sizes = tuple(
        (input.shape[axis] - 1) * s + k - 2 * p for axis, k, s, p in zip(axes, kernel, stride, padding, strict=True)
    )
    if wanted is not None:
        items = tuple(wanted) if isinstance(wanted, Sequence) else (wanted,)
        if len(items) == spatial + 2:
            items = items[1:-1] if layout == "channels_last" else items[2:]
        if len(items) != spatial:
            raise ValueError(
                f"output_size is {wanted!r}; give {spatial} sizes, one for each spatial axis, or the whole shape of a "
                f"batch, {spatial + 2} of them"
            )
        for item, size, s in zip(items, sizes, stride, strict=True):
            if not size - s < item < size + s:
                raise ValueError(
                    f"output_size is {wanted!r}, and {item} is not between {size - s} and {size + s}, which is where a "
                    "max pooling with these windows gives as many of them; give the size of its input"
                )
        sizes = as_integers("output_size", items, spatial, least=0)
    elif min(sizes) < 0:
        raise ValueError(f"the output would have sizes {sizes}; give a smaller padding or a larger input")
    return sizes


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _placed(input: jax.Array, indices: jax.Array, size: int) -> jax.Array:
    """`[B, windows, C]` at `indices` of `[B, size, C]`."""
    return _places(input, indices, size).set(input, mode="drop")


@_placed.defjvp
def _placed_jvp(size: int, primals: Any, tangents: Any) -> Any:
    input, indices = primals
    # PyTorch's gradient of every element is what stands at its index, also where a later one has overwritten it.
    return _placed(input, indices, size), _places(input, indices, size).add(tangents[0], mode="drop")


def _places(input: jax.Array, indices: jax.Array, size: int) -> Any:
    batch, _, channels = input.shape
    indices = jnp.where(indices < 0, size, indices)  # which is dropped; a negative one would count from the end
    zeros = jnp.zeros((batch, size, channels), input.dtype)
    return zeros.at[jnp.arange(batch)[:, None, None], indices, jnp.arange(channels)]


def _max_unpool(
    spatial: int,
    input: jax.Array,
    indices: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    output_size: Any,
    data_format: str,
) -> jax.Array:
    layout = as_layout(data_format, spatial)
    windows = as_windows(spatial, kernel_size, stride, padding)
    check_pooled(input, layout, spatial, channels="where batched")
    check_floating("input", input)
    if not jnp.issubdtype(indices.dtype, jnp.integer):
        raise TypeError(f"indices is {indices.dtype}, and integers were wanted: those of a max pooling")
    if indices.shape != input.shape:
        raise ValueError(
            f"indices has shape {tuple(indices.shape)} and input {tuple(input.shape)}; give those of one max pooling"
        )
    sizes = _unpooled_sizes(input, layout, windows.kernel_size, windows.stride, windows.padding, output_size)
    images, places = (to_channels_last(array, layout, spatial) for array in (input, indices))
    batch = images.shape[0] if images.ndim == spatial + 2 else 1
    channels = images.shape[-1]
    flat = batch, math.prod(images.shape[-spatial - 1 : -1]), channels
    output = _placed(images.reshape(flat), places.reshape(flat), math.prod(sizes))
    lead = (batch,) if input.ndim == spatial + 2 else ()
    return from_channels_last(output.reshape(*lead, *sizes, channels), layout, spatial)


@autocasts
def max_unpool1d(
    input: jax.Array,
    indices: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
    *,
    data_format: DataFormat = "NLC",
) -> jax.Array:
    """The way back from `max_pool1d`, as `MaxUnpool1d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_unpool1d.html
    """
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size, data_format)


@autocasts
def max_unpool2d(
    input: jax.Array,
    indices: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
    *,
    data_format: DataFormat = "NHWC",
) -> jax.Array:
    """The way back from `max_pool2d`, as `MaxUnpool2d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_unpool2d.html
    """
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size, data_format)


@autocasts
def max_unpool3d(
    input: jax.Array,
    indices: jax.Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
    *,
    data_format: DataFormat = "NDHWC",
) -> jax.Array:
    """The way back from `max_pool3d`, as `MaxUnpool3d` has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_unpool3d.html
    """
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size, data_format)


class _MaxUnpool(Layer):
    _spatial: int

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        *,
        data_format: DataFormat = "channels_last",
    ):
        windows = as_windows(self._spatial, kernel_size, stride, padding)
        self.kernel_size, self.stride, self.padding = windows.kernel_size, windows.stride, windows.padding
        self.data_format = as_layout(data_format, self._spatial)

    def __call__(self, input: jax.Array, indices: jax.Array, output_size: Sequence[int] | None = None) -> jax.Array:
        windows = self.kernel_size, self.stride, self.padding
        return _max_unpool(self._spatial, input, indices, *windows, output_size, self.data_format)


class MaxUnpool1d(_MaxUnpool):
    """Puts each element of a `MaxPool1d`'s output where it came from, among zeros.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxUnpool1d.html

    Args:
      kernel_size: of the windows of the pooling: an integer.
      stride: between them; None for `kernel_size`.
      padding: that the pooling had.
      data_format: `"NLC"` for `[B, L, C]`, or `"NCL"`; the batch axis is optional.

    It is called with the pooling's output, its indices, and optionally `output_size`: the spatial sizes of the
    pooling's input, or its whole shape with the batch, in the layout of `data_format`. An index that is met twice holds
    the later element on a CPU, and any of them elsewhere, as in PyTorch; one outside of the output is dropped, where
    PyTorch raises.

    Raises:
      ValueError: where the shapes of the two differ, or a pooling of `output_size` would have other sizes than `input`.
      TypeError: where `input` is not floating, or `indices` no integers.

    Example:
      >>> x = jnp.ones((1, 8, 3))
      >>> MaxUnpool1d(2)(*MaxPool1d(2, return_indices=True)(x)).shape == x.shape
      True
    """

    _spatial = 1


class MaxUnpool2d(_MaxUnpool):
    """Puts each element of a `MaxPool2d`'s output where it came from, among zeros.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxUnpool2d.html

    Args:
      kernel_size: of the windows of the pooling: an integer, or (height, width).
      stride: between them; None for `kernel_size`.
      padding: that the pooling had.
      data_format: `"NHWC"` for `[B, H, W, C]`, or `"NCHW"`; the batch axis is optional.

    It is called with the pooling's output, its indices, and optionally `output_size`: the spatial sizes of the
    pooling's input, or its whole shape with the batch, in the layout of `data_format`. An index that is met twice holds
    the later element on a CPU, and any of them elsewhere, as in PyTorch; one outside of the output is dropped, where
    PyTorch raises.

    Raises:
      ValueError: where the shapes of the two differ, or a pooling of `output_size` would have other sizes than `input`.
      TypeError: where `input` is not floating, or `indices` no integers.

    Example:
      >>> x = jnp.ones((1, 8, 8, 3))
      >>> MaxUnpool2d(2)(*MaxPool2d(2, return_indices=True)(x)).shape == x.shape
      True
    """

    _spatial = 2


class MaxUnpool3d(_MaxUnpool):
    """Puts each element of a `MaxPool3d`'s output where it came from, among zeros.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxUnpool3d.html

    Args:
      kernel_size: of the windows of the pooling: an integer, or (depth, height, width).
      stride: between them; None for `kernel_size`.
      padding: that the pooling had.
      data_format: `"NDHWC"` for `[B, D, H, W, C]`, or `"NCDHW"`; the batch axis is optional.

    It is called with the pooling's output, its indices, and optionally `output_size`: the spatial sizes of the
    pooling's input, or its whole shape with the batch, in the layout of `data_format`. An index that is met twice holds
    the later element on a CPU, and any of them elsewhere, as in PyTorch; one outside of the output is dropped, where
    PyTorch raises.

    Raises:
      ValueError: where the shapes of the two differ, or a pooling of `output_size` would have other sizes than `input`.
      TypeError: where `input` is not floating, or `indices` no integers.

    Example:
      >>> x = jnp.ones((1, 8, 8, 8, 3))
      >>> MaxUnpool3d(2)(*MaxPool3d(2, return_indices=True)(x)).shape == x.shape
      True
    """

    _spatial = 3
