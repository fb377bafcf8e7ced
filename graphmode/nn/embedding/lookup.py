"""Rows of a table at indices: checked where they are known, NaN where they are out of range in a graph."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from ..distance.norms import vector_norm
from ..straight_through import valued

DROP: dict[str, Any] = {"mode": "drop", "wrap_negative_indices": False}
FILL: dict[str, Any] = {"mode": "fill", "wrap_negative_indices": False}


def as_indices(name: str, value: Any) -> jax.Array:
    """An array of integers."""
    indices = jnp.asarray(value)
    if not jnp.issubdtype(indices.dtype, jnp.integer):
        raise TypeError(f"{name} is {indices.dtype}, and integers were wanted; cast it")
    return indices


def check_range(name: str, indices: jax.Array, count: int) -> None:
    """Raises `IndexError` where the indices are known, outside of `jit`, and one is not in `[0, count)`."""
    if isinstance(indices, jax.core.Tracer) or not indices.size:
        return
    known = np.asarray(indices)
    if known.min() < 0 or known.max() >= count:
        raise IndexError(f"{name} goes from {known.min()} to {known.max()}, and weight has rows 0 to {count - 1}")


def as_padding_idx(padding_idx: int | None, count: int) -> int | None:
    """Counted from 0."""
    if padding_idx is None:
        return None
    if not -count <= padding_idx < count:
        raise ValueError(f"padding_idx is {padding_idx}; give one from {-count} to {count - 1}, or None")
    return padding_idx % count


def as_table(weight: Any) -> jax.Array:
    """`[V, D]` out of an array or an `nnx.Variable`."""
    weight = weight.get_value() if isinstance(weight, nnx.Variable) else jnp.asarray(weight)
    if weight.ndim != 2:
        raise ValueError(f"weight has shape {tuple(weight.shape)}, and [num_embeddings, embedding_dim] was wanted")
    return weight


def renormalised(weight: Any, indices: jax.Array, max_norm: float, norm_type: float) -> jax.Array:
    """The table with the rows at these indices scaled down to `max_norm`; written into `weight` if that is a variable.

    Derivatives go through as though nothing had been scaled: PyTorch changes the rows in place under `no_grad`.
    """
    table = as_table(weight)
    fixed = lax.stop_gradient(table)
    flat = indices.reshape(-1)
    rows = fixed.at[flat].get(**FILL)
    norm = vector_norm(rows, norm_type, (-1,), keepdim=True)
    shorter = rows * (max_norm / (norm + 1e-7)).astype(rows.dtype)
    fixed = fixed.at[flat].set(jnp.where(norm > max_norm, shorter, rows), **DROP)
    if isinstance(weight, nnx.Variable):
        weight.set_value(fixed)
    return valued(table, fixed)


def rows_at(table: jax.Array, indices: jax.Array, padding_idx: int | None, scale_grad_by_freq: bool) -> jax.Array:
    """`table[indices]`: `[..., D]`, no derivative through `padding_idx`, NaN out of range."""
    rows = table.at[indices].get(**FILL)
    if padding_idx is not None:
        rows = jnp.where((indices == padding_idx)[..., None], lax.stop_gradient(rows), rows)
    if scale_grad_by_freq:
        flat = indices.reshape(-1)
        counts = jnp.zeros(len(table), rows.dtype).at[flat].add(1, **DROP)
        often = counts.at[indices].get(**FILL)[..., None]
        rows = valued(rows / often, rows)
    return rows
