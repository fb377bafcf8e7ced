"""`torch.nn.Flatten` and `Unflatten`: axes joined and split in the order of PyTorch's elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ..arguments import as_integer
from ..layer import Layer
from ..layout import DataFormat, as_layout, spelled

_MEANT = "set data_format='channels_first' to take the axes as they stand"


def flatten(
    input: jax.Array, start_dim: int = 0, end_dim: int = -1, *, data_format: DataFormat = "channels_last"
) -> jax.Array:
    """Axes `start_dim` to `end_dim` as one, its elements in PyTorch's order.

    PyTorch flattens `[B, C, H, W]` channel by channel, and the weights of the layer that follows are laid out so. Where
    channels are last, `[B, H, W, C]` is therefore turned to `[B, C, H, W]` first. That is wrong for `[B, T, C]` that is
    the same in PyTorch, tokens with their features for instance: `data_format="channels_first"` leaves all axes where
    they are.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.flatten.html

    Args:
      input: any shape. Where channels are last, with at least 3 axes, it is `[B, *spatial, C]`; with a format that says
        the number of spatial axes, `"NHWC"`, also `[*spatial, C]`.
      start_dim, end_dim: the first and the last axis to join. Where channels are last, of at least 3 axes: from the
        first after the batch, or from the batch itself with a format such as `"NHWC"`, to the last.
      data_format: `"channels_last"`, `"channels_first"`, or spelled out.

    Raises:
      ValueError: where there is no such axis, `start_dim` comes after `end_dim`, or, where channels are last, these
        axes have no place that is the same in PyTorch.
    """
    layout = as_layout(data_format)
    start, end = (_as_axis(name, dim, input.ndim) for name, dim in (("start_dim", start_dim), ("end_dim", end_dim)))
    if start > end:
        raise ValueError(f"start_dim is {start_dim} and end_dim {end_dim}, and the first comes before the last")
    if layout == "channels_last" and input.ndim > 2 and start < end:
        input = _as_in_torch(input, start, end, data_format)
    if input.ndim == 0:
        return input.reshape(1)
    return input.reshape(*input.shape[:start], math.prod(input.shape[start : end + 1]), *input.shape[end + 1 :])


def unflatten(
    input: jax.Array, dim: int, sizes: Sequence[int], *, data_format: DataFormat = "channels_last"
) -> jax.Array:
    """Axis `dim` as several: the way back of `flatten` in the same `data_format`.

    Where channels are last, `[B, C * H * W]` becomes `[B, H, W, C]` for the sizes `(C, H, W)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.unflatten.html

    Args:
      input: any shape. Where channels are last, `[B, F]` or `[F]`.
      dim: axis to split. Where channels are last, the last.
      sizes: that it is split into, in PyTorch's order, channels first, whatever `data_format` is; one may be -1.
      data_format: `"channels_last"`, `"channels_first"`, or spelled out.

    Raises:
      ValueError: where there is no such axis, the sizes do not make its length, or, where channels are last, `dim` is
        another axis.
    """
    layout = as_layout(data_format)
    axis = _as_axis("dim", dim, input.ndim)
    if not input.ndim:
        raise ValueError("input has no axes to split")
    sizes = _filled(sizes, input.shape[axis])
    split = input.reshape(*input.shape[:axis], *sizes, *input.shape[axis + 1 :])
    if layout == "channels_first" or len(sizes) == 1:
        return split
    if input.ndim > 2 or axis != input.ndim - 1:
        raise ValueError(
            f"dim is {dim} and input has shape {tuple(input.shape)}; where channels are last, the last axis of [B, F] "
            f"or [F] is split, into channels and spatial axes; {_MEANT}"
        )
    if data_format not in ("channels_last", spelled("channels_last", min(len(sizes) - 1, 3))):
        raise ValueError(f"the sizes are {tuple(sizes)} and data_format {data_format!r}; give (C, *spatial)")
    return jnp.moveaxis(split, axis, -1)


class Flatten(Layer):
    """Axes `start_dim` to `end_dim` as one, its elements in PyTorch's order.

    `[B, H, W, C]` is turned to `[B, C, H, W]` first, as PyTorch holds it, so that the weights of the layer that follows
    fit. That is wrong for `[B, T, C]` that is the same in PyTorch, tokens with their features for instance: they want
    `data_format="channels_first"`, which leaves all axes where they are.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Flatten.html

    Args:
      start_dim, end_dim: the first and the last axis to join. Where channels are last, of at least 3 axes: from the
        first after the batch, or from the batch itself with a format such as `"NHWC"`, to the last.
      data_format: `"channels_last"`, `"channels_first"`, or spelled out.

    Raises:
      ValueError: where `input` has no such axes, or, where channels are last, they have no place that is the same in
        PyTorch.

    Example:
      >>> Flatten()(jnp.ones((2, 5, 5, 3))).shape
      (2, 75)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1, *, data_format: DataFormat = "channels_last"):
        as_layout(data_format)
        self.start_dim = start_dim
        self.end_dim = end_dim
        self.data_format = data_format

    def __call__(self, input: jax.Array) -> jax.Array:
        return flatten(input, self.start_dim, self.end_dim, data_format=self.data_format)


class Unflatten(Layer):
    """Axis `dim` as several: the way back of `Flatten` in the same `data_format`.

    Where channels are last, `[B, C * H * W]` becomes `[B, H, W, C]` for the sizes `(C, H, W)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Unflatten.html

    Args:
      dim: axis to split; where channels are last, the last of `[B, F]` or `[F]`.
      unflattened_size: that it is split into, in PyTorch's order, channels first, whatever `data_format` is; one may
        be -1.
      data_format: `"channels_last"`, `"channels_first"`, or spelled out.

    Raises:
      TypeError: where `dim` is no integer, or the sizes are none: PyTorch's named axes have no counterpart.
      ValueError: where the sizes do not make the length of the axis.

    Example:
      >>> Unflatten(1, (3, 5, 4))(jnp.ones((2, 60))).shape
      (2, 5, 4, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int], *, data_format: DataFormat = "channels_last"):
        as_layout(data_format)
        if not isinstance(dim, int):
            raise TypeError(f"dim is {dim!r}; give the number of an axis, since axes here have no names")
        if not isinstance(unflattened_size, Sequence) or isinstance(unflattened_size, str):
            raise TypeError(f"unflattened_size is {unflattened_size!r}; give a tuple of integers")
        sizes = tuple(as_integer(f"unflattened_size[{i}]", size, least=-1) for i, size in enumerate(unflattened_size))
        self.dim = dim
        self.unflattened_size = sizes
        self.data_format = data_format

    def __call__(self, input: jax.Array) -> jax.Array:
        return unflatten(input, self.dim, self.unflattened_size, data_format=self.data_format)


