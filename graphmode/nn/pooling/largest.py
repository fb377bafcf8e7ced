"""The largest element of each window, and where it stands: the first of several, and the last NaN where there is any.

A window of many axes is taken axis by axis, the last one first, which finds the same element as row by row. XLA's CPU
backend takes 22 ms for the value and gradient by `lax.reduce_window` at 1x112x112x64, kernel 3 and stride 2, and 2 ms
for what is here; at 1x28x28x256 and stride 1 it is 16 ms against 0.6.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..apart import apart
from ..compiled_once import compiled_once
from ..linear_map import apply_linear
from .span import Span

UNROLLED = 32  # elements of a window, beyond which a loop goes over them
MOST_WINDOWS = 4  # that a position may belong to, for its gradient to be gathered from them
NONE = 255  # the element of a window that is none
SELECTED = 4  # beyond which a gradient is scattered: XLA's loops over many shifted copies get slow


@dataclass(frozen=True)
class Walk:
    """How the windows along one axis of an input are reached.

    Attributes:
      span: of what `spread` gives.
      position: the element of a window, by number, for each window -> where it stands on the axis of the input.
      spread: what turns the input into an array with regular windows.
      windows: where each begins, and its length, if they are few enough to be taken one by one; None otherwise.
    """

    span: Span
    position: Callable[[jax.Array], Any]
    spread: Callable[[jax.Array], jax.Array] = lambda x: x
    windows: tuple[tuple[int, int], ...] | None = None


def regular(span: Span, ndim: int) -> Walk:
    """Windows at equal distances."""
    starts = span.along(span.starts, ndim)
    return Walk(span, lambda tap: tap * span.dilation + starts)


def largest_over(input: jax.Array, walks: Sequence[Walk], *, positions: bool) -> tuple[jax.Array, jax.Array | None]:
    """The largest element of each window, and its index in the row by row order of all spatial axes.

    Args:
      input: of any layout.
      walks: one for each spatial axis, in order.
      positions: whether the index is wanted; None in its place otherwise.
    """
    sizes = [input.shape[walk.span.axis] for walk in walks]
    dtype = jax.dtypes.canonicalize_dtype("int64")
    value, place = input, None
    for i, walk in reversed(list(enumerate(walks))):
        if walk.windows is None:
            value, tap = largest_along(walk.spread(value), walk.span)
        else:
            value, tap = _largest_of_few(value, walk.span.axis, walk.windows)
        if positions:
            here = walk.position(tap.astype(dtype)) * int(np.prod(sizes[i + 1 :]))
            place = here if place is None else here + chosen_along(walk.spread(place), walk.span, tap)
    return value, None if place is None else lax.convert_element_type(place, dtype)


def _largest_of_taps(kind: Any, first: Any, taps: dict[int, jax.Array]) -> tuple[jax.Array, jax.Array]:
    (_, largest), *others = taps.items()
    index = jnp.broadcast_to(jnp.asarray(first, kind), largest.shape)
    for number, tap in others:
        wins = lax.bitwise_or(lax.gt(tap, largest), lax.ne(tap, tap))
        largest = lax.select(wins, tap, largest)
        index = lax.select(wins, lax.full_like(index, number), index)
    return largest, index


@partial(jax.custom_jvp, nondiff_argnums=(1,))
@compiled_once("span")
def largest_along(x: jax.Array, span: Span) -> tuple[jax.Array, jax.Array]:
    """The largest element of each window along one axis, and which element of the window it is.

    Where all are minus infinity it is the first that stands in the array, rather than in the padding.
    """
    lowest = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    kind = np.uint8 if span.kernel <= 256 else np.int32
    if span.kernel <= UNROLLED:
        return span.over(x, lowest, partial(_largest_of_taps, kind))
    padded = span.padded(x, lowest)
    index = jnp.asarray(span.first(x.ndim).astype(kind))
    starts = np.arange(span.count) * span.stride

    def later(number, best):
        largest, index = best
        tap = jnp.take(padded, starts + number * span.dilation, span.axis)
        wins = (tap > largest) | (tap != tap)
        return jnp.where(wins, tap, largest), jnp.where(wins, jnp.asarray(number, kind), index)

    largest = jnp.take(padded, starts, span.axis)
    return lax.fori_loop(1, span.kernel, later, (largest, jnp.broadcast_to(index, largest.shape)))


@compiled_once("span")
def _index_of_largest(x: jax.Array, span: Span) -> jax.Array:
    """For a gradient: in memory, or else where windows overlap each use of it would take all comparisons again."""
    if span.dilation * (span.kernel - 1) < span.stride:
        return lax.optimization_barrier(largest_along(x, span)[1])
    return lax.optimization_barrier(apart(lambda x: largest_along(x, span)[1])(x))


@largest_along.defjvp
def _largest_along_jvp(span: Span, primals: Any, tangents: Any) -> Any:
    (x,), (tangent,) = primals, tangents
    (largest, _), index = largest_along(x, span), _index_of_largest(x, span)
    overlaps = span.dilation * (span.kernel - 1) >= span.stride  # where none do, the derived transpose is faster
    cover = _cover(span.axis, span.size, _met(span)) if overlaps and span.axis < x.ndim - 1 else None
    if cover is None:
        moved = chosen_along(tangent, span, index)
    else:
        moved = apply_linear(_chosen, _returned, tangent, index, span=span, cover=cover)
    return (largest, index), (moved, np.zeros(index.shape, jax.dtypes.float0))


# No gather and no scatter: of 8x56x56x64 to 5x5 XLA's CPU backend takes a fifth of the time, with the gradient.
@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _largest_of_few(x: jax.Array, axis: int, windows: tuple[tuple[int, int], ...]) -> tuple[jax.Array, jax.Array]:
    """`largest_along` of windows of any length, one after the other."""
    found = [
        largest_along(
            lax.slice_in_dim(x, start, start + length, axis=axis), Span(axis, length, length, length, 1, 0, 1)
        )
        for start, length in windows
    ]
    kind = jnp.result_type(*(tap for _, tap in found))
    values, taps = [value for value, _ in found], [tap.astype(kind) for _, tap in found]
    return lax.concatenate(values, axis), lax.concatenate(taps, axis)


@compiled_once("axis", "windows")
def _index_of_few(x: jax.Array, axis: int, windows: tuple[tuple[int, int], ...]) -> jax.Array:
    return lax.optimization_barrier(apart(lambda x: _largest_of_few(x, axis, windows)[1])(x))


@_largest_of_few.defjvp
def _largest_of_few_jvp(axis: int, windows: tuple[tuple[int, int], ...], primals: Any, tangents: Any) -> Any:
    (x,), (tangent,) = primals, tangents
    (largest, _), index = _largest_of_few(x, axis, windows), _index_of_few(x, axis, windows)
    met = ((range(length), range(start, start + length)) for start, length in windows)
    cover = _cover(axis, x.shape[axis], met) if axis < x.ndim - 1 else None
    if cover is None:
        moved = _chosen_of_few(tangent, index, axis, windows)
    else:
        moved = apply_linear(_chosen_of_few, _returned_of_few, tangent, index, axis=axis, windows=windows, cover=cover)
    return (largest, index), (moved, np.zeros(index.shape, jax.dtypes.float0))


@compiled_once("axis", "windows", "cover")
def _chosen_of_few(
    x: jax.Array, index: jax.Array, axis: int, windows: tuple[tuple[int, int], ...], cover: Cover | None = None
) -> jax.Array:
    """By the pieces between the ends of windows, each of which belongs to one window or two as a whole."""
    edges = {0, x.shape[axis]}
    if axis < x.ndim - 1:  # along the last axis one loop over all is faster
        edges.update(edge for start, length in windows for edge in (start, start + length))
    bounds = list(itertools.pairwise(sorted(edges)))
    pieces = lax.split(x, [end - start for start, end in bounds], axis)
    chosen = []
    for number, (first, length) in enumerate(windows):
        place = lax.slice_in_dim(index, number, number + 1, axis=axis).astype(np.int32) + first
        sums = []
        for (start, end), piece in zip(bounds, pieces, strict=True):
            if start < first + length and first < end:
                hit = lax.broadcasted_iota(np.int32, piece.shape, axis) + start == place
                sums.append(jnp.where(hit, piece, 0).sum(axis, keepdims=True))
        chosen.append(reduce(lax.add, sums))
    return lax.concatenate(chosen, axis)


@dataclass(frozen=True)
class Cover:
    """Which windows each position of an axis belongs to.

    Attributes:
      axis: of the array.
      windows: of every position, by number; one tuple for the first window of all, one for the second and so on.
      taps: which element of that window the position is; `NONE` where it belongs to fewer windows.
    """

    axis: int
    windows: tuple[tuple[int, ...], ...]
    taps: tuple[tuple[int, ...], ...]


def _met(span: Span) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Of each window the elements that are no padding, and where they stand."""
    taps = np.arange(span.kernel)
    for start in span.starts:
        places = start + taps * span.dilation
        inside = (places >= 0) & (places < span.size)
        yield taps[inside].tolist(), places[inside].tolist()


