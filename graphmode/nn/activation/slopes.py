"""Rectifiers with a slope below 0: fixed, learnt, or drawn anew for each element."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..arguments import check_same_dtype
from ..autocast import autocasts
from ..dropout.masks import Rngs, key_from
from ..layout import DataFormat, along_channels, as_layout, channel_axis
from .derivative import floating, kinked


def leaky_relu(input: jax.Array, negative_slope: float = 0.01, inplace: bool = False) -> jax.Array:
    """`input` above 0, elsewhere `negative_slope * input`; derivative `negative_slope` at 0.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.leaky_relu.html
    """
    return _leaky_relu(floating(input), negative_slope)


@autocasts
def prelu(input: jax.Array, weight: jax.Array, *, data_format: DataFormat = "channels_last") -> jax.Array:
    """`input` above 0, elsewhere `weight * input`; derivative `weight` at 0.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.prelu.html

    Args:
      input: `[B, ..., C]`, or any shape where there is one weight.
      weight: one for all (`[]` or `[1]`), or `[C]`.
      data_format: `"channels_last"`, or `"channels_first"` for `[B, C, ...]`.

    Raises:
      ValueError: where `weight` has another shape.
      TypeError: where the dtypes differ.
    """
    layout = as_layout(data_format)
    input, weight = floating(input), floating(weight, "weight")
    check_same_dtype(input=input, weight=weight)
    if weight.ndim > 1:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; give a scalar, or one axis of channels")
    if weight.size != 1:
        channels = input.shape[channel_axis(layout, input.ndim)] if input.ndim > 1 else 1
        if weight.size != channels:
            raise ValueError(
                f"weight has {weight.size} elements, and input of shape {tuple(input.shape)} has {channels} channels "
                f"({layout}, axis 0 being the batch); give one weight for each, or a single one, or set data_format"
            )
        weight = along_channels(weight, layout, input.ndim)
    else:
        weight = weight.reshape(())
    wide = jnp.promote_types(input.dtype, jnp.float32)
    positive = input > 0
    # Without this zero an infinite input would make the weight's gradient NaN: inf * 0.
    negative = jnp.where(positive, 0, input)
    scaled = (weight.astype(wide) * negative.astype(wide)).astype(input.dtype)
    return jnp.where(positive, input, scaled)


def rrelu(
    input: jax.Array,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
    *,
    slope: jax.Array | None = None,
    rngs: Rngs | None = None,
) -> jax.Array:
    """`input` above 0, elsewhere `input` times a slope: in training one drawn for each element, else their mean.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rrelu.html

    Args:
      input: floating array of any shape.
      lower, upper: slopes are drawn uniformly from between them.
      training: False for the slope `(lower + upper) / 2`.
      inplace: means nothing.
      slope: taken instead of a draw in training; of a shape that broadcasts to `input`'s.
      rngs: drawn from where `slope` is None: an `nnx.Rngs` (its `dropout`), a stream, or a key.

    Raises:
      ValueError: where `lower > upper`, a slope does not fit, or there is nothing to draw from.
    """
    if not lower <= upper:
        raise ValueError(f"lower is {lower!r}, which is above upper, {upper!r}; swap them")
    input = floating(input)
    if not training:
        return _leaky_relu(input, (lower + upper) / 2)
    if slope is None:
        if rngs is None:
            raise ValueError(
                "rrelu is in training and has nothing to draw its slopes from; give rngs=nnx.Rngs(...), give slope=, "
                "or switch to evaluation with .eval() (training=False)"
            )
        slope = jax.random.uniform(
            key_from(rngs), input.shape, jnp.promote_types(input.dtype, jnp.float32), lower, upper
        )
    slope = jnp.asarray(slope)
    if jnp.broadcast_shapes(slope.shape, input.shape) != input.shape:
        raise ValueError(
            f"slope has shape {tuple(slope.shape)}, and one that broadcasts to input's {tuple(input.shape)} was wanted"
        )
    slope = jax.lax.stop_gradient(slope)
    wide = jnp.promote_types(input.dtype, jnp.float32)
    return (input.astype(wide) * jnp.where(input <= 0, slope.astype(wide), 1)).astype(input.dtype)


_leaky_relu = kinked(
    lambda x, slope: jnp.where(x > 0, x, x * slope),
    lambda t, x, slope: jnp.where(x > 0, t, t * slope),
)
