"""Batches of other libraries as pytrees of numpy arrays, and what is asked of their leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ...weights import as_numpy


def as_host(batch: Any) -> Any:
    """A batch with tensors, numbers and whatever has `__array__` as numpy arrays, of the same bits and memory.

    Dicts, lists, tuples and named tuples keep their kind, any other mapping becomes a dict, and a leaf that is none of
    these, as a string, is left as it is.

    Example:
      >>> as_host({"x": 1.5, "name": "a"})
      {'name': 'a', 'x': array(1.5)}
    """
    return jax.tree.map(_leaf, batch)


def _leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | jax.Array | str | bytes):
        return leaf
    if isinstance(leaf, Mapping):
        return as_host(dict(leaf))
    if hasattr(leaf, "detach"):
        return as_numpy(leaf)
    if isinstance(leaf, bool | int | float | complex) or hasattr(leaf, "__array__"):
        return np.asarray(leaf)
    return leaf


def check_holds_arrays(batch: Any, told: str) -> None:
    """Raises `ValueError` for a batch that is None, or holds nothing else, as a `collate_fn` may give it."""
    if not jax.tree.leaves(batch):
        raise ValueError(f"{told} is {batch!r}, which holds no arrays; leave it out of the data")


def as_rows(arrays: Any, *, name: str) -> tuple[Any, int]:
    """A pytree of numpy arrays `[N, ...]`, and N.

    Raises:
      ValueError: where there is no array, one has no axis, or their lengths differ.
    """
    arrays = as_host(arrays)
    leaves = [(f"{name}{jax.tree_util.keystr(path)}", leaf) for path, leaf in jax.tree.leaves_with_path(arrays)]
    if not leaves:
        raise ValueError(f"{name} is {arrays!r}, which holds no array; give arrays [N, ...]")
    for path, leaf in leaves:
        if not isinstance(leaf, np.ndarray | jax.Array) or leaf.ndim == 0:
            raise ValueError(
                f"{path} is {leaf!r}, and an array [N, ...] was wanted; lists are read as pytrees, so make an array "
                f"of one with np.array"
            )
    if len({len(leaf) for _, leaf in leaves}) > 1:
        told = ", ".join(f"{path} has {len(leaf)}" for path, leaf in leaves)
        raise ValueError(f"arrays have different numbers of rows: {told}; give one row each for every example")
    return jax.tree.map(np.asarray, arrays), len(leaves[0][1])
