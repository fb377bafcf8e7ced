"""`torch.nn.LazyLinear`."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from ..lazy import Lazy
from .linear import Linear


class LazyLinear(Lazy, Linear):
    """A `Linear` that takes `in_features` from its first input, outside of a trace, and is one from then on.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyLinear.html

    Args:
      out_features: length of the last axis of the result.
      bias: whether there is one.
      precision: of the product.
      param_dtype: of the parameters.
      rngs: one key is drawn from `params` when it is built.

    Raises:
      RuntimeError: where the first input comes inside of `jit`, `grad` or `vmap`.
      ValueError: where the size is negative, or the first input has no axes.

    Example:
      >>> linear = LazyLinear(2, rngs=nnx.Rngs(0))
      >>> linear(jnp.ones((5, 3))).shape, type(linear).__name__, linear.in_features
      ((5, 2), 'Linear', 3)
    """

    becomes = Linear

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        *,
        precision: jax.lax.PrecisionLike = None,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self._defer(
            rngs,
            {"in_features": 1},
            out_features=out_features,
            bias=bias,
            precision=precision,
            param_dtype=param_dtype,
        )

    def _sizes(self, shape: tuple[int, ...]) -> Mapping[str, int]:
        if not shape:
            raise ValueError("input has no axes, and [..., in_features] was wanted")
        return {"in_features": shape[-1]}
