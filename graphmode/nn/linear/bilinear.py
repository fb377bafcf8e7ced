"""`torch.nn.Bilinear`, and the function behind it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ..arguments import as_integer, check_same_dtype
from ..autocast import autocasts
from ..default_init import uniform
from ..layer import Layer


@autocasts
def bilinear(
    input1: jax.Array,
    input2: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    *,
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """`input1 @ weight[k] @ input2 + bias[k]` for each output `k`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.bilinear.html

    Args:
      input1: `[..., in1]`.
      input2: `[..., in2]`, its other axes those of `input1`.
      weight: `[out, in1, in2]`, as PyTorch holds it.
      bias: `[out]`.
      precision: of the products.

    Returns:
      `[..., out]`.

    Raises:
      ValueError: where the shapes do not fit.
      TypeError: where the dtypes differ.
    """
    check_same_dtype(input1=input1, input2=input2, weight=weight, bias=bias)
    if weight.ndim != 3:
        raise ValueError(f"weight has shape {tuple(weight.shape)}, and [out, in1, in2] was wanted")
    out_features, *sizes = weight.shape
    for i, (input, size) in enumerate(((input1, sizes[0]), (input2, sizes[1])), 1):
        if input.ndim == 0 or input.shape[-1] != size:
            raise ValueError(f"input{i} has shape {tuple(input.shape)}, and [..., in{i}_features = {size}] was wanted")
    if input1.shape[:-1] != input2.shape[:-1]:
        raise ValueError(
            f"input1 has shape {tuple(input1.shape)} and input2 {tuple(input2.shape)}; all axes but the last must agree"
        )
    if bias is not None and bias.shape != (out_features,):
        raise ValueError(f"bias has shape {tuple(bias.shape)}, and ({out_features},) was wanted")
    halfway = jnp.einsum("...j,oij->...oi", input2, weight, precision=precision)
    output = jnp.einsum("...oi,...i->...o", halfway, input1, precision=precision)
    return output if bias is None else output + bias


class Bilinear(Layer):
    """`input1 @ weight[k] @ input2 + bias[k]` for each output `k`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Bilinear.html

    Args:
      in1_features: length of the last axis of `input1`.
      in2_features: of `input2`.
      out_features: of the result.
      bias: whether there is one.
      precision: of the products.
      param_dtype: of the parameters.
      rngs: `params` is drawn from, as PyTorch draws: U(-1/sqrt(in1_features), 1/sqrt(in1_features)).

    Attributes:
      weight: `[out_features, in1_features, in2_features]`, as PyTorch's.
      bias: `[out_features]`, or None.

    Raises:
      ValueError: where a size is negative, `in1_features` is 0, or the shapes of the inputs do not fit.

    Example:
      >>> bilinear = Bilinear(3, 4, 2, rngs=nnx.Rngs(0))
      >>> bilinear(jnp.ones((5, 3)), jnp.ones((5, 4))).shape
      (5, 2)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        *,
        precision: jax.lax.PrecisionLike = None,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.in1_features = as_integer("in1_features", in1_features, least=1)
        self.in2_features = as_integer("in2_features", in2_features, least=0)
        self.out_features = as_integer("out_features", out_features, least=0)
        self.precision = precision
        shape = (out_features, in1_features, in2_features)
        self.weight = nnx.Param(uniform(rngs, shape, in1_features, param_dtype))
        self.bias: Any = nnx.data(None)
        if bias:
            self.bias = nnx.Param(uniform(rngs, (out_features,), in1_features, param_dtype))

    def __call__(self, input1: jax.Array, input2: jax.Array) -> jax.Array:
        bias = None if self.bias is None else self.bias[...]
        return bilinear(input1, input2, self.weight[...], bias, precision=self.precision)