def _as_in_torch(input: jax.Array, start: int, end: int, data_format: str) -> jax.Array:
    """Channels moved to where PyTorch has them, for axes whose join means the same on both sides."""
    told = f"input has shape {tuple(input.shape)}, data_format is {data_format!r}, and axes {start} to {end} were to be"
    if end != input.ndim - 1:
        raise ValueError(f"{told} joined without the channels; {_MEANT}")
    if data_format == "channels_last":
        if start != 1:
            raise ValueError(f"{told} joined, and the first after the batch, 1, was wanted; {_MEANT}, or spell it out")
        return jnp.moveaxis(input, -1, 1)
    spatial = next(n for n in (1, 2, 3) if spelled("channels_last", n) == data_format)
    batch = input.ndim - spatial - 1
    if batch not in (0, 1) or start > batch:
        raise ValueError(f"{told} joined, and they begin after the batch, or with it; {_MEANT}")
    return jnp.moveaxis(input, -1, batch)


def _as_axis(name: str, dim: int, ndim: int) -> int:
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        raise ValueError(f"{name} is {dim}, and input has {ndim} axes")
    return dim % max(ndim, 1)


def _filled(sizes: Sequence[int], length: int) -> tuple[int, ...]:
    """The sizes with what -1 stands for."""
    sizes = tuple(as_integer(f"sizes[{i}]", size, least=-1) for i, size in enumerate(sizes))
    known = math.prod(size for size in sizes if size != -1)
    free = sizes.count(-1)
    fits = known == length if not free else (known > 0 and length % known == 0)
    if not sizes or free > 1 or not fits:
        raise ValueError(f"the sizes are {sizes}, which do not make the length of the axis, {length}")
    return tuple(length // known if size == -1 else size for size in sizes)
