"""`torch.nn.LayerNorm`, `RMSNorm` and `GroupNorm`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ..arguments import as_integer
from ..layer import Layer
from ..layout import DataFormat, as_layout, channel_axis
from .features import as_normalized_shape, group_norm, layer_norm, rms_norm


class LayerNorm(Layer):
    """`input` normalised over its last axes.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html

    Args:
      normalized_shape: of the last axes; an integer for one.
      eps: added to the variance (Flax adds 1e-6).
      elementwise_affine: whether there are `weight` and `bias`.
      bias: False for a `weight` alone.
      param_dtype: of the parameters; float32 serves half precision inputs too.
      rngs: taken so that all layers are built alike; nothing is drawn.

    Attributes:
      weight, bias: `normalized_shape`, or None.

    Raises:
      ValueError: where `input` has other last axes.
      TypeError: where dtypes do not fit.

    Example:
      >>> LayerNorm(4)(jnp.ones((2, 3, 4))).shape
      (2, 3, 4)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        self.normalized_shape = as_normalized_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight, self.bias = _affine(self.normalized_shape, elementwise_affine, bias, param_dtype)

    def __call__(self, input: jax.Array) -> jax.Array:
        return layer_norm(input, self.normalized_shape, _array(self.weight), _array(self.bias), self.eps)


class RMSNorm(Layer):
    """`input` divided by the root of its mean square over the last axes.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.RMSNorm.html

    Args:
      normalized_shape: of the last axes; an integer for one.
      eps: added to the mean square; None for float32's 1.19e-7 (float64's 2.2e-16), where Flax adds 1e-6.
      elementwise_affine: whether there is a `weight`.
      param_dtype: of the weight.
      rngs: taken so that all layers are built alike; nothing is drawn.

    Attributes:
      weight: `normalized_shape`, or None.

    Raises:
      ValueError: where `input` has other last axes.
      TypeError: where `input` holds integers.

    Example:
      >>> RMSNorm(4)(jnp.full((1, 4), 3.0)).tolist()
      [[1.0, 1.0, 1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        self.normalized_shape = as_normalized_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight, _ = _affine(self.normalized_shape, elementwise_affine, False, param_dtype)

    def __call__(self, input: jax.Array) -> jax.Array:
        return rms_norm(input, self.normalized_shape, _array(self.weight), self.eps)


class GroupNorm(Layer):
    """`input` normalised over each group of neighbouring channels and all positions, example by example.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GroupNorm.html

    Args:
      num_groups: divides `num_channels`.
      num_channels: of the input.
      eps: added to the variance (Flax adds 1e-6).
      affine: whether there are `weight` and `bias`.
      bias: False for a `weight` alone.
      data_format: `"channels_last"` for `[B, ..., C]`, or `"channels_first"`.
      param_dtype: of the parameters; float32 serves half precision inputs too.
      rngs: taken so that all layers are built alike; nothing is drawn.

    Attributes:
      weight, bias: `[num_channels]`, or None.

    Raises:
      ValueError: where the groups do not divide the channels, or `input` does not fit.
      TypeError: where dtypes do not fit.

    Example:
      >>> GroupNorm(2, 6)(jnp.ones((2, 4, 4, 6))).shape
      (2, 4, 4, 6)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        bias: bool = True,
        data_format: DataFormat = "channels_last",
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        self.num_groups = as_integer("num_groups", num_groups, least=1)
        self.num_channels = as_integer("num_channels", num_channels, least=0)
        if num_channels % num_groups:
            raise ValueError(f"num_channels is {num_channels}; give a multiple of num_groups, {num_groups}")
        self.eps = eps
        self.affine = affine
        self.data_format = as_layout(data_format)
        self.weight, self.bias = _affine((self.num_channels,), affine, bias, param_dtype)

    def __call__(self, input: jax.Array) -> jax.Array:
        if self.affine and input.ndim > 1:
            axis = channel_axis(self.data_format, input.ndim)
            if input.shape[axis] != self.num_channels:
                raise ValueError(
                    f"input has shape {tuple(input.shape)}, so {input.shape[axis]} channels on axis {axis}, and "
                    f"num_channels is {self.num_channels}; move the axis, or set data_format"
                )
        arguments = input, self.num_groups, _array(self.weight), _array(self.bias), self.eps
        return group_norm(*arguments, data_format=self.data_format)


def _affine(shape: tuple[int, ...], affine: bool, bias: bool, dtype: jnp.dtype) -> tuple[Any, Any]:
    """`weight` of ones and `bias` of zeros, or None each."""
    weight = nnx.Param(jnp.ones(shape, dtype)) if affine else nnx.data(None)
    return weight, nnx.Param(jnp.zeros(shape, dtype)) if affine and bias else nnx.data(None)


def _array(variable: Any) -> jax.Array | None:
    return None if variable is None else variable[...]
