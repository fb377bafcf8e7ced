"""What `Padded`'s methods do with rows: order them, map a function over them; plain arrays in and out.

`rows` are arrays `[capacity, ...]`, or a pytree of such; `valid` is `[capacity]`, bool, true anywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..arguments import as_fill_value
from ..indices import DROP, IN_BOUNDS
from ..selection.places import picked_before, places
from .masked import highest, lowest


def along_rows(valid: jax.Array, leaf: jax.Array) -> jax.Array:
    """`valid` with as many axes as `leaf`."""
    return valid.reshape(valid.shape + (1,) * (leaf.ndim - 1))


def filled(rows: Any, valid: jax.Array, fill_value: Any) -> Any:
    """`rows` with `fill_value` in what is padding."""
    return jax.tree.map(
        lambda leaf: jnp.where(along_rows(valid, leaf), leaf, as_fill_value(fill_value, leaf.dtype)), rows
    )


def valid_first(valid: jax.Array) -> jax.Array:
    """Slots `[capacity]`, int32: those of valid rows in their order, then the others. Prefix sums, no sort."""
    target, _ = places(valid)
    slots = jnp.arange(len(valid), dtype=jnp.int32)
    return jnp.zeros_like(slots).at[target].set(slots, unique_indices=True, **IN_BOUNDS)


def joined_rows(parts: Sequence[tuple[jax.Array, jax.Array]], capacity: int, fill_value: Any) -> jax.Array:
    """The valid ones of each `(leaf, valid)` one after another, cut or filled to `capacity`."""
    dtype = jnp.result_type(*(leaf for leaf, _ in parts))
    leaves, marks = [leaf.astype(dtype) for leaf, _ in parts], [valid for _, valid in parts]
    rows = sum(map(len, leaves))
    room = jnp.full((rows, *leaves[0].shape[1:]), as_fill_value(fill_value, dtype))

    def copied(leaves: list[jax.Array]) -> jax.Array:
        # The padding at the end of one part is overwritten by the next.
        joined, start = room, jnp.zeros((), jnp.int32)
        for leaf, valid in zip(leaves, marks, strict=True):
            joined = jax.lax.dynamic_update_slice_in_dim(joined, leaf, start, 0)
            start += jnp.sum(valid, dtype=jnp.int32)
        return joined

    def moved(leaves: list[jax.Array]) -> jax.Array:
        target = jnp.where(valid, picked_before(valid)[0], rows)
        return room.at[target].set(jnp.concatenate(leaves), **DROP)

    valid = jnp.concatenate(marks)
    # Moving row by row is several times slower on a CPU than a copy, which does where no part has gaps.
    gapless = functools.reduce(jnp.logical_and, [jnp.all(mark[1:] <= mark[:-1]) for mark in marks])
    joined = jax.lax.cond(gapless, copied, moved, leaves)[:capacity]
    joined = jnp.concatenate([joined, jnp.zeros((capacity - len(joined), *joined.shape[1:]), dtype)])
    return filled(joined, jnp.arange(capacity) < jnp.sum(valid, dtype=jnp.int32), fill_value)


def sorted_columns(leaf: jax.Array, valid: jax.Array, descending: bool) -> jax.Array:
    """Each column's valid entries in order, at the front; what follows them means nothing."""
    keys, _ = _sort_keys(leaf, valid, descending)
    ordered = jnp.sort(keys, axis=0)
    return jnp.flip(ordered, 0) if descending else ordered


def sorting_slots(leaf: jax.Array, valid: jax.Array, descending: bool) -> jax.Array:
    """Slots, int32, that bring each column's valid entries in order, ties as they stand; then those of the padding."""
    keys, slots = _sort_keys(leaf, valid, descending)
    _, ordered = jax.lax.sort((keys, slots), dimension=0, num_keys=1, is_stable=True)
    return jnp.flip(ordered, 0) if descending else ordered


