"""Where an array's channels are: `data_format`, and what follows from it."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from .arguments import check_array

DataFormat = Literal["channels_last", "channels_first", "NLC", "NCL", "NHWC", "NCHW", "NDHWC", "NCDHW"]
Layout = Literal["channels_last", "channels_first"]

_SPELLED = {1: ("NLC", "NCL"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}


def as_layout(data_format: str, spatial: int | None = None) -> Layout:
    """`data_format` as `"channels_last"` or `"channels_first"`.

    Args:
      data_format: one of the two, or spelled out for the number of spatial axes: NLC and NCL for one, NHWC and NCHW for
        two, NDHWC and NCDHW for three.
      spatial: number of spatial axes; None where a layer takes any.

    Raises:
      ValueError: for another word, or one for another number of axes.
    """
    ranks = _SPELLED if spatial is None else {spatial: _SPELLED[spatial]}
    last = ["channels_last", *(last for last, _ in ranks.values())]
    first = ["channels_first", *(first for _, first in ranks.values())]
    if data_format in last:
        return "channels_last"
    if data_format in first:
        return "channels_first"
    raise ValueError(
        f"data_format is {data_format!r}; choose {' or '.join(map(repr, last[::-1]))} (channels last), or "
        f"{' or '.join(map(repr, first[::-1]))} (channels first)"
    )


def spelled(layout: Layout, spatial: int) -> str:
    """`"NHWC"` for channels last and two spatial axes: what `lax`'s dimension numbers and messages take."""
    return _SPELLED[spatial][layout == "channels_first"]


def channel_axis(layout: Layout, ndim: int, spatial: int | None = None) -> int:
    """The axis of the channels, counted from 0, in an array of `ndim` axes.

    Without `spatial`, PyTorch's rule for layers of any rank: the second axis where channels are first (the only one of
    an array that has one).
    """
    if layout == "channels_last":
        return ndim - 1
    return min(1, ndim - 1) if spatial is None else ndim - spatial - 1


def spatial_axes(layout: Layout, ndim: int, spatial: int) -> tuple[int, ...]:
    """The axes beside batch and channels, counted from 0."""
    end = ndim - 1 if layout == "channels_last" else ndim
    return tuple(range(end - spatial, end))


def check_shape(
    input: jax.Array,
    layout: Layout,
    spatial: int,
    *,
    channels: int | None = None,
    channels_name: str = "channels",
    batched: bool = False,
    name: str = "input",
) -> None:
    """Raises `ValueError` unless `input` is `[B, *spatial, C]` (or as the layout says), the batch axis optional.

    `TypeError` for what is no array.

    Args:
      input: to be checked.
      layout: of its channels.
      spatial: number of spatial axes.
      channels: that are wanted; None for any number.
      channels_name: of the argument that wants them.
      batched: whether the batch axis must be there.
      name: of the argument.
    """
    check_array(name, input)
    letters = spelled(layout, spatial)
    ranks = (spatial + 2,) if batched else (spatial + 1, spatial + 2)
    if input.ndim not in ranks:
        wanted = f"{letters} was wanted" if batched else f"{letters}, or {letters[1:]} without a batch, was wanted"
        raise ValueError(f"{name} has shape {tuple(input.shape)}, and {wanted}: {' or '.join(map(str, ranks))} axes")
    axis = channel_axis(layout, input.ndim, spatial)
    if channels is not None and input.shape[axis] != channels:
        raise ValueError(
            f"{name} has shape {tuple(input.shape)}, so {input.shape[axis]} channels on axis {axis}, and "
            f"{channels_name} is {channels}; this layer reads {letters}: move the axis, or set data_format"
        )


def to_channels_last(input: jax.Array, layout: Layout, spatial: int) -> jax.Array:
    """`input` with its channels on the last axis."""
    return input if layout == "channels_last" else jnp.moveaxis(input, input.ndim - spatial - 1, -1)


def from_channels_last(output: jax.Array, layout: Layout, spatial: int) -> jax.Array:
    """The way back of `to_channels_last`."""
    return output if layout == "channels_last" else jnp.moveaxis(output, -1, output.ndim - spatial - 1)


def along_channels(values: jax.Array, layout: Layout, ndim: int, spatial: int | None = None) -> jax.Array:
    """`[C]` as an array of rank `ndim` that broadcasts over all axes but the channels'."""
    axis = channel_axis(layout, ndim, spatial)
    return values.reshape([-1 if i == axis else 1 for i in range(ndim)])
