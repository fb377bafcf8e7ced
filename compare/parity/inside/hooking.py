"""How a hook on a port's calls sees them and what goes in and out: numbered, as arrays, with others in their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from flax import nnx

from .calls import CallId
from .lanes import in_all_lanes
from .layouts import Pair
from .packed import unpacked

SCOPE = "graphmode:"  # before the path of a module, in the names that a graph gives its operations
BORDER = "<border>"  # in its place, of what stands at the border of a call


@contextmanager
def kept_in_memory() -> Iterator[None]:
    """Without `jax.checkpoint`, which traces its function, and so hides the values in it; `nnx.remat` is made of it."""

    def as_it_is(fun: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return fun

    usual = jax.checkpoint, jax.remat
    jax.checkpoint = jax.remat = as_it_is
    try:
        yield
    finally:
        jax.checkpoint, jax.remat = usual


def numbered(note: Any) -> Any:
    """A hook of `intercepted` that gives `note` the number of the call, too."""
    numbers: Counter[str] = Counter()

    def hook(path: str, module: nnx.Module, run: Any, args: Any, kwargs: Any) -> Any:
        numbers[path] += 1
        return note(CallId(path, numbers[path] - 1), module, run, args, kwargs)

    return hook


def taken_apart(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The arrays of a tree, modules and keys of random numbers left out, and how to put others in their places."""
    leaves, structure = jtu.tree_flatten(tree, is_leaf=lambda x: isinstance(x, nnx.Module | nnx.Variable | nnx.Rngs))
    places = [i for i, leaf in enumerate(leaves) if is_array(leaf)]

    def put(arrays: list[Any]) -> Any:
        whole = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            whole[place] = array
        return jtu.tree_unflatten(structure, whole)

    return [leaves[i] for i in places], put


def is_array(leaf: Any) -> bool:
    if isinstance(leaf, nnx.Module | nnx.Variable) or not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
        return False
    return not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def handed(lanes: list[Any], right: Mapping[str, np.ndarray], pairs: list[Pair]) -> list[Any]:
    """`with_theirs`, also within `jax.vmap`."""
    return in_all_lanes(lanes, lambda ours: with_theirs(ours, right, pairs))


def with_theirs(ours: list[Any], right: Mapping[str, np.ndarray], pairs: list[Pair]) -> list[Any]:
    """The reference's values in the port's layout and dtype, wherever one stands for another."""
    replaced, right = list(ours), unpacked(right)[0]
    for each in pairs:
        replaced[each.index] = jnp.asarray(each.layout.to_port(right[each.name]), ours[each.index].dtype)
    return replaced