def _sort_keys(leaf: jax.Array, valid: jax.Array, descending: bool) -> tuple[jax.Array, jax.Array]:
    # The padding takes the greatest key and stands behind the valid rows beforehand, so that a stable sort leaves it
    # behind valid entries of that same key; descending, all of that backwards.
    last = lowest(leaf.dtype) if descending else highest(leaf.dtype)
    if not descending and jnp.issubdtype(leaf.dtype, jnp.inexact):
        last = jnp.nan
    order = valid_first(valid)
    order = jnp.flip(order) if descending else order
    keys = jnp.where(along_rows(valid, leaf), leaf, jnp.asarray(last, leaf.dtype))[order]
    return keys, jnp.broadcast_to(along_rows(order, leaf), leaf.shape)


def mapped_rows(every: Callable[[Any], Any], rows: Any, valid: jax.Array, fill_value: Any) -> Any:
    """`every` of the valid rows. It never sees padding: copies of a valid row stand in, and with none it does not run.

    A `where` on the result alone would be no help: a NaN made from padding would reach the gradient of what `every`
    closes over. `lax.cond` keeps to that also under `vmap`, where it becomes a select of its operands.
    """
    if not len(valid):
        return every(rows)
    safe = jax.tree.map(lambda leaf: _with_stand_ins(leaf, valid), rows)
    shapes = jax.eval_shape(every, safe)

    def nothing(_: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    return filled(jax.lax.cond(jnp.any(valid), every, nothing, safe), valid, fill_value)


def mapped_in_chunks(every: Callable[[Any], Any], rows: Any, valid: jax.Array, fill_value: Any, chunk: int) -> Any:
    """As `mapped_rows`, `chunk` rows at a time, and only as many chunks as the valid rows fill."""
    from ..control.scan_until import scan_until

    steps = -(-len(valid) // chunk)
    slots = jnp.pad(valid_first(valid), (0, steps * chunk - len(valid)))
    chunks = jax.tree.map(lambda leaf: leaf[slots].reshape(steps, chunk, *leaf.shape[1:]), rows)
    held = jnp.sum(valid, dtype=jnp.int32)

    def step(done: jax.Array, some: Any) -> tuple[jax.Array, Any, jax.Array]:
        there = done + jnp.arange(chunk, dtype=jnp.int32) < held
        done += chunk
        return done, mapped_rows(every, some, there, 0), done >= held

    _, mapped, _ = scan_until(step, jnp.int32(0), chunks)
    back, _ = places(valid)
    unchunked = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[back], mapped.values)
    return filled(unchunked, valid, fill_value)


def mapped_in_sizes(
    every: Callable[[Any], Any], rows: Any, valid: jax.Array, fill_value: Any, sizes: Sequence[int]
) -> Any:
    """As `mapped_rows`, as many rows at a time as the first of `sizes` that holds the valid ones."""
    capacity = len(valid)
    sizes = (*sizes, capacity)
    slots, held = valid_first(valid), jnp.sum(valid, dtype=jnp.int32)
    shapes = jax.eval_shape(every, rows)

    def nothing(_: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def of(size: int) -> Callable[[Any], Any]:
        def mapped(rows: Any) -> Any:
            there = jnp.arange(size, dtype=jnp.int32) < held
            some = jax.tree.map(lambda leaf: _with_stand_ins(leaf[slots[:size]], there), rows)
            room = [(0, capacity - size)]
            return jax.tree.map(lambda leaf: jnp.pad(leaf, room + [(0, 0)] * (leaf.ndim - 1)), every(some))

        return mapped

    choice = jnp.searchsorted(jnp.array((0, *sizes), jnp.int32), held)
    mapped = jax.lax.switch(choice, [nothing, *map(of, sizes)], rows)
    back, _ = places(valid)
    return filled(jax.tree.map(lambda leaf: leaf[back], mapped), valid, fill_value)


def _with_stand_ins(leaf: jax.Array, valid: jax.Array) -> jax.Array:
    """Rows, copies of the first valid one in place of what is padding."""
    return jnp.where(along_rows(valid, leaf), leaf, jax.lax.stop_gradient(leaf[jnp.argmax(valid)]))
