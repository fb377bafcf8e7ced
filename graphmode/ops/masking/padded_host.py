"""A `Padded` as Python sees it: its text, also while it is traced, and its rows as a list."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

SHOWN = 8


def described(values: Any, valid: Any, count: Any) -> str:
    """The text of a `Padded`; of one that JAX is transforming too, whose leaves may be anything."""
    leaves = jax.tree.leaves((values, valid, count))
    if not all(hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in leaves) or not hasattr(valid, "shape"):
        return f"Padded(values={values!r}, valid={valid!r}, count={count!r})"
    kinds = jax.tree.map(lambda leaf: _Bare(f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"), values)
    parts = [repr(kinds)]
    if len(valid.shape) > 1:
        parts.append(f"batch={tuple(valid.shape[:-1])}")
    parts.append(f"capacity={valid.shape[-1] if valid.shape else valid.shape}")
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        parts.append("traced")
    elif any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        parts.append("abstract")
    elif any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves):
        parts.append("deleted or donated")
    elif all(not isinstance(leaf, jax.Array) or leaf.is_fully_addressable for leaf in leaves):
        parts.extend(_contents(values, np.asarray(valid), np.asarray(count)))
    return f"Padded({', '.join(parts)})"


def listed(values: Any, valid: Any, count: Any) -> list[Any]:
    """The valid rows as Python numbers or nested lists; what `Padded.to_list` documents."""
    leaves, structure = jax.tree.flatten(values)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in (*leaves, valid, count)):
        raise TypeError(
            "to_list was called on a Padded that is traced, and a list needs values; return the Padded from the "
            "compiled function and call to_list outside"
        )
    valid = np.asarray(valid)
    if int(count) > valid.sum():
        raise ValueError(
            f"the Padded holds {valid.sum()} of {int(count)} entries, for want of room; give a larger capacity, or "
            f"take those held, as in np.asarray(padded.values)[padded.valid]"
        )
    columns = [np.asarray(leaf)[valid].tolist() for leaf in leaves]
    return [jax.tree.unflatten(structure, row) for row in zip(*columns, strict=True)]


class _Bare(str):
    """A text that shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _contents(values: Any, valid: np.ndarray, count: np.ndarray) -> list[str]:
    held = valid.sum(-1)
    parts = [f"count={count.tolist()}"]
    if np.any(count > held):
        parts.append(f"overflow, {held.tolist()} held")
    if valid.ndim == 1 and hasattr(values, "shape") and len(values.shape) == 1:
        entries = [str(entry) for entry in np.asarray(values)[valid][:SHOWN].tolist()]
        dots = [f"... {held - SHOWN} more"] if held > SHOWN else []
        parts.append(f"[{', '.join(entries + dots)}]")
    return parts
