"""`tell`: the host is told of those lanes of a graph, `vmap`ped or not, where a predicate holds, in one call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike

# Part of the key of jit's cache: a function traced without callbacks is not taken for one with them.
_callbacks = jax.make_user_context(True)


@contextlib.contextmanager
def no_callbacks() -> Iterator[None]:
    """What is traced inside gets no calls to the host from `check` and `debug_print`, as `jax.export` wants it.

    An exported graph cannot call Python, so `jax.export` refuses callbacks. What must be known of values there goes
    out as an output: `Padded.count`, or the predicate of the check itself. `opaque` cannot be left out.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp
      >>> @jax.jit
      ... def root(x):
      ...     gm.check(x >= 0, "negative: {x}", x=x)
      ...     return jnp.sqrt(x)
      >>> with gm.no_callbacks():
      ...     exported = jax.export.export(root)(jnp.float32(4))
      >>> float(exported.call(jnp.float32(9)))
      3.0
    """
    with _callbacks(False):
        yield


class Told(NamedTuple):
    """What the host hears of one lane.

    Attributes:
      lane: its index in each `vmap` around, outermost first; empty without.
      where: the predicate there, an array.
      values: as they were given, arrays of numpy.
    """

    lane: tuple[int, ...]
    where: np.ndarray
    values: Any


Report = Callable[[list[Told], tuple[int, ...]], None]


def tell(report: Report, where: ArrayLike, values: Any, *, ordered: bool = False) -> None:
    """Calls `report(lanes, sizes)` on the host, if `where` holds anywhere.

    Under `vmap` it is one call, with the lanes where the predicate holds in any entry, and `sizes`, how many lanes
    there are in each level. A graph reaches for the host only where the predicate holds: neither are values copied
    nor is Python called otherwise. With concrete arrays, outside `jit`, `report` is called at once and what it raises
    reaches the caller as it is. No gradient goes through.

    `lax.cond` cannot do this: a batched predicate makes it a select, and the callbacks of both sides are made for all
    lanes. So the branch stays inside a `custom_vmap`, whose rule hears of the lanes.

    Args:
      report: host function.
      where: bool, of any shape.
      values: a pytree; its arrays come to the host, other leaves stay as they are.
      ordered: among all ordered effects of the graph, in program order.
    """
    if not _callbacks.value:
        return
    leaves, tree = jax.tree.flatten(values)
    arrays = [index for index, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray | np.generic)]
    fixed = {index: leaf for index, leaf in enumerate(leaves) if index not in arrays}

    def unflattened(found: list[np.ndarray]) -> Any:
        given = dict(zip(arrays, found, strict=True)) | fixed
        return jax.tree.unflatten(tree, [given[index] for index in range(len(leaves))])

    def reported(levels: tuple[tuple[int, tuple[bool, ...]], ...], received: tuple[Any, ...]) -> None:
        where, *found = map(np.asarray, received)
        sizes = tuple(size for size, _ in levels)
        lanes = []
        for lane in _lanes_where(where, levels):

            def of_lane(array: np.ndarray, k: int, lane: tuple[int, ...] = lane) -> np.ndarray:
                return array[tuple(at for at, (_, mapped) in zip(lane, levels, strict=True) if mapped[k])]

            lanes.append(
                Told(lane, of_lane(where, 0), unflattened([of_lane(array, k) for k, array in enumerate(found, 1)]))
            )
        report(lanes, sizes)

    plain = [_plain(leaves[index]) for index in arrays]
    _send(reported, ordered, (), tuple(map(lax.stop_gradient, (jnp.asarray(where), *plain))))


def _plain(array: Any) -> jax.Array:
    array = jnp.asarray(array)
    return jax.random.key_data(array) if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array


def _lanes_where(where: np.ndarray, levels: tuple[tuple[int, tuple[bool, ...]], ...]) -> list[tuple[int, ...]]:
    """Indices of the lanes with any entry of `where`, a level in which it is not mapped counting for all its lanes."""
    depth = sum(mapped[0] for _, mapped in levels)
    any_entry = np.asarray(where.any(axis=tuple(range(depth, where.ndim))))
    spread = any_entry[tuple(slice(None) if mapped[0] else None for _, mapped in levels)]
    return [tuple(map(int, lane)) for lane in np.argwhere(np.broadcast_to(spread, [size for size, _ in levels]))]


def _send(
    reported: Callable[..., None],
    ordered: bool,
    levels: tuple[tuple[int, tuple[bool, ...]], ...],
    leaves: tuple[jax.Array, ...],
) -> None:
    wanted = jnp.any(leaves[0])
    if not any(isinstance(array, jax.core.Tracer) for array in (wanted, *leaves)):
        if wanted:
            reported(levels, leaves)
        return

    def call(*leaves: jax.Array) -> None:
        jax.debug.callback(lambda *received: reported(levels, received), *leaves, ordered=ordered)

    @custom_vmap
    def send(*leaves: jax.Array) -> tuple[()]:
        lax.cond(jnp.any(leaves[0]), call, lambda *leaves: None, *leaves)
        return ()

    @send.def_vmap
    def lanes(size: int, mapped: list[bool], *leaves: jax.Array) -> tuple[tuple[()], tuple[()]]:
        _send(reported, ordered, ((size, tuple(mapped)), *levels), leaves)
        return (), ()

    send(*leaves)
