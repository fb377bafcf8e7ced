"""`scattered`: the valid rows of a `Padded` back in the dense form that they came from; plain arrays in and out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..arguments import as_row_mask, as_rows
from ..host.checks import check
from ..indices import DROP, IN_BOUNDS
from ..selection.places import picked_before
from .valid_rows import along_rows, valid_first


def scattered(rows: Any, valid: jax.Array, count: jax.Array, where: ArrayLike, into: Any, strict: bool) -> Any:
    """`into` with the valid rows at a mask's true entries, or at indices: what `Padded.scatter` documents."""
    into, length = as_rows(into, name="into")
    check_alike(rows, into, "into", dtypes=True)
    where = jnp.asarray(where)
    held = jnp.sum(valid, dtype=jnp.int32)
    if where.dtype == jnp.bool_:
        mask = as_row_mask(where, length, of="into", shape=jax.tree.leaves(into)[0].shape, name="where")
        if strict:
            marked = jnp.sum(mask, dtype=jnp.int32)
            problem = "scatter: where marks {marked} rows, and {count} are there, {held} of them held"
            check((marked == count) & (marked == held), problem, marked=marked, count=count, held=held)
        return _at_mask(rows, valid, mask, into)
    if not jnp.issubdtype(where.dtype, jnp.integer) or where.shape != valid.shape:
        raise ValueError(
            f"where is {where.dtype}{list(where.shape)}; give a bool mask [{length}], one entry for each row of into, "
            f"or integers [{len(valid)}], one for each row held"
        )
    # A narrow dtype may not hold the length itself.
    where = where.astype(jnp.promote_types(where.dtype, jnp.int32))
    if strict:
        outside = jnp.sum(valid & ((where < 0) | (where >= length)))
        problem = (
            "scatter: {outside} rows have no place in the {length} of into; {count} are there, {held} of them held"
        )
        check((outside == 0) & (count == held), problem, outside=outside, length=length, count=count, held=held)
    return _at_indices(rows, valid, where, into)


def places(indices: Any, valid: jax.Array) -> jax.Array:
    """Indices as integers, -1, which places nothing, in the padding."""
    if not hasattr(indices, "dtype") or not jnp.issubdtype(indices.dtype, jnp.integer):
        raise ValueError(
            "where is a Padded of other than integers, and a Padded of indices, or a bool mask, was wanted"
        )
    return jnp.where(valid, indices.astype(jnp.promote_types(indices.dtype, jnp.int32)), -1)


def check_alike(rows: Any, other: Any, name: str, *, dtypes: bool = False) -> None:
    """Raises `ValueError` where `other` has another structure, other trailing shapes, or, if asked, other dtypes."""
    ours: Any = jax.tree.structure(rows)
    theirs: Any = jax.tree.structure(other)
    if ours != theirs:
        raise ValueError(f"{name} has the structure {theirs}, and {ours} was wanted, as the values have it")
    listed = jax.tree_util.tree_leaves_with_path(rows)
    for (path, leaf), given in zip(listed, jax.tree.leaves(other), strict=True):
        where = f"{name}{jax.tree_util.keystr(path)}"
        if given.shape[1:] != leaf.shape[1:]:
            raise ValueError(
                f"{where} has rows of shape {given.shape[1:]}, and the values have rows of {leaf.shape[1:]}"
            )
        if dtypes and given.dtype != leaf.dtype:
            raise ValueError(
                f"{where} has dtype {given.dtype}, and the values have {leaf.dtype}; cast one of them, as in PyTorch"
            )


def _at_mask(rows: Any, valid: jax.Array, mask: jax.Array, into: Any) -> Any:
    if not len(valid):
        return into
    rank, _ = picked_before(mask)
    placed = mask & (rank < jnp.sum(valid, dtype=jnp.int32))
    slot = valid_first(valid).at[jnp.where(placed, rank, 0)].get(**IN_BOUNDS)
    return jax.tree.map(lambda leaf, base: jnp.where(along_rows(placed, base), leaf[slot], base), rows, into)


def _at_indices(rows: Any, valid: jax.Array, indices: jax.Array, into: Any) -> Any:
    def placed(leaf: jax.Array, base: jax.Array) -> jax.Array:
        inside = valid & (indices >= 0) & (indices < len(base))
        return base.at[jnp.where(inside, indices, len(base))].set(leaf, **DROP)

    return jax.tree.map(placed, rows, into)
