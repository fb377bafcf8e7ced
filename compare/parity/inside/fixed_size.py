"""A tensor as long as its values say, and the one of a fixed size that a graph has instead.

Eager code takes the rows of a mask, or the tokens so far; a graph keeps all that there is room for, and the rows that
count are the first of them, or stay where they were. Of lines of many lengths it has a batch as wide as the longest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from ..yardstick import difference, largest


class Form(Protocol):
    """How the port lays out the part that counts, as `Layout` does."""

    def to_port(self, array: np.ndarray) -> np.ndarray: ...
    def to_reference(self, array: np.ndarray) -> np.ndarray: ...


Fit = Callable[[np.ndarray, np.ndarray], Form | None]


@dataclass(frozen=True, eq=False)
class FixedSizeLayout:
    """The reference's tensor as places along one axis of a longer one, or along two that count as one.

    Attributes:
      form: of those places alone.
      axes: of the port's tensor, the outer one first: rows, or lines and the steps of each.
      places: `[n]`, ascending, where it has what the reference has.
      whole: the port's tensor as it was found; what stands elsewhere in it stays there.
    """

    form: Form
    axes: tuple[int, ...]
    places: np.ndarray
    whole: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the port's tensor."""
        return self.whole.shape

    @property
    def length(self) -> int:
        """How many places there are."""
        return prod(self.shape[axis] for axis in self.axes)

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        return self.form.to_reference(_part(_rows(np.asarray(array), self.axes)[self.places], self.axes))

    def to_port(self, array: np.ndarray) -> np.ndarray:
        return self._put(array, self.whole.astype(array.dtype))

    def gradient_to_port(self, gradient: np.ndarray) -> np.ndarray:
        """With nothing at all elsewhere: what does not count has no influence."""
        return self._put(gradient, np.zeros(self.shape, gradient.dtype))

    def beyond(self, array: np.ndarray) -> np.ndarray:
        """What stands elsewhere."""
        return np.delete(_rows(array, self.axes), self.places, 0)

    def _put(self, array: np.ndarray, whole: np.ndarray) -> np.ndarray:
        rows = _rows(whole, self.axes)
        rows[self.places] = np.moveaxis(self.form.to_port(array), _place_of(self.axes), 0)
        apart = rows.reshape(tuple(self.shape[axis] for axis in self.axes) + rows.shape[1:])
        return np.moveaxis(apart, range(len(self.axes)), self.axes)


