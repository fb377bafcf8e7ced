"""Tables that a port makes otherwise: what no input makes, such as anchors, positions, frequencies, windows, masks.

Such a table is held by the reference as a buffer or made by a line of its own, and is made anew in a port. Where the
port has nothing that is the reference's, what it has of that shape is laid in its place.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from graphmode.weights import as_numpy

from .ancestry import tensors_of
from .change import Change, Site
from .held import own_buffers
from .replay import Replay
from .sites import spelled
from .variants import Variant
from .ways import Ways
from .wiring import unused

MOST_TRIED = 24  # tables of the port, for all of the reference's
MOST_PLACES = 8  # along an axis, whose orders are tried
ROUNDED = 1e-6  # of the largest element: what float32 makes of a table is the same table
FIX = "make it as the reference does"
FIX_FLOAT32 = (
    "compute it where the port is called, or by numpy in float64, and cast it to the dtype of what it meets; in the "
    "dtype that people run it may be as precise as it is"
)

Make = Callable[[torch.Tensor], torch.Tensor]  # of the reference's


class _Table(NamedTuple):
    """Of the reference: what it is called, its values, and the change that lays another in its place."""

    name: str
    array: np.ndarray
    changed: Callable[[Make], Change]


def has_tables(replay: Replay) -> bool:
    """Whether the module has any."""
    return any(True for _ in _theirs(replay))


def tables(replay: Replay, both: Ways) -> Iterator[tuple[Variant, Change]]:
    """Each of the reference's that the port has not, made as the port makes one of its shape.

    Args:
      replay: of the reference's module.
      both: the ways of the port and of the reference through its call.
    """
    theirs = both.theirs()
    ours = [(line, np.asarray(value)) for line, value in both.fixed if not theirs.have(value)]
    lacking = [table for table in _theirs(replay) if not both.ours.have(table.array)]
    for table in lacking:
        for line, other in _in_float32(table.array, ours):
            where = f" (the port's line is {line})" if line else ""
            says = f"has {table.name} with the digits of float32 alone, computed where nothing is float64{where}"
            yield Variant("table-float32", says, FIX_FLOAT32, unused), table.changed(_constantly(other))
    pairs = ((table, line, other) for table in lacking for line, other in _nearest(table.array, ours))
    for table, line, other in itertools.islice(pairs, MOST_TRIED):
        words, make = _otherwise(table.array, other)
        where = f" (the port's line is {line})" if line else ""
        says = f"makes {table.name} otherwise: {words}{where}"
        yield Variant("table", says, FIX, unused), table.changed(make)


def _theirs(replay: Replay) -> Iterator[_Table]:
    """The module's buffers and other fixed tensors, and what its calls make of such and of numbers alone."""
    held = own_buffers(replay)
    for name, x in held.items():
        if _is_table(x):
            yield _Table(name, as_numpy(x.detach()), functools.partial(_of_held, name))
    free = {id(x): x for x in held.values()}
    made: list[_Table] = []

    def note(site: Site) -> None:
        given, results = tensors_of((site.args, site.kwargs)), tensors_of(site.result)
        if any(id(x) not in free for x in given):
            for x in (*results, *given[:1] * site.name.startswith("__setitem__")):
                free.pop(id(x), None)  # what was written into it is not fixed
            return
        free.update((id(x), x) for x in results)
        if isinstance(site.result, torch.Tensor) and _is_table(site.result):
            at = frozenset([site.number])
            array = as_numpy(site.result.detach().to_dense().clone())
            made.append(_Table(f"what {spelled(site.name)} gives", array, functools.partial(_of_call, at)))

    replay.run(Change(), note=note, forward_only=True)
    yield from made


def _of_held(name: str, make: Make) -> Change:
    return Change(parameters={name: make})


def _of_call(at: frozenset[int], make: Make) -> Change:
    return Change(apply=_instead(make), sites=at)


def _is_table(x: torch.Tensor) -> bool:
    return x.numel() > 1 and not x.is_complex() and bool((x != x.flatten()[0]).any())


def _instead(make: Make) -> Callable[[Any, Any, Any], Any]:
    return lambda func, args, kwargs: make(func(*args, **kwargs))


def _nearest(table: np.ndarray, ours: list[tuple[str, np.ndarray]]) -> list[tuple[str, np.ndarray]]:
    """Those of the port's that have its elements, axes in any order, as it lies; first what has most of its values."""
    laid = [(line, each, _same(each, table)) for line, value in ours for each in _laid(value, table)]
    found = [(int(same.sum()), line, each) for line, each, same in laid if not same.all()]
    return [(line, each) for _, line, each in sorted(found, key=lambda each: -each[0])]


