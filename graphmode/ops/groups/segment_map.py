"""`segment_map`: a function with parameters of its own for each group, on the rows of that group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..arguments import as_capacity
from ..bisection import bisected
from ..selection.places import in_order_of_groups
from .segment_reduce import Rows
from .segments import Groups, Segments, as_column, members, settled_segments

BLOCK_SIZE = 32


def segment_map(
    fn: Callable[[Any, jax.Array], Any],
    parameters: Any,
    x: Rows,
    groups: Groups,
    *,
    num_segments: int | None = None,
    block_size: int = BLOCK_SIZE,
) -> Any:
    """Experts on the rows that chose them: `for g: out[ids == g] = fn(parameters[g], x[ids == g])`.

    However many rows each group has, none is dropped, and the work hardly grows with the number of groups: rows lie in
    the order of their groups, each group starts a new block, and a block has one group. At most
    `N / block_size + num_segments` blocks are computed, one after another, so that no more than one group's parameters
    are laid out anew at a time. Two experts of eight for each of 512 tokens (256 to 512 to 256) take 9 ms on two cores
    of a CPU, all experts on all tokens 28, and two `jax.lax.ragged_dot`, which XLA expands there, 35.

    Args:
      fn: `(parameters of one group, rows [block_size, ...])` -> a pytree of `[block_size, ...]`. It treats each row by
        itself: some are there only to fill a block, copies of a row of the group, and what comes of them is dropped.
      parameters: a pytree of `[num_segments, ...]`, such as the state of modules made by `nnx.vmap`.
      x: `[N, ...]`, or a `Padded` of such: its invalid rows belong to no group.
      groups: of `N` rows: `Segments`; or ids, with `num_segments`, and then one that is out of range raises.
      num_segments: static; with ids.
      block_size: rows of a block, static. Large ones suit accelerators and large groups.

    Returns:
      What `fn` gives, `[N, ...]` in the order of the rows; 0, and with no gradient, for rows of no group. Rows,
      parameters and what `fn` closes over have gradients in reverse mode, for which each block is computed once more.

    Raises:
      ValueError: where `x` has not as many rows as `groups`, parameters have another leading axis, `fn` gives another
        number of rows, or block_size is not positive.
      TypeError: where `groups` are no `Segments`, or block_size is no integer.

    Example:
      >>> import jax.numpy as jnp
      >>> scales, ids = jnp.array([10.0, -1.0]), jnp.array([1, 0, 0, 1])
      >>> segment_map(lambda scale, rows: scale * rows, scales, jnp.arange(1.0, 5.0), ids, num_segments=2).tolist()
      [-1.0, 20.0, 30.0, -4.0]
    """
    rows, groups = members(x, groups, num_segments)
    count, held = rows.shape[0], groups.num_segments
    is_known = isinstance(count, int)  # `jax.export` may leave it open
    block_size = as_capacity(block_size, name="block_size")
    block_size = min(block_size, max(count, 1)) if is_known else block_size
    for path, leaf in jax.tree_util.tree_leaves_with_path(parameters):
        if jnp.shape(leaf)[:1] != (held,):
            name = f"parameters{jax.tree_util.keystr(path)}"
            raise ValueError(f"{name} has shape {jnp.shape(leaf)}, and [{held}, ...] was wanted, one for each group")

    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf)[1:], jnp.result_type(leaf)), parameters)
    given = jax.eval_shape(fn, one, jax.ShapeDtypeStruct((block_size, *rows.shape[1:]), rows.dtype))
    for leaf in jax.tree.leaves(given):
        if leaf.shape[:1] != (block_size,):
            raise ValueError(f"fn gives shape {leaf.shape} for {block_size} rows; give one for each row")
    if (is_known and not count) or not held:
        return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape[1:]), leaf.dtype), given)
    leaves, treedef = jax.tree.flatten(parameters)
    flat = [jnp.asarray(leaf) for leaf in leaves]
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(one)]
    converted, closed = jax.closure_convert(
        lambda rows, *leaves: fn(jax.tree.unflatten(treedef, leaves), rows),
        jax.ShapeDtypeStruct((block_size, *rows.shape[1:]), rows.dtype),
        *shapes,
    )
    results = _mapped(converted, rows, flat, closed, _blocks(groups, count, block_size))
    return jax.tree.map(lambda result: settled_segments(result, groups), results)


class _Blocks(NamedTuple):
    """Blocks of rows, each of one group.

    Attributes:
      group: `[B]`, of each block.
      used: `[B]`, whether it has rows.
      source: `[B, size]`, which rows; one that is there already where `filled` is false.
      filled: `[B, size]`.
      place: `[N]`, where each row is among those of all blocks.
      inside: `[N]`, whether it is there.
    """

    group: jax.Array
    used: jax.Array
    source: jax.Array
    filled: jax.Array
    place: jax.Array
    inside: jax.Array

    def back(self, result: jax.Array) -> jax.Array:
        """`[B, size, ...]` as `[N, ...]`."""
        given = result.reshape(-1, *result.shape[2:])[self.place]
        return jnp.where(as_column(self.inside, given), given, 0)


def _blocks(groups: Segments, count: int, size: int) -> _Blocks:
    held = groups.num_segments
    ids = jnp.where(groups.inside, groups.given, held)
    rank, order = in_order_of_groups(ids, held + 1)
    sizes = groups.counts
    ends = jnp.cumsum(sizes)
    begins = ends - sizes
    blocks = -(-sizes // size)
    last = jnp.cumsum(blocks)
    first = last - blocks
    most = (count + held * (size - 1)) // size  # as many as any sizes need
    block = jnp.arange(min(count, most) if isinstance(count, int) else most)
    used = block < last[-1]
    group = bisected(last, block, side="right").clip(0, held - 1)
    start = jnp.where(used, begins[group] + (block - first[group]) * size, 0)
    within = start[:, None] + jnp.arange(size)
    filled = (within < ends[group][:, None]) & used[:, None]
    source = order[jnp.where(filled, within, start[:, None])]
    own = ids.clip(0, held - 1)
    place = jnp.where(groups.inside, first[own] * size + rank - begins[own], 0)
    return _Blocks(group, used, source, filled, place, groups.inside)


def _of_group(leaves: Sequence[jax.Array], group: jax.Array) -> list[jax.Array]:
    return [lax.dynamic_index_in_dim(leaf, group, 0, keepdims=False) for leaf in leaves]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mapped(fn: Callable[..., Any], rows: jax.Array, leaves: list[Any], closed: list[Any], blocks: _Blocks) -> Any:
    def of_block(block: tuple[jax.Array, jax.Array]) -> Any:
        group, rows = block
        return fn(rows, *_of_group(leaves, group), *closed)

    return jax.tree.map(blocks.back, lax.map(of_block, (blocks.group, rows[blocks.source])))


def _mapped_forward(fn, rows, leaves, closed, blocks):
    return _mapped(fn, rows, leaves, closed, blocks), (rows, leaves, closed, blocks)


def _mapped_backward(fn, saved, cotangents):
    """Block by block once more: what a gradient by the parameters adds to is the part of one group, in place."""
    rows, leaves, closed, blocks = saved
    moving = [[_is_inexact(leaf) for leaf in held] for held in ([rows], leaves, closed)]

    def step(sums, block):
        by_leaves, by_closed = sums
        group, used, filled, rows, arriving = block
        own = _of_group(leaves, group)
        (kept, fixed), (more, other) = _parted(own, moving[1]), _parted(closed, moving[2])
        row, still = _parted([rows], moving[0])

        def moved(row, kept, more):
            return fn(
                *_joined(row, still, moving[0]), *_joined(kept, fixed, moving[1]), *_joined(more, other, moving[2])
            )

        given, pull = jax.vjp(moved, row, kept, more)
        by_row, by_kept, by_more = pull(jax.tree.map(partial(_as_cotangent, filled=filled), given, arriving))
        clean = partial(jax.tree.map, lambda change: jnp.where(used, change, 0))
        by_leaves = [
            lax.dynamic_update_index_in_dim(total, lax.dynamic_index_in_dim(total, group, 0, False) + change, group, 0)
            for total, change in zip(by_leaves, clean(by_kept), strict=True)
        ]
        return (by_leaves, [total + change for total, change in zip(by_closed, clean(by_more), strict=True)]), by_row

    arriving = jax.tree.map(
        lambda ct: jnp.zeros(len(blocks.group)) if _is_nothing(ct) else ct[blocks.source], cotangents
    )
    zeros = [
        [jnp.zeros_like(x) for x in _parted(held, which)[0]]
        for held, which in ((leaves, moving[1]), (closed, moving[2]))
    ]
    xs = (blocks.group, blocks.used, blocks.filled, rows[blocks.source], arriving)
    (by_leaves, by_closed), by_rows = lax.scan(step, tuple(zeros), xs)
    by_rows = [blocks.back(change) for change in by_rows]
    found = [
        _joined(changes, [np.zeros(x.shape, jax.dtypes.float0) for x in _parted(held, which)[1]], which)
        for changes, held, which in zip((by_rows, by_leaves, by_closed), ([rows], leaves, closed), moving, strict=True)
    ]
    return found[0][0], found[1], found[2], None


_mapped.defvjp(_mapped_forward, _mapped_backward)


def _as_cotangent(given: jax.Array, arriving: jax.Array, *, filled: jax.Array) -> Any:
    """0 for rows that only fill a block."""
    if not _is_inexact(given):
        return np.zeros(given.shape, jax.dtypes.float0)
    return jnp.where(as_column(filled, given), arriving, 0).astype(given.dtype)


def _is_inexact(x: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(x), jnp.inexact)


def _is_nothing(cotangent: Any) -> bool:
    return cotangent.dtype == jax.dtypes.float0


def _parted(items: Sequence[Any], which: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """Those for which it holds, and the others."""
    pairs = list(zip(items, which, strict=True))
    return [item for item, holds in pairs if holds], [item for item, holds in pairs if not holds]


def _joined(held: Sequence[Any], others: Sequence[Any], which: Sequence[bool]) -> list[Any]:
    first, second = iter(held), iter(others)
    return [next(first if holds else second) for holds in which]
