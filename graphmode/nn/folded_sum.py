"""Sums of what is computed element by element, over all or along rows, as fast on a CPU as elements can be read."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .apart import kept_apart
from .compiled_once import compiled_once

FOLDS = 8  # 4 to 16 take about as long
LEAST = 1 << 16  # elements; of fewer the sum takes no time that counts
PIECES = 20  # of a row; 16 to 32 take about as long
LEAST_ROW = 4 * PIECES  # elements
COLUMNS = 4  # that few numbers are summed in, so that no sum is long
MOST = 1 << 11  # numbers; of more than that two processors sum better
TOGETHER = 16  # pieces of a row; at 32 XLA no longer unrolls the loop over them, and takes twice as long
LANES = 16  # numbers of a piece: a vector, so that a row is read from its start to its end

MANY = 1 << 18  # elements; of fewer one sum takes as long as blocks
BLOCK = 1 << 17  # bytes
LEAST_BLOCK = 32  # rows
MOST_BLOCKS = 64

Static = tuple[tuple[str, Hashable], ...]
Each = Callable[..., jax.Array]
Several = Callable[..., tuple[jax.Array, ...]]


def folded_sum(function: Each, *arrays: jax.Array, **static: Hashable) -> jax.Array:
    """`function(*arrays, **static).sum()`, where `function` computes each element from those at its place.

    XLA's CPU backend sums in a library that knows few operations and takes each as a pass of its own, and writes out
    what comes before the others. Here an eighth of the elements is added to the next eighth in the loop that computes
    them, and what is left, an eighth, is summed. Of 4 million elements of a Huber loss that takes 0.5 ms where the
    library takes 1.9. The derivative is computed from the arrays again, so that nothing is kept for it.

    Args:
      function: cheap, a few arithmetic operations: with many, loops over eight of them get slow. One and the same
        object at every call, or eager code compiles it each time.
      arrays: of shapes that broadcast. Others than floating ones have no derivative.
      static: hashable arguments of `function`.
    """
    shape = jnp.broadcast_shapes(*(array.shape for array in arrays))
    items = tuple(static.items())
    if any(array.shape != shape for array in arrays) or not is_large(shape, LEAST):
        return function(*arrays, **static).sum()
    return _total(function, items, arrays)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
@compiled_once("function", "static")
def _total(function: Each, static: Static, arrays: tuple[jax.Array, ...]) -> jax.Array:
    each = partial(function, **dict(static))
    return lax.platform_dependent(*arrays, cpu=partial(_of_folds, each), default=lambda *arrays: each(*arrays).sum())


@_total.defjvp
def _total_jvp(function: Each, static: Static, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    # Behind the barrier nothing is shared with the sum: XLA would write it out between the two.
    afresh = lax.optimization_barrier(primals[0])
    _, moved = jax.jvp(partial(function, **dict(static)), afresh, tangents[0])
    return _total(function, static, *primals), moved.sum()


def _of_folds(each: Each, *arrays: jax.Array) -> jax.Array:
    flat = [array.reshape(-1) for array in arrays]
    length = flat[0].size // FOLDS

    def folded(*flat: jax.Array) -> jax.Array:
        folds = [[array[i * length : (i + 1) * length] for array in flat] for i in range(FOLDS)]
        return reduce(lax.add, [each(*fold) for fold in folds])

    # Apart, or XLA takes the additions into the library's sum.
    total = kept_apart(folded)(*flat).sum()
    rest = [array[FOLDS * length :] for array in flat]
    return total + each(*rest).sum() if rest[0].size else total


def folded_rows(function: Each, *arrays: jax.Array, **static: Hashable) -> jax.Array:
    """`function(*arrays, **static).sum(-1)`, as `folded_sum`: each row's twentieths are added up as they are computed.

    Args:
      function: as of `folded_sum`.
      arrays: with equally many axes, that broadcast. Others than floating ones have no derivative.
      static: hashable arguments of `function`.
    """
    shape = jnp.broadcast_shapes(*(array.shape for array in arrays))
    if not is_large(shape, LEAST) or shape[-1] < LEAST_ROW:
        return function(*arrays, **static).sum(-1)
    return _rows(function, tuple(static.items()), arrays)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
@compiled_once("function", "static")
def _rows(function: Each, static: Static, arrays: tuple[jax.Array, ...]) -> jax.Array:
    each = partial(function, **dict(static))
    return lax.platform_dependent(*arrays, cpu=partial(_of_pieces, each), default=lambda *arrays: each(*arrays).sum(-1))


@_rows.defjvp
def _rows_jvp(function: Each, static: Static, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    afresh = lax.optimization_barrier(primals[0])
    _, moved = jax.jvp(partial(function, **dict(static)), afresh, tangents[0])
    return _rows(function, static, *primals), moved.sum(-1)


def _of_pieces(each: Each, *arrays: jax.Array) -> jax.Array:
    width = max(array.shape[-1] for array in arrays)
    length = width // PIECES

    def piece(arrays: tuple[jax.Array, ...], start: int, stop: int) -> list[jax.Array]:
        return [array if array.shape[-1] == 1 else array[..., start:stop] for array in arrays]

    def folded(*arrays: jax.Array) -> jax.Array:
        return reduce(lax.add, [each(*piece(arrays, i * length, (i + 1) * length)) for i in range(PIECES)])

    total = kept_apart(folded)(*arrays).sum(-1)
    rest = piece(arrays, PIECES * length, width)
    return total + each(*rest).sum(-1) if PIECES * length < width else total


def joint_row_sums(function: Several, *arrays: jax.Array, **static: Hashable) -> tuple[jax.Array, ...]:
    """The sums over the last axis of each array in the tuple `function(*arrays, **static)`.

    XLA's CPU backend takes each sum by itself and reads the arrays anew for it. Here one loop adds up short pieces of
    the rows for all of them: the three sums of a cosine of 4096 rows of 1024 take 1.3 ms where they took 2.1, of 256
    rows of 10,000 0.9 and 1.2.

    Args:
      function: as of `folded_sum`; one object at every call.
      arrays: with equally many axes, that broadcast. Others than floating ones have no derivative.
      static: hashable arguments of `function`.
    """
    shape = jnp.broadcast_shapes(*(array.shape for array in arrays))
    if any(array.shape != shape for array in arrays) or not is_large(shape, LEAST) or shape[-1] < LEAST_ROW:
        return tuple(each.sum(-1) for each in function(*arrays, **static))
    return _joint(function, tuple(static.items()), arrays)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
@compiled_once("function", "static")
def _joint(function: Several, static: Static, arrays: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    each = partial(function, **dict(static))

    def by_default(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(one.sum(-1) for one in each(*arrays))

    return lax.platform_dependent(*arrays, cpu=partial(_of_short_pieces, each), default=by_default)


@_joint.defjvp
def _joint_jvp(function: Several, static: Static, primals: Any, tangents: Any) -> tuple[Any, Any]:
    afresh = lax.optimization_barrier(primals[0])
    _, moved = jax.jvp(partial(function, **dict(static)), afresh, tangents[0])
    return _joint(function, static, *primals), tuple(one.sum(-1) for one in moved)


def _of_short_pieces(each: Several, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    *lead, width = arrays[0].shape
    lanes = LANES if width >= LANES * TOGETHER else width // TOGETHER
    pieces = min(range(TOGETHER, TOGETHER // 2, -1), key=lambda pieces: width % (pieces * lanes))
    whole = width - width % (pieces * lanes)

    def cut_up(array: jax.Array) -> jax.Array:
        return array[..., :whole].reshape(*lead, -1, pieces * lanes)

    parts = each(*(array[..., :whole] for array in arrays))
    added = added_up(tuple(map(cut_up, parts)), len(lead) + 1, pieces)
    sums = tuple(one.sum((-2, -1)) for one in added)
    if whole == width:
        return sums
    rest = each(*(array[..., whole:] for array in arrays))
    return tuple(total + one.sum(-1) for total, one in zip(sums, rest, strict=True))


@jax.custom_jvp
def sum_and_count(values: jax.Array, counts: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`values.sum()`, and how many of the booleans `counts`, of its shape, are true, in the dtype of `values`.

    XLA's CPU backend takes each sum in a library or by itself, and what is summed before them. Here all of that is one
    loop: `NLLLoss` of 1,024 rows takes 13 us where it took 25.
    """

    def by_default(values: jax.Array, counts: jax.Array) -> tuple[jax.Array, jax.Array]:
        return values.sum(), counts.sum().astype(values.dtype)

    if not is_large(values.shape, 1) or values.size > MOST or values.size % COLUMNS:
        return by_default(values, counts)
    return lax.platform_dependent(values, counts, cpu=_in_columns, default=by_default)


