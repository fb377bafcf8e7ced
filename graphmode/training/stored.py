"""The arrays of a state as a checkpoint has them: by name, random-number keys as their data, none without elements."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .manifest import is_key, named_leaves


def to_store(state: Any) -> dict[str, jax.Array]:
    """The arrays to write; Orbax refuses those without elements, which the manifest has."""
    return {
        name: jax.random.key_data(leaf) if is_key(leaf) else leaf
        for name, leaf in named_leaves(state).items()
        if leaf.size
    }


def targets(wanted: Any) -> dict[str, Any]:
    """What Orbax is to read the arrays of an abstract state as."""
    return {name: _target(leaf) for name, leaf in named_leaves(wanted).items() if leaf.size}


def as_state(read: Any, wanted: Any) -> Any:
    """The state that `wanted` is the abstract one of, with the arrays that were read."""
    leaves = [_as_leaf(read.get(name), leaf) for name, leaf in named_leaves(wanted).items()]
    return jax.tree.unflatten(jax.tree.structure(wanted), leaves)


def _stored(leaf: Any) -> Any:
    """Shape, dtype and sharding of what is written of an array: random-number keys as their data."""
    if not is_key(leaf):
        return leaf
    data = jax.eval_shape(jax.random.key_data, leaf)
    return jax.ShapeDtypeStruct(data.shape, data.dtype, sharding=leaf.sharding)


def _target(leaf: Any) -> Any:
    """What Orbax is to read an array as: in the shards of a placement, else in host memory."""
    stored = _stored(leaf)
    return np.empty(stored.shape, stored.dtype) if leaf.sharding is None else stored


def _as_leaf(read: Any, wanted: Any) -> jax.Array:
    if read is None:
        stored = _stored(wanted)
        read = jnp.zeros(stored.shape, stored.dtype, device=wanted.sharding)
    # a copy, since XLA on CPU takes numpy's memory as it is, and could then not write the state over it
    array = read if isinstance(read, jax.Array) else jnp.array(read, copy=True)
    return jax.random.wrap_key_data(array, impl=_key_impl(wanted)) if is_key(wanted) else array


def _key_impl(keys: Any) -> Any:
    found: list[Any] = []
    jax.eval_shape(lambda traced: found.append(jax.random.key_impl(traced)), keys)
    return found[0]
