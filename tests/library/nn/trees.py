"""Trees of PyTorch's tensors and of jax arrays, by path."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import graphmode.nn as ours

from .samples import FLOATS


def to_jax(tree: Any, dtype: str | None) -> Any:
    """Tensors as jax arrays, floating ones in `dtype`; torch's functions as ours of that name; the rest as it is."""
    if isinstance(tree, torch.Tensor):
        array = tree.detach().cpu().numpy()
        return jnp.asarray(array, dtype) if dtype and tree.dtype in FLOATS else jnp.asarray(array)
    if isinstance(tree, np.ndarray):
        return jnp.asarray(tree, dtype) if tree.dtype.kind == "f" else jnp.asarray(tree)
    if isinstance(tree, tuple | list):
        items = [to_jax(item, dtype) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    if isinstance(tree, Mapping):
        return {key: to_jax(value, dtype) for key, value in tree.items()}
    if callable(tree) and hasattr(ours.functional, getattr(tree, "__name__", "")):
        return getattr(ours.functional, tree.__name__)
    if isinstance(tree, torch.dtype):
        return jnp.dtype(str(tree).removeprefix("torch."))
    return tree


def tensors_of(tree: Any, name: str = "") -> dict[str, torch.Tensor]:
    """Every tensor in a tree of tuples, lists and mappings, by its path."""
    return _found(tree, name, torch.Tensor)


def arrays_of(tree: Any, name: str = "") -> dict[str, jax.Array]:
    return _found(tree, name, (jax.Array, np.ndarray))


def _found(tree: Any, name: str, kind: Any) -> dict[str, Any]:
    if isinstance(tree, kind):
        return {name: tree}
    if isinstance(tree, tuple | list):
        pairs: Any = enumerate(tree)
    elif isinstance(tree, Mapping):
        pairs = tree.items()
    else:
        return {}
    found: dict[str, Any] = {}
    for key, child in pairs:
        found |= _found(child, f"{name}.{key}", kind)
    return found


def with_arrays(tree: Any, arrays: Mapping[str, Any], name: str = "") -> Any:
    """The tree with these in place of its arrays."""
    if isinstance(tree, jax.Array | np.ndarray):
        return arrays[name]
    if isinstance(tree, tuple | list):
        return type(tree)([with_arrays(item, arrays, f"{name}.{i}") for i, item in enumerate(tree)])
    if isinstance(tree, Mapping):
        return {key: with_arrays(value, arrays, f"{name}.{key}") for key, value in tree.items()}
    return tree


def cast(tree: Any, dtype: torch.dtype) -> Any:
    """Fresh leaves, floating tensors in `dtype`."""
    if isinstance(tree, torch.Tensor):
        fresh = tree.detach().clone()
        fresh = fresh.to(dtype) if tree.dtype in FLOATS else fresh
        return fresh.requires_grad_(tree.requires_grad)
    if isinstance(tree, tuple | list) and not hasattr(tree, "_fields"):
        return type(tree)([cast(item, dtype) for item in tree])
    if isinstance(tree, dict):
        return {key: cast(value, dtype) for key, value in tree.items()}
    if hasattr(tree, "_fields"):
        return copy.copy(tree).to(dtype) if hasattr(tree, "to") else tree
    return tree


def as_torch_integers(array: np.ndarray) -> np.ndarray:
    """int32, which is what JAX has without x64, as the int64 of PyTorch."""
    return array.astype(np.int64) if array.dtype == np.int32 else array
