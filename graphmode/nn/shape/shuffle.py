"""Channels traded for resolution and back, and channels shuffled among groups."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..arguments import as_integer
from ..layer import Layer
from ..layout import DataFormat, as_layout, channel_axis


def pixel_shuffle(input: jax.Array, upscale_factor: int, *, data_format: DataFormat = "channels_last") -> jax.Array:
    """`[..., H, W, C * r * r]` as `[..., H * r, W * r, C]`, channels numbered as in PyTorch.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pixel_shuffle.html

    Args:
      input: at least 3 axes; `[..., C * r * r, H, W]` where channels are first.
      upscale_factor: r.
      data_format: `"NHWC"`, or `"NCHW"`.

    Raises:
      ValueError: where `input` has fewer axes, or its channels are no multiple of r * r.
    """
    factor = as_integer("upscale_factor", upscale_factor, least=1)
    layout = as_layout(data_format, 2)
    height, width, channels = _sizes(input, layout)
    if channels % factor**2:
        raise ValueError(
            f"input has shape {tuple(input.shape)}, so {channels} channels, and a multiple of upscale_factor squared, "
            f"{factor**2}, was wanted"
        )
    lead, kept, n = input.shape[:-3], channels // factor**2, input.ndim - 3
    if layout == "channels_first":
        split = input.reshape(*lead, kept, factor, factor, height, width)
        moved = split.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
        return moved.reshape(*lead, kept, height * factor, width * factor)
    split = input.reshape(*lead, height, width, kept, factor, factor)
    moved = split.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return moved.reshape(*lead, height * factor, width * factor, kept)


def pixel_unshuffle(input: jax.Array, downscale_factor: int, *, data_format: DataFormat = "channels_last") -> jax.Array:
    """`[..., H * r, W * r, C]` as `[..., H, W, C * r * r]`: the way back of `pixel_shuffle`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pixel_unshuffle.html

    Args:
      input: at least 3 axes; `[..., C, H * r, W * r]` where channels are first.
      downscale_factor: r.
      data_format: `"NHWC"`, or `"NCHW"`.

    Raises:
      ValueError: where `input` has fewer axes, or its height or width is no multiple of r.
    """
    factor = as_integer("downscale_factor", downscale_factor, least=1)
    layout = as_layout(data_format, 2)
    height, width, channels = _sizes(input, layout)
    if height % factor or width % factor:
        raise ValueError(
            f"input has shape {tuple(input.shape)}, so height {height} and width {width}, and multiples of "
            f"downscale_factor, {factor}, were wanted"
        )
    lead, n = input.shape[:-3], input.ndim - 3
    if layout == "channels_first":
        split = input.reshape(*lead, channels, height // factor, factor, width // factor, factor)
        moved = split.transpose(*range(n), n, n + 2, n + 4, n + 1, n + 3)
        return moved.reshape(*lead, channels * factor**2, height // factor, width // factor)
    split = input.reshape(*lead, height // factor, factor, width // factor, factor, channels)
    moved = split.transpose(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return moved.reshape(*lead, height // factor, width // factor, channels * factor**2)


def channel_shuffle(input: jax.Array, groups: int, *, data_format: DataFormat = "channels_last") -> jax.Array:
    """The channels of all groups by turns: of `(a b)(c d)`, `a c b d`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ChannelShuffle.html

    Args:
      input: `[B, *spatial, C]`, or `[B, C, *spatial]` where channels are first; at least 3 axes.
      groups: a divisor of C.
      data_format: of any rank, `"channels_last"` or `"channels_first"`.

    Raises:
      ValueError: where `input` has fewer axes, or `groups` does not divide its channels.
    """
    groups = as_integer("groups", groups, least=1)
    if input.ndim < 3:
        raise ValueError(f"input has shape {tuple(input.shape)}, and at least 3 axes were wanted")
    axis = channel_axis(as_layout(data_format), input.ndim)
    channels = input.shape[axis]
    if channels % groups:
        raise ValueError(
            f"input has shape {tuple(input.shape)}, so {channels} channels, and a multiple of groups, {groups}, was "
            "wanted"
        )
    split = input.reshape(*input.shape[:axis], groups, channels // groups, *input.shape[axis + 1 :])
    return jnp.swapaxes(split, axis, axis + 1).reshape(input.shape)


class PixelShuffle(Layer):
    """`[..., H, W, C * r * r]` as `[..., H * r, W * r, C]`: what follows a sub-pixel convolution.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.PixelShuffle.html

    Args:
      upscale_factor: r.
      data_format: `"NHWC"`, or `"NCHW"`.

    Example:
      >>> PixelShuffle(3)(jnp.ones((1, 4, 4, 9))).shape
      (1, 12, 12, 1)
    """

    def __init__(self, upscale_factor: int, *, data_format: DataFormat = "channels_last"):
        self.upscale_factor = as_integer("upscale_factor", upscale_factor, least=1)
        self.data_format = as_layout(data_format, 2)

    def __call__(self, input: jax.Array) -> jax.Array:
        return pixel_shuffle(input, self.upscale_factor, data_format=self.data_format)


class PixelUnshuffle(Layer):
    """`[..., H * r, W * r, C]` as `[..., H, W, C * r * r]`: the way back of `PixelShuffle`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.PixelUnshuffle.html

    Args:
      downscale_factor: r.
      data_format: `"NHWC"`, or `"NCHW"`.

    Example:
      >>> PixelUnshuffle(3)(jnp.ones((1, 12, 12, 1))).shape
      (1, 4, 4, 9)
    """

    def __init__(self, downscale_factor: int, *, data_format: DataFormat = "channels_last"):
        self.downscale_factor = as_integer("downscale_factor", downscale_factor, least=1)
        self.data_format = as_layout(data_format, 2)

    def __call__(self, input: jax.Array) -> jax.Array:
        return pixel_unshuffle(input, self.downscale_factor, data_format=self.data_format)


class ChannelShuffle(Layer):
    """The channels of all groups by turns.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ChannelShuffle.html

    Args:
      groups: a divisor of the number of channels.
      data_format: of any rank, `"channels_last"` or `"channels_first"`.

    Example:
      >>> ChannelShuffle(2)(jnp.arange(4).reshape(1, 1, 1, 4)).ravel().tolist()
      [0, 2, 1, 3]
    """

    def __init__(self, groups: int, *, data_format: DataFormat = "channels_last"):
        self.groups = as_integer("groups", groups, least=1)
        self.data_format = as_layout(data_format)

    def __call__(self, input: jax.Array) -> jax.Array:
        return channel_shuffle(input, self.groups, data_format=self.data_format)


def _sizes(input: jax.Array, layout: str) -> tuple[int, int, int]:
    """Height, width and channels."""
    if input.ndim < 3:
        raise ValueError(f"input has shape {tuple(input.shape)}, and at least 3 axes were wanted")
    if layout == "channels_first":
        channels, height, width = input.shape[-3:]
    else:
        height, width, channels = input.shape[-3:]
    return height, width, channels
