"""What PyTorch's layers draw their parameters from when they are built."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx


def uniform(rngs: nnx.Rngs, shape: tuple[int, ...], fan_in: int, dtype: jnp.dtype) -> jax.Array:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)): weights and biases of linear, convolution and recurrent layers."""
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return jax.random.uniform(rngs.params(), shape, dtype, -bound, bound)
