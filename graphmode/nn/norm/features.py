"""`layer_norm`, `rms_norm` and `group_norm`: each example by itself, the same in training and evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from ..arguments import as_integer, check_floating
from ..autocast import autocasts
from ..layout import DataFormat, along_channels, as_layout, channel_axis
from .onednn_layer_norm import normalized_rows, serves
from .standardize import check_dtypes, standardize, wide


@autocasts
def layer_norm(
    input: jax.Array,
    normalized_shape: int | Sequence[int],
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
) -> jax.Array:
    """`input` normalised over its last axes, in float32 where it is of half precision.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.layer_norm.html

    Args:
      input: `[..., *normalized_shape]`; float16, bfloat16, float32 or float64.
      normalized_shape: of the last axes.
      weight, bias: `normalized_shape`, or None.
      eps: added to the variance.

    Raises:
      ValueError: where shapes do not fit.
      TypeError: where dtypes do not fit: weight and bias have `input`'s, or are float32 for half precision.
    """
    axes = _last_axes(input, normalized_shape, weight=weight, bias=bias)
    check_dtypes(input, weight=weight, bias=bias)
    if serves(input):
        rows = input.reshape(-1, math.prod(input.shape[axes[0] :]))
        scale = jnp.ones(rows.shape[1], rows.dtype) if weight is None else weight.reshape(-1)
        shift = jnp.zeros(rows.shape[1], rows.dtype) if bias is None else bias.reshape(-1)
        return normalized_rows(rows, scale, shift, eps).reshape(input.shape)
    output = standardize(wide(input), None, None, axes, eps)[0]
    if weight is not None:
        output = output * wide(weight)
    if bias is not None:
        output = output + wide(bias)
    return output.astype(input.dtype)


@autocasts
def rms_norm(
    input: jax.Array,
    normalized_shape: int | Sequence[int],
    weight: jax.Array | None = None,
    eps: float | None = None,
) -> jax.Array:
    """`input` divided by the root of its mean square over the last axes, in float32 where it is of half precision.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rms_norm.html

    Args:
      input: `[..., *normalized_shape]`; floating or complex.
      normalized_shape: of the last axes.
      weight: `normalized_shape`, of any floating dtype, or None. The result has `input`'s dtype.
      eps: added to the mean square; None for the distance from 1 to the next number, 1.19e-7 in float32 and below it.

    Raises:
      ValueError: where shapes do not fit.
      TypeError: where `input` holds integers.
    """
    axes = _last_axes(input, normalized_shape, weight=weight)
    check_floating("input", input)
    x = wide(input)
    if eps is None:
        eps = float(jnp.finfo(x.dtype).eps)
    output = x * lax.rsqrt(jnp.mean(jnp.square(x), axes, keepdims=True) + eps)
    if weight is not None:
        output = output * wide(weight)
    return output.astype(input.dtype)


@autocasts
def group_norm(
    input: jax.Array,
    num_groups: int,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
    *,
    data_format: DataFormat = "channels_last",
) -> jax.Array:
    """`input` normalised over each group of neighbouring channels and all positions, example by example.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.group_norm.html

    Args:
      input: `[B, ..., C]`, or as `data_format` says; float16, bfloat16, float32 or float64.
      num_groups: divides the number of channels.
      weight, bias: `[C]`, or None.
      eps: added to the variance.
      data_format: `"channels_last"` or `"channels_first"`.

    Raises:
      ValueError: where shapes do not fit, or the whole batch is one group of one value.
      TypeError: where dtypes do not fit: weight and bias have `input`'s, or are float32 for half precision.
    """
    layout = as_layout(data_format)
    num_groups = as_integer("num_groups", num_groups, least=1)
    shape = tuple(input.shape)
    if input.ndim < 2:
        raise ValueError(f"input has shape {shape}, and 2 axes or more were wanted, batch and channels among them")
    channel = channel_axis(layout, input.ndim)
    channels = shape[channel]
    if channels % num_groups:
        raise ValueError(
            f"input has shape {shape}, so {channels} channels on axis {channel}, and num_groups = {num_groups} does "
            "not divide them; choose another number of groups, or set data_format"
        )
    for name, values in (("weight", weight), ("bias", bias)):
        if values is not None and values.shape != (channels,):
            raise ValueError(
                f"{name} has shape {tuple(values.shape)}, and input, of shape {shape}, has {channels} channels; give "
                "one value a channel, or set data_format"
            )
    check_dtypes(input, weight=weight, bias=bias)
    if input.size == num_groups:
        raise ValueError(f"input has shape {shape}: one value a group, and no variance; give more of them")
    if layout == "channels_last" and input.ndim > 2 and input.size:
        scales = (None if v is None else along_channels(wide(v), layout, input.ndim) for v in (weight, bias))
        axes = tuple(range(1, channel))
        return standardize(wide(input), *scales, axes, eps, None, num_groups)[0].astype(input.dtype)
    grouped = wide(input).reshape(*shape[:channel], num_groups, channels // num_groups, *shape[channel + 1 :])
    axes = tuple(axis for axis in range(1, grouped.ndim) if axis != channel)
    output = standardize(grouped, None, None, axes, eps)[0].reshape(shape)
    if weight is not None:
        output = output * along_channels(wide(weight), layout, input.ndim)
    if bias is not None:
        output = output + along_channels(wide(bias), layout, input.ndim)
    return output.astype(input.dtype)


def as_normalized_shape(value: int | Sequence[int]) -> tuple[int, ...]:
    sizes = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    shape = tuple(as_integer("normalized_shape", size, least=0) for size in sizes)
    if not shape:
        raise ValueError("normalized_shape is (); give the lengths of the last axes, one or more")
    return shape


def _last_axes(input: jax.Array, normalized_shape: int | Sequence[int], **parameters: jax.Array | None) -> tuple:
    """The axes to normalise over, counted from 0, once all shapes are found to fit."""
    wanted = as_normalized_shape(normalized_shape)
    for name, values in parameters.items():
        if values is not None and tuple(values.shape) != wanted:
            raise ValueError(f"{name} has shape {tuple(values.shape)}; give normalized_shape, {wanted}")
    if tuple(input.shape[-len(wanted) :]) != wanted or input.ndim < len(wanted):
        lengths = ", ".join(map(str, wanted))
        raise ValueError(
            f"input has shape {tuple(input.shape)}, and [..., {lengths}] was wanted: normalized_shape is {wanted}"
        )
    return tuple(range(input.ndim - len(wanted), input.ndim))
