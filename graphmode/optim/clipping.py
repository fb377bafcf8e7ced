"""Gradients clipped as `torch.nn.utils` clips them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ..extremes import largest
from ..ops import check


def clip_grad_norm(
    grads: Any, max_norm: float, norm_type: float = 2.0, *, error_if_nonfinite: bool = False
) -> tuple[Any, jax.Array]:
    """All gradients scaled by one factor where their norm, as of a single vector, is above `max_norm`.

    As `torch.nn.utils.clip_grad_norm_`: the factor is `max_norm / (norm + 1e-6)`, and at most 1;
    `optax.clip_by_global_norm` adds nothing to the norm.

    Args:
      grads: a tree of floating arrays; None where a gradient is absent.
      max_norm: the largest norm that passes.
      norm_type: p of the p-norm, `inf` too.
      error_if_nonfinite: whether a norm that is not finite raises (`gm.check`).

    Returns:
      The gradients, and their norm before clipping: a scalar.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html

    Example:
      >>> import jax.numpy as jnp
      >>> clipped, norm = clip_grad_norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])}, max_norm=1.0)
      >>> float(norm)
      5.0
    """
    norm = grad_norm(grads, norm_type)
    if error_if_nonfinite:
        check(jnp.isfinite(norm), "the norm of the gradients is {norm}: they cannot be clipped", norm=norm)
    factor = jnp.minimum(max_norm / (norm + 1e-6), 1.0)
    return jax.tree.map(lambda g: (g * factor).astype(g.dtype), grads), norm


def clip_grad_value(grads: Any, clip_value: float) -> Any:
    """Each element of each gradient between `-clip_value` and `clip_value`, as `torch.nn.utils.clip_grad_value_`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_value_.html
    """
    return jax.tree.map(lambda g: jnp.clip(g, -clip_value, clip_value), grads)


def grad_norm(grads: Any, norm_type: float = 2.0) -> jax.Array:
    """The norm of all gradients as of a single vector: a scalar of the widest dtype, float32 at least."""
    leaves = jax.tree.leaves(grads)
    if not leaves:
        return jnp.zeros((), float)
    norms = []
    for leaf in leaves:
        wide = leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))
        norms.append(_norm(wide.reshape(-1), norm_type) if wide.size else jnp.zeros((), wide.dtype))
    return _norm(jnp.stack(jnp.broadcast_arrays(*norms)), norm_type)


def _norm(x: jax.Array, norm_type: float) -> jax.Array:
    return largest(jnp.abs(x)) if norm_type == math.inf else jnp.linalg.norm(x, norm_type)