def _in_float32(table: np.ndarray, ours: list[tuple[str, np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    """Those of the port's that are what float32 makes of it."""
    for line, value in ours if table.dtype == np.float64 else ():
        for each in _laid(value, table):
            if np.array_equal(each, each.astype(np.float32), equal_nan=True) and _same(each, table).all():
                yield line, each


def _constantly(array: np.ndarray) -> Make:
    return lambda x: torch.tensor(array).to(x)


def _laid(value: np.ndarray, table: np.ndarray) -> Iterator[np.ndarray]:
    kinds = ["f" if x.dtype.kind == "f" else "b" if x.dtype.kind == "b" else "i" for x in (value, table)]
    if value.size != table.size or kinds[0] != kinds[1]:
        return
    if value.shape == table.shape:
        yield value
        return
    slim, wanted = value.squeeze(), [length for length in table.shape if length > 1]
    for axes in itertools.permutations(range(slim.ndim)) if slim.ndim == len(wanted) else ():
        if [slim.shape[axis] for axis in axes] == wanted:
            yield slim.transpose(axes).reshape(table.shape)


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":
        return np.asarray(a == b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= ROUNDED * np.abs(b[np.isfinite(b)]).max(initial=0.0)
    return near | (a == b) | (np.isnan(a) & np.isnan(b))


def _otherwise(theirs: np.ndarray, ours: np.ndarray) -> tuple[str, Make]:
    """In words how the port's differs from the reference's, and what makes the one of the other."""
    laid = torch.tensor(ours)

    def make(x: torch.Tensor, related: Make | None = None) -> torch.Tensor:
        if x.shape == laid.shape or related is None:  # to the last digit
            return laid.to(x.dtype).reshape(x.shape)
        return related(x)

    for words, related in _relations(theirs, ours):
        if _same(ours, as_numpy(related(torch.tensor(theirs)))).all():
            return words, functools.partial(make, related=related)
    off = ~_same(ours, theirs)
    at = tuple(map(int, np.argwhere(off)[0]))
    place = ", ".join(map(str, at))
    words = f"[{place}] is {ours[at].item():.6g} for {theirs[at].item():.6g}; {off.sum()} of {off.size} differ"
    return words, make


def _relations(theirs: np.ndarray, ours: np.ndarray) -> Iterator[tuple[str, Make]]:
    """What the one may be of the other, whatever its size."""
    for a, b in itertools.combinations(range(theirs.ndim), 2):
        if theirs.shape[a] == theirs.shape[b]:
            yield f"with axes {a} and {b} exchanged", functools.partial(torch.transpose, dim0=a, dim1=b)
    for axis, length in enumerate(theirs.shape):
        if length > 1:
            yield f"reversed along axis {axis}", functools.partial(torch.flip, dims=(axis,))
            for by in (1, -1):
                yield f"rolled by {by} along axis {axis}", functools.partial(torch.roll, shifts=by, dims=axis)
        if 1 < length <= MOST_PLACES and (order := _order(theirs, ours, axis)) is not None:
            words = f"with its places along axis {axis} in the order {tuple(order)}"
            yield words, functools.partial(torch.index_select, dim=axis, index=torch.tensor(order))
    if theirs.dtype.kind == "b":
        yield "the other way round", torch.logical_not
    if theirs.dtype.kind != "f":
        return
    yield "with the sign turned", torch.neg
    finite = np.isfinite(theirs) & np.isfinite(ours) & (theirs != 0)
    if not finite.any():
        return
    apart, times = (ours - theirs)[finite], ours[finite] / theirs[finite]
    added, factor = float(np.median(apart)), float(np.median(times))
    yield f"{factor:.6g} times", functools.partial(torch.mul, other=factor)
    yield f"with {added:.6g} added", functools.partial(torch.add, other=added)


def _order(theirs: np.ndarray, ours: np.ndarray, axis: int) -> list[int] | None:
    """Which of the reference's places along an axis each of the port's is; None where one is none of them, or all
    stand where they stood."""
    wanted, found = np.moveaxis(theirs, axis, 0), np.moveaxis(ours, axis, 0)
    order = [next((i for i, x in enumerate(wanted) if _same(y, x).all()), -1) for y in found]
    return None if -1 in order or order == sorted(order) else order
