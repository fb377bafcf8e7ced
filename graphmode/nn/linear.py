"""`torch.nn.Linear`."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode.weights import LINEAR, carries


def uniform(rngs: nnx.Rngs, shape: tuple[int, ...], fan_in: int, dtype: jnp.dtype) -> jax.Array:
    """PyTorch's default for weights and biases of linear and convolution layers: U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return jax.random.uniform(rngs.params(), shape, dtype, -bound, bound)


class Linear(nnx.Module):
    """`x @ weight + bias` over the last axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html

    Args:
      in_features: length of the last axis of `x`.
      out_features: length of the last axis of the result.
      bias: whether there is one.
      param_dtype: of the parameters.
      rngs: `params` is drawn from, as PyTorch draws: U(-1/sqrt(in_features), 1/sqrt(in_features)).

    Attributes:
      weight: `[in_features, out_features]`, PyTorch's transposed.
      bias: `[out_features]`, or None.

    Raises:
      ValueError: where a size is negative, or `x` has another last axis.

    Example:
      >>> linear = Linear(3, 2, rngs=nnx.Rngs(0))
      >>> linear(jnp.ones((5, 3))).shape
      (5, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if value < 0:
                raise ValueError(f"{name} is {value}; give 0 or more")
        self.in_features = in_features
        self.out_features = out_features
        weight = uniform(rngs, (in_features, out_features), in_features, param_dtype)
        self.weight = nnx.Param(weight, **carries(LINEAR))
        self.bias = nnx.data(None)
        if bias:
            self.bias = nnx.Param(uniform(rngs, (out_features,), in_features, param_dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        if x.ndim == 0 or x.shape[-1] != self.in_features:
            raise ValueError(f"x has shape {tuple(x.shape)}, and [..., in_features = {self.in_features}] was wanted")
        y = jnp.dot(x, self.weight[...])
        return y if self.bias is None else y + self.bias[...]
