"""Arrays within `jax.vmap`, all lanes at once: a module that the reference calls on a batch, a port may map over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.custom_batching import custom_vmap

Arrays = Sequence[Any]


def in_all_lanes(arrays: Arrays, change: Callable[[list[Any]], Arrays]) -> list[Any]:
    """What `change` makes of the arrays, which it sees with an axis of lanes in front for each `vmap` around, the
    outermost first. It gives as many, of the same shapes and dtypes, and is called once."""
    if not any(map(_is_mapped, arrays)):
        return list(change(list(arrays)))

    @custom_vmap
    def through(*each: Any) -> tuple[Any, ...]:
        return each

    @through.def_vmap
    def of_lanes(size: int, batched: Sequence[bool], *each: Any) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
        pairs = zip(each, batched, strict=True)
        whole = [x if mapped else jnp.broadcast_to(x, (size, *x.shape)) for x, mapped in pairs]
        return tuple(in_all_lanes(whole, change)), (True,) * len(whole)

    return list(through(*arrays))


def _is_mapped(array: Any) -> bool:
    """By its name: the class is no public one."""
    return any(kind.__name__ == "BatchTracer" for kind in type(array).__mro__)


def all_lanes(arrays: Arrays) -> list[Any]:
    """The arrays as `in_all_lanes` shows them; tracers where another transform hides their values."""
    seen: list[list[Any]] = []

    def look(whole: list[Any]) -> list[Any]:
        seen.append(whole)
        return whole

    in_all_lanes(arrays, look)
    return seen[0]