def _cover(axis: int, size: int, met: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Cover | None:
    """None where a position belongs to more than `MOST_WINDOWS`, or a window is too long for a byte."""
    of_places: list[list[tuple[int, int]]] = [[] for _ in range(size)]
    for window, (taps, places) in enumerate(met):
        for tap, place in zip(taps, places, strict=True):
            of_places[place].append((window, tap))
    most = max(map(len, of_places), default=0)
    if not 0 < most <= MOST_WINDOWS or any(tap >= NONE for found in of_places for _, tap in found):
        return None
    filled = [[*found, *[(0, NONE)] * (most - len(found))] for found in of_places]
    layers = list(zip(*filled, strict=True))
    windows_of, taps_of = (tuple(tuple(pair[k] for pair in layer) for layer in layers) for k in (0, 1))
    return Cover(axis, windows_of, taps_of)


# Gathers by constant indices, which on every axis but the last are a part of the loop. The derived transpose pads, and
# decides at every element whether it is in the padding: 8x56x28x64, kernel 3 and stride 2, takes it 8 ms, this 0.2.
def _spread(y: jax.Array, index: jax.Array, cover: Cover) -> jax.Array:
    """At each position what its windows hold, of those whose largest element it is."""
    terms = []
    for windows, taps in zip(cover.windows, cover.taps, strict=True):
        where = (*(slice(None),) * cover.axis, np.asarray(windows))
        taken, place = (array.at[where].get(mode="promise_in_bounds") for array in (y, index))
        along = np.asarray(taps, index.dtype).reshape([-1 if i == cover.axis else 1 for i in range(y.ndim)])
        terms.append(jnp.where(place == along, taken, 0))
    return sum(terms[1:], terms[0])


def _returned(y: jax.Array, index: jax.Array, span: Span, cover: Cover) -> jax.Array:
    return apart(_spread)(y, index, cover=cover)


def _returned_of_few(
    y: jax.Array, index: jax.Array, axis: int, windows: tuple[tuple[int, int], ...], cover: Cover
) -> jax.Array:
    return apart(_spread)(y, index, cover=cover)


def _chosen(x: jax.Array, index: jax.Array, span: Span, cover: Cover) -> jax.Array:
    return chosen_along(x, span, index)


@compiled_once("span")
def chosen_along(x: jax.Array, span: Span, index: jax.Array) -> jax.Array:
    """That element of each window along one axis; 0 in the padding."""
    padded = span.padded(x, 0)
    if span.kernel > SELECTED:
        starts = span.along(np.arange(span.count) * span.stride, x.ndim)
        return jnp.take_along_axis(padded, starts + index.astype(np.int32) * span.dilation, span.axis)
    taps = span.taps(padded)
    zero = lax.full_like(taps[0], 0)
    shape = np.broadcast_shapes(index.shape, zero.shape)
    index = jnp.broadcast_to(index, shape)
    hits = [lax.select(lax.eq(index, lax.full_like(index, i)), tap, zero) for i, tap in enumerate(taps)]
    return sum(hits[1:], hits[0])
