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
      norm_type: p of the p-norm, `inf` too; static.
      error_if_nonfinite: whether a norm that is not finite raises (`gm.check`).

    Returns:
      The gradients, each in its dtype, and their norm before clipping: a scalar.

    Raises:
      TypeError: where a gradient is no floating array, or norm_type no number known to the graph.

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

    The gradients keep their dtypes; one that is no floating array is a `TypeError`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_value_.html
    """
    _check_floating(grads)
    limit = jnp.asarray(clip_value)  # one with a dtype of its own would widen halves
    return jax.tree.map(lambda g: jnp.clip(g, -limit.astype(g.dtype), limit.astype(g.dtype)), grads)


def grad_norm(grads: Any, norm_type: float = 2.0) -> jax.Array:
    """The norm of all gradients as of a single vector: a scalar of the widest dtype, float32 at least."""
    _check_floating(grads)
    leaves = jax.tree.leaves(grads)
    try:
        norm_type = float(norm_type)  # "inf" too, as PyTorch takes it
    except (TypeError, ValueError):
        raise TypeError(f"norm_type is {norm_type!r}, and a number known to the graph was wanted") from None
    if not leaves:
        return jnp.zeros((), float)
    norms = []
    for leaf in leaves:
        wide = leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))
        norms.append(_norm(wide.reshape(-1), norm_type) if wide.size else jnp.zeros((), wide.dtype))
    return _norm(jnp.stack(jnp.broadcast_arrays(*norms)), norm_type)


def _norm(x: jax.Array, norm_type: float) -> jax.Array:
    return largest(jnp.abs(x)) if norm_type == math.inf else jnp.linalg.norm(x, norm_type)


def _check_floating(grads: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(grads):
        if not jnp.issubdtype(getattr(leaf, "dtype", None) or object, jnp.inexact):
            told = getattr(leaf, "dtype", type(leaf).__name__)
            raise TypeError(
                f"grads{jax.tree_util.keystr(path)} is {told}, and a floating array was wanted, as jax.grad gives it"
            )
