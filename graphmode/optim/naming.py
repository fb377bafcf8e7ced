"""The parameters of a tree by name: their arrays, values put in their places, and whether each has a gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from flax import nnx


def like(leaf: Any, value: jax.Array) -> Any:
    return leaf.replace(value) if isinstance(leaf, nnx.Variable) else value


def _is_variable(node: Any) -> bool:
    return isinstance(node, nnx.Variable)


def by_name(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a tree, an NNX variable being one, by dotted path."""
    found = jtu.tree_leaves_with_path(tree, is_leaf=_is_variable)
    return [(jtu.keystr(path, simple=True, separator="."), leaf) for path, leaf in found]


def array_of(leaf: Any) -> Any:
    value = leaf.get_raw_value() if isinstance(leaf, nnx.Variable) else leaf
    return value if hasattr(value, "shape") and hasattr(value, "dtype") else None


def with_values(tree: Any, params: Any, values: Mapping[str, jax.Array]) -> Any:
    """The tree of gradients with these in place of its arrays; zero, for None too, where nothing is stepped."""
    of = dict(by_name(params))

    def put(path: Any, leaf: Any) -> Any:
        name = jtu.keystr(path, simple=True, separator=".")
        model = of.get(name) if leaf is None else leaf
        array = array_of(model)
        if array is None:
            return leaf
        return like(model, values[name] if name in values else jnp.zeros_like(array))

    return jtu.tree_map_with_path(put, tree, is_leaf=lambda node: node is None or _is_variable(node))


def flags_of(present: Any, names: list[str]) -> dict[str, Any]:
    """Whether each parameter's gradient is there, True or False or a traced one; empty where nothing was said."""
    if present is None:
        return {}
    flags: dict[str, Any] = {}
    for key, leaf in by_name(present):
        flag = leaf.get_raw_value() if isinstance(leaf, nnx.Variable) else leaf
        if isinstance(flag, jax.Array | np.ndarray) and (flag.shape != () or flag.dtype != jnp.bool_):
            raise TypeError(f"present[{key!r}] is {flag.dtype}{list(flag.shape)}; give a single bool")
        if not isinstance(flag, bool | np.bool_ | np.ndarray | jax.Array):
            raise TypeError(f"present[{key!r}] is {flag!r}; give a bool")
        held = [name for name in names if key in ("", name) or name.startswith(f"{key}.")]
        if not held:
            raise ValueError(f"present has {key!r}, which is no parameter or module; there are {', '.join(names[:5])}")
        flags.update(dict.fromkeys(held, bool(flag) if not isinstance(flag, jax.Array) else flag))
    return flags
