"""`batch_norm` and `instance_norm`: one mean and variance a channel, and running ones as PyTorch keeps them."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..layout import DataFormat, Layout, along_channels, as_layout, channel_axis
from .masked import standardize_valid
from .standardize import check_dtypes, standardize, wide


class Normed(NamedTuple):
    """What the functions that move running statistics give.

    Attributes:
      output: shape and dtype of the input.
      running_mean, running_var: `[C]`, after this batch; None where there are none.
    """

    output: jax.Array
    running_mean: jax.Array | None
    running_var: jax.Array | None


def batch_norm(
    input: jax.Array,
    running_mean: jax.Array | None,
    running_var: jax.Array | None,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    training: bool = False,
    momentum: float | jax.Array = 0.1,
    eps: float = 1e-5,
    *,
    data_format: DataFormat = "channels_last",
    axis_name: Hashable | None = None,
    mask: jax.Array | None = None,
) -> jax.Array:
    """`input` normalised channel by channel, over the batch and all positions.

    PyTorch's function moves the running statistics in place; `batch_norm_with_running_stats` hands the new ones back.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.batch_norm.html

    Args:
      input: `[B, ..., C]`, or as `data_format` says; float16, bfloat16, float32 or float64.
      running_mean, running_var: `[C]`, read unless `training`; both or neither.
      weight, bias: `[C]`, or None.
      training: whether to normalise by the statistics of this batch.
      momentum: fraction of the new statistics in the running ones.
      eps: added to the variance.
      data_format: `"channels_last"` or `"channels_first"`.
      axis_name: of the `shard_map` or `vmap` over which the statistics of a batch are averaged; None for none.
      mask: bool, broadcasts to `input`, false in the padding of a ragged batch, which then reaches neither the
        statistics in training nor their gradients; None where there is none. The padding is normalised like the rest.

    The statistics are float32 for half precision, whose parameters may be float32 too.

    Raises:
      ValueError: where shapes do not fit, a channel has one value in training, `eps` is negative (or 0 in training),
        running statistics are missing, or there are both a mask and an `axis_name`.
      TypeError: where dtypes do not fit.
    """
    arguments = input, running_mean, running_var, weight, bias, training, momentum, eps
    return batch_norm_with_running_stats(*arguments, data_format=data_format, axis_name=axis_name, mask=mask).output


def batch_norm_with_running_stats(
    input: jax.Array,
    running_mean: jax.Array | None,
    running_var: jax.Array | None,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    training: bool = False,
    momentum: float | jax.Array = 0.1,
    eps: float = 1e-5,
    *,
    data_format: DataFormat = "channels_last",
    axis_name: Hashable | None = None,
    mask: jax.Array | None = None,
) -> Normed:
    """`batch_norm`, with the running statistics as PyTorch's function leaves them: the variance unbiased."""
    layout = as_layout(data_format)
    if eps < 0 or (training and eps == 0):
        raise ValueError(f"eps is {eps}; give a positive number (0 is allowed in evaluation)")
    if input.ndim < 2 and input.size:
        raise ValueError(f"input has shape {tuple(input.shape)}, and {_told(layout)}, 2 axes or more, was wanted")
    channels = input.shape[channel_axis(layout, input.ndim)] if input.ndim > 1 else 0
    _check_parameters(input, channels, running_mean, running_var, weight, bias)
    if mask is not None and axis_name is not None:
        raise ValueError(f"axis_name is {axis_name!r} and there is a mask; give one of them: shares of a batch differ")
    if not training:
        output = _by_running(input, running_mean, running_var, weight, bias, eps, layout)
        return Normed(output, running_mean, running_var)
    if input.size == 0:
        return Normed(input, running_mean, running_var)
    devices = 1 if axis_name is None else lax.axis_size(axis_name)
    count = input.size // channels * devices
    if isinstance(count, int) and count < 2:
        raise ValueError(
            f"input has shape {tuple(input.shape)}, so 1 value a channel, and training wants 2 or more for a variance; "
            "give a larger batch, or switch to evaluation (training=False; .eval() of a module)"
        )
    channel = channel_axis(layout, input.ndim)
    axes = tuple(axis for axis in range(input.ndim) if axis != channel)
    weight, bias = (_along(values, layout, input.ndim) for values in (weight, bias))
    if mask is None:
        output, mean, variance = standardize(wide(input), weight, bias, axes, eps, axis_name)
        unbiased = variance * (count / (count - 1))
    else:
        output, mean, unbiased = standardize_valid(wide(input), mask, weight, bias, axes, eps)
    if running_mean is not None and running_var is not None:
        running_mean = _moved(running_mean, mean.reshape(-1), momentum)
        running_var = _moved(running_var, unbiased.reshape(-1), momentum)
    return Normed(output.astype(input.dtype), running_mean, running_var)