@sum_and_count.defjvp
def _sum_and_count_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    total, count = sum_and_count(*primals)
    return (total, count), (tangents[0].sum(), jnp.zeros_like(count))


def _in_columns(values: jax.Array, counts: jax.Array) -> tuple[jax.Array, jax.Array]:
    columns = [one.reshape(-1, COLUMNS)[:, i] for one in (values, counts.astype(values.dtype)) for i in range(COLUMNS)]
    zeros = (np.zeros((), values.dtype),) * len(columns)
    # Numbers, not arrays: XLA would share out the places of an array among threads, which takes longer than the sums.
    sums = lax.reduce(tuple(columns), zeros, lambda x, y: tuple(map(lax.add, x, y)), (0,))
    return reduce(lax.add, sums[:COLUMNS]), reduce(lax.add, sums[COLUMNS:])


def sum_over_positions(x: jax.Array) -> jax.Array:
    """`x.sum(1)` of `[B, positions, C]`, such as an image whose channels are last.

    XLA's CPU backend has one thread for sums over a middle axis of few large examples. Of blocks of their rows, as
    many examples as there are blocks, it adds up in two: of 8x3136x64 in 220 us where it took 390, and PyTorch 195.
    """
    if not is_large(x.shape, MANY):
        return x.sum(1)
    examples, rows, width = x.shape
    most = BLOCK // (width * x.dtype.itemsize)
    blocks = next((n for n in range(1, MOST_BLOCKS + 1) if rows % n == 0 and rows // n <= most), 1)
    if blocks == 1 or rows // blocks < LEAST_BLOCK:
        return x.sum(1)

    def in_blocks(x: jax.Array) -> jax.Array:
        sums = x.reshape(examples * blocks, rows // blocks, width).sum(1)
        return lax.optimization_barrier(sums).reshape(examples, blocks, width).sum(1)  # or XLA makes them one sum

    return lax.platform_dependent(x, cpu=in_blocks, default=lambda x: x.sum(1))


def added_up(arrays: tuple[jax.Array, ...], axis: int, pieces: int) -> tuple[jax.Array, ...]:
    """So many pieces of an axis added to each other, for all arrays in one loop: the axis is that much shorter.

    XLA's CPU backend uses vectors for it where LLVM unrolls the loop over the pieces: of 8 it does, of 32 not. It has
    no derivative.
    """
    shape = arrays[0].shape
    cut_up = (array.reshape(*shape[:axis], pieces, shape[axis] // pieces, *shape[axis + 1 :]) for array in arrays)
    zeros = (np.zeros((), arrays[0].dtype),) * len(arrays)
    return lax.reduce(tuple(cut_up), zeros, lambda x, y: tuple(map(lax.add, x, y)), (axis,))


def is_large(shape: Sequence[Any], least: int) -> bool:
    """Whether there are so many elements; not where `jax.export` leaves a length open."""
    return all(isinstance(length, int) for length in shape) and math.prod(shape) >= least


def largest_divisor(length: Any, most: int) -> int:
    """The largest number up to `most` that divides a length; 1 where `jax.export` leaves it open."""
    return max(n for n in range(1, most + 1) if length % n == 0) if isinstance(length, int) else 1
