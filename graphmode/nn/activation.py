"""Activations with the derivatives that PyTorch takes at their kinks, as functions and as modules."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx


def relu(x: jax.Array) -> jax.Array:
    """`max(x, 0)`, with derivative 0 at 0. Any shape. https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU.html"""
    return jax.nn.relu(x)


@jax.custom_jvp
def relu6(x: jax.Array) -> jax.Array:
    """`min(max(x, 0), 6)`, with derivative 0 at 0 and at 6. Any shape.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU6.html
    """
    return jnp.clip(x, 0, 6)


@relu6.defjvp
def _relu6_jvp(primals, tangents):
    (x,), (tangent,) = primals, tangents
    return relu6(x), jnp.where((x > 0) & (x < 6), tangent, jnp.zeros_like(tangent))


class ReLU(nnx.Module):
    """`relu` as a module, so that it has a place and a name in the model."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return relu(x)


class ReLU6(nnx.Module):
    """`relu6` as a module, so that it has a place and a name in the model."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return relu6(x)