def _rows(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """These axes as one, the first."""
    first = np.moveaxis(array, axes, range(len(axes)))
    return first.reshape(-1, *first.shape[len(axes) :])


def _part(rows: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Some of the rows, with their axis where it was; that of two in front."""
    return np.moveaxis(rows, 0, _place_of(axes))


def _place_of(axes: tuple[int, ...]) -> int:
    return axes[0] if len(axes) == 1 else 0


def fixed_size_layout(
    port: np.ndarray,
    reference: np.ndarray,
    fit: Fit,
    known: Sequence[object],
    tolerance: float,
    *,
    given: bool,
) -> FixedSizeLayout | None:
    """The layout of a longer tensor that holds the reference's values; None where none does.

    Args:
      port, reference: the two tensors.
      fit: the layout of a part of the port's tensor, of as many elements as the reference's.
      known: layouts of other tensors: those that a call received, of what it gives; of what it receives, those that the
        call around it did. Where values agree nowhere, the places are those of one that is as long for as much.
      tolerance: up to which error, of the largest element, values agree.
      given: whether the call gives it. Then one that is known must be as long for as much: a module that makes what it
        gives longer by itself is not to be excused.
    """
    if not 0 < reference.size < port.size:
        return None
    others = [each for each in known if isinstance(each, FixedSizeLayout)]
    for axes in _ways(port.ndim, reference.ndim):
        rows = _rows(port, axes)
        count, remainder = divmod(reference.size, rows.size // len(rows))
        if remainder or not 0 < count < len(rows):
            continue
        alike = (one for one in others if (len(one.axes), len(one.places), one.length) == (len(axes), count, len(rows)))
        usual = next((one.places for one in alike), None)
        if given and usual is None:
            continue
        for form in _forms(rows[:count], reference, axes, fit):
            wanted = np.moveaxis(form.to_port(reference), _place_of(axes), 0)
            places = _places(rows, wanted, usual, tolerance)
            if places is not None:
                return FixedSizeLayout(form, axes, places, port.copy())
    return None


def _forms(rows: np.ndarray, reference: np.ndarray, axes: tuple[int, ...], fit: Fit) -> Iterator[Form]:
    """The layouts of as many rows as the reference has."""
    if len(axes) == 1:
        form = fit(_part(rows, axes), reference)
        yield from [] if form is None else [form]
        return
    for axis in (axis for axis, length in enumerate(reference.shape) if length == len(rows)):
        form = fit(_steps_first(rows, 0), _steps_first(reference, axis))
        if form is not None:
            yield _StepsFirst(form, axis, reference.shape, rows.shape)


@dataclass(frozen=True)
class EndToEnd:
    """How lines are laid end to end: along which axis, and how long each is."""

    axis: int
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class _StepsFirst:
    """A form of what has its steps first, and no axis of one element besides."""

    form: Form
    axis: int
    reference: tuple[int, ...]
    port: tuple[int, ...]

    def to_port(self, array: np.ndarray) -> np.ndarray:
        return self.form.to_port(_steps_first(array, self.axis)).reshape(self.port)

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        steps = self.form.to_reference(_steps_first(array, 0))
        length = self.reference[self.axis]
        rest = (*self.reference[: self.axis], *self.reference[self.axis + 1 :])
        return np.moveaxis(steps.reshape(length, *rest), 0, self.axis)


def _steps_first(array: np.ndarray, axis: int) -> np.ndarray:
    first = np.moveaxis(array, axis, 0)
    return first.reshape(len(first), *(length for length in first.shape[1:] if length != 1))


def layout_of_lines(
    port: np.ndarray,
    reference: np.ndarray,
    lines: EndToEnd,
    fit: Fit,
) -> FixedSizeLayout | None:
    """The layout of lines of one size, each of which begins with what the reference's has, laid end to end there.

    Args:
      port, reference, fit: as `fixed_size_layout` takes them.
      lines: the reference's.
    """
    found = []
    for axes in itertools.permutations(range(port.ndim), 2):
        count, steps = (port.shape[axis] for axis in axes)
        rows = _rows(port, axes)
        if count != len(lines.lengths) or steps < max(lines.lengths):
            continue
        places = np.concatenate([line * steps + np.arange(length) for line, length in enumerate(lines.lengths)])
        if rows[places].size != reference.size:
            continue
        form = fit(_steps_first(rows[places], 0), _steps_first(reference, lines.axis))
        if form is not None:
            whole = _StepsFirst(form, lines.axis, reference.shape, rows[places].shape)
            found.append(FixedSizeLayout(whole, axes, places, port.copy()))
    return min(found, key=lambda one: difference(one.to_reference(port), reference).error, default=None)


def _ways(port: int, reference: int) -> Iterator[tuple[int, ...]]:
    """Which axes hold the places, of tensors of these ranks: one, or lines and their steps."""
    if port == reference:
        yield from itertools.combinations(range(port), 1)
    yield from itertools.permutations(range(port), 2)


def _places(port: np.ndarray, wanted: np.ndarray, usual: np.ndarray | None, tolerance: float) -> np.ndarray | None:
    """Where the rows stand that are wanted: the usual places, the first ones, or some in their order; where others are
    like those, and it cannot be told which are meant, the usual ones, if any."""
    limit = tolerance * float(largest(wanted))

    def same(a: np.ndarray, b: np.ndarray) -> bool:
        if a.dtype.kind in "biu":
            return bool((a == b).all())
        equal = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= limit)
        return bool(equal.all())

    def in_order(rows: np.ndarray, wanted: np.ndarray) -> list[int]:
        places: list[int] = []
        for place, row in enumerate(rows):
            if len(places) < len(wanted) and same(row, wanted[len(places)]):
                places.append(place)
        return places

    if usual is not None and same(port[usual], wanted):
        return usual
    if same(port[: len(wanted)], wanted):
        return np.arange(len(wanted))
    first = in_order(port, wanted)
    last = [len(port) - 1 - place for place in in_order(port[::-1], wanted[::-1])][::-1]
    return np.asarray(first) if len(first) == len(wanted) and first == last else usual