def instance_norm(
    input: jax.Array,
    running_mean: jax.Array | None = None,
    running_var: jax.Array | None = None,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    use_input_stats: bool = True,
    momentum: float | jax.Array = 0.1,
    eps: float = 1e-5,
    *,
    data_format: DataFormat = "channels_last",
) -> jax.Array:
    """`input` normalised channel by channel and example by example, over all positions.

    PyTorch's function moves the running statistics in place; `instance_norm_with_running_stats` hands the new ones
    back.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.instance_norm.html

    Args:
      input: `[B, ..., C]` with one spatial axis or more, or as `data_format` says; float16, bfloat16, float32, float64.
      running_mean, running_var: `[C]`, read unless `use_input_stats`; both or neither.
      weight, bias: `[C]`, or None.
      use_input_stats: whether to normalise by each example's own statistics.
      momentum: fraction of the new statistics in the running ones.
      eps: added to the variance.
      data_format: `"channels_last"` or `"channels_first"`.

    Raises:
      ValueError: where shapes do not fit, there is one position only, or running statistics are missing.
      TypeError: where dtypes do not fit.
    """
    arguments = input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    return instance_norm_with_running_stats(*arguments, data_format=data_format).output


def instance_norm_with_running_stats(
    input: jax.Array,
    running_mean: jax.Array | None = None,
    running_var: jax.Array | None = None,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    use_input_stats: bool = True,
    momentum: float | jax.Array = 0.1,
    eps: float = 1e-5,
    *,
    data_format: DataFormat = "channels_last",
) -> Normed:
    """`instance_norm`, with the running statistics as PyTorch's function leaves them: averages over the batch."""
    layout = as_layout(data_format)
    if input.ndim < 2:
        raise ValueError(f"input has shape {tuple(input.shape)}, and {_told(layout)}, 3 axes or more, was wanted")
    channel = channel_axis(layout, input.ndim)
    _check_parameters(input, input.shape[channel], running_mean, running_var, weight, bias)
    if not use_input_stats:
        output = _by_running(input, running_mean, running_var, weight, bias, eps, layout)
        return Normed(output, running_mean, running_var)
    axes = tuple(axis for axis in range(1, input.ndim) if axis != channel)
    count = math.prod(input.shape[axis] for axis in axes)
    if count == 1:
        raise ValueError(
            f"input has shape {tuple(input.shape)}, so 1 position, and 2 or more are wanted for a variance; "
            f"it is read as {_told(layout)}"
        )
    if input.size == 0:
        if running_mean is not None and input.shape[0] == 0:  # PyTorch averages over no examples
            running_mean, running_var = jnp.full_like(running_mean, jnp.nan), jnp.full_like(running_mean, jnp.nan)
        return Normed(input, running_mean, running_var)
    weight, bias = (_along(values, layout, input.ndim) for values in (weight, bias))
    output, mean, variance = standardize(wide(input), weight, bias, axes, eps)
    if running_mean is not None and running_var is not None:
        mean, variance = (values.reshape(input.shape[0], -1).mean(0) for values in (mean, variance))
        running_mean = _moved(running_mean, mean, momentum)
        running_var = _moved(running_var, variance * (count / (count - 1)), momentum)
    return Normed(output.astype(input.dtype), running_mean, running_var)


def _by_running(input, running_mean, running_var, weight, bias, eps, layout: Layout) -> jax.Array:
    if running_mean is None:
        raise ValueError("running_mean and running_var are None, and evaluation reads them; give both")
    if input.size == 0:
        return input
    mean, variance = (along_channels(wide(values), layout, input.ndim) for values in (running_mean, running_var))
    weight, bias = (_along(values, layout, input.ndim) for values in (weight, bias))
    scale = lax.rsqrt(variance + eps)
    output = (wide(input) - mean) * (scale if weight is None else scale * weight)
    return (output if bias is None else output + bias).astype(input.dtype)


def _moved(running: jax.Array, new: jax.Array, momentum: float | jax.Array) -> jax.Array:
    kept = (1 - momentum) * wide(running) + momentum * lax.stop_gradient(new)
    return kept.astype(running.dtype)


def _along(values: jax.Array | None, layout: Layout, ndim: int) -> jax.Array | None:
    return None if values is None else along_channels(wide(values), layout, ndim)


def _check_parameters(input: jax.Array, channels: int, running_mean, running_var, weight, bias) -> None:
    if (running_mean is None) != (running_var is None):
        absent, given = ("running_mean", "running_var") if running_mean is None else ("running_var", "running_mean")
        raise ValueError(f"{absent} is None and {given} is not; give both or neither")
    parameters = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    for name, values in parameters.items():
        if values is not None and values.shape != (channels,):
            raise ValueError(
                f"{name} has shape {tuple(values.shape)}, and input, of shape {tuple(input.shape)}, has {channels} "
                "channels; give one value a channel, or set data_format"
            )
    check_dtypes(input, weight=weight, bias=bias)
    check_dtypes(input, running_mean=running_mean, running_var=running_var)


def _told(layout: Layout) -> str:
    return "[B, ..., C]" if layout == "channels_last" else "[B, C, ...]"
