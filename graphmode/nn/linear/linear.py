"""`torch.nn.Linear` and `torch.nn.Identity`, and the function behind the former."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode.weights import LINEAR, carries

from ..arguments import as_integer, check_same_dtype
from ..autocast import autocasts
from ..default_init import uniform
from ..layer import Layer


@autocasts
def linear(
    input: jax.Array, weight: jax.Array, bias: jax.Array | None = None, *, precision: jax.lax.PrecisionLike = None
) -> jax.Array:
    """`input @ weight + bias` over the last axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.linear.html

    Args:
      input: `[..., in]`.
      weight: `[in, out]`, PyTorch's transposed; `[in]` for one output without an axis.
      bias: `[out]`, or of the shape `[]`.
      precision: of the product.

    Returns:
      `[..., out]`, or `[...]`.

    Raises:
      ValueError: where the shapes do not fit.
      TypeError: where the dtypes differ.
    """
    check_same_dtype(input=input, weight=weight, bias=bias)
    if weight.ndim not in (1, 2):
        raise ValueError(f"weight has shape {tuple(weight.shape)}; give [in, out], or [in] for a single output")
    if input.ndim == 0 or input.shape[-1] != weight.shape[0]:
        raise ValueError(f"input has shape {tuple(input.shape)}, and [..., in_features = {weight.shape[0]}] was wanted")
    if bias is not None and bias.shape not in ((), (1,), weight.shape[1:]):
        raise ValueError(f"bias has shape {tuple(bias.shape)}, and out_features = {tuple(weight.shape[1:])} was wanted")
    output = jnp.matmul(input, weight, precision=precision)
    return output if bias is None else output + (bias if weight.ndim == 2 else bias.reshape(()))


class Linear(Layer):
    """`input @ weight + bias` over the last axis.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html

    Args:
      in_features: length of the last axis of `input`.
      out_features: length of the last axis of the result.
      bias: whether there is one.
      precision: of the product.
      param_dtype: of the parameters.
      rngs: `params` is drawn from, as PyTorch draws: U(-1/sqrt(in_features), 1/sqrt(in_features)).

    Attributes:
      weight: `[in_features, out_features]`, PyTorch's transposed. That of an `Embedding`, which PyTorch shares with a
        layer as it is, lies the other way: `functional.linear(input, embedding.weight[...].T)` shares it.
      bias: `[out_features]`, or None.

    Raises:
      ValueError: where a size is negative, `input` has another last axis, or `weight` lies as PyTorch's.
      TypeError: where `input` has another dtype than the parameters, outside of `autocast`.

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
        precision: jax.lax.PrecisionLike = None,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.in_features = as_integer("in_features", in_features, least=0)
        self.out_features = as_integer("out_features", out_features, least=0)
        self.precision = precision
        weight = uniform(rngs, (in_features, out_features), in_features, param_dtype)
        self.weight = nnx.Param(weight, **carries(LINEAR))
        self.bias: Any = nnx.data(None)
        if bias:
            self.bias = nnx.Param(uniform(rngs, (out_features,), in_features, param_dtype))

    def __call__(self, input: jax.Array) -> jax.Array:
        bias, weight = None if self.bias is None else self.bias[...], self.weight[...]
        if weight.shape == (self.out_features, self.in_features) != weight.shape[::-1]:
            raise ValueError(
                f"weight has shape {weight.shape}, and [in_features, out_features] = {weight.shape[::-1]} was wanted, "
                "PyTorch's transposed; to share the weight of an Embedding, call functional.linear(input, weight.T)"
            )
        return linear(input, weight, bias, precision=self.precision)


class Identity(Layer):
    """Gives its input as it is, whatever it was built with.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Identity.html

    Example:
      >>> Identity(54, unused=0.1)(jnp.ones(3)).shape
      (3,)
    """

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def __call__(self, input: Any) -> Any:
        return input
