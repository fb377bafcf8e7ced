"""Outputs and inputs of either framework as flat mappings from name to array."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from graphmode.weights import as_numpy

ROOT = "output"


def named_leaves(tree: Any, *, fields: bool = True) -> dict[str, Any]:
    """Every leaf of a nested output by its dotted name: `{"logits": ..., "hidden_states.0": ...}`.

    Mappings (a transformers `ModelOutput` is one), tuples, lists, named tuples and dataclasses nest; None is left out,
    a bare leaf is named `"output"`. With `fields=False` named tuples and dataclasses count their members instead, so
    that they compare with plain tuples.
    """
    return {name or ROOT: leaf for name, leaf in _walk(tree, "", fields)}


def to_arrays(leaves: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: as_numpy(leaf) for name, leaf in leaves.items()}


def is_floating(leaf: Any) -> bool:
    """Whether gradients flow into this array or tensor."""
    dtype = str(getattr(leaf, "dtype", "")).removeprefix("torch.")
    return dtype.startswith(("float", "bfloat"))


def _walk(tree: Any, name: str, fields: bool) -> Iterator[tuple[str, Any]]:
    if tree is None:
        return
    items: Iterator[tuple[Any, Any]]
    if isinstance(tree, Mapping):
        items = iter(tree.items())
    elif isinstance(tree, tuple | list):
        named = fields and hasattr(tree, "_fields")
        items = iter(zip(tree._fields, tree, strict=True)) if named else iter(enumerate(tree))  # type: ignore[union-attr]
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        members = [(f.name, getattr(tree, f.name)) for f in dataclasses.fields(tree)]
        items = iter(members) if fields else iter(enumerate(value for _, value in members))
    else:
        yield name, tree
        return
    for key, value in items:
        yield from _walk(value, f"{name}.{key}" if name else str(key), fields)
