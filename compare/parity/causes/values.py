"""Values of one side, among which a value of the other is looked for, however it lies."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ALIKE = 1e-9  # of itself, in which an element is one and the same
ROUNDING = 1e-12  # of the largest element, to which another is rounded
INFINITE = 1e6  # times what most elements are
CANCELLED = 1e-6  # of what is summed: what is left has too few digits to be found
MOST_AXES = 5  # whose orders are tried
MOST_PARTS = 256  # of a value, such as the steps of a sequence
MOST_OF_ALL = 50_000  # parts of all values, of one size
LARGEST = 4_000_000  # elements of a value that is looked at
LARGEST_ELEMENTS = 10_000  # of a value whose elements are looked through one by one
NUMBERS = "fiubc"  # kinds of dtypes


def as_array(value: Any) -> np.ndarray:
    """A value as numpy has it; of a random key, which has no numbers, nothing."""
    if hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return np.empty(0)
    return np.asarray(value)


class Values:
    """Values, among which another is found: itself in any order of its axes, its parts, or it as a part of one.

    Args:
      values: numpy's, JAX's or any that `np.asarray` takes; those of other kinds than numbers are left out.
    """

    def __init__(self, values: Iterable[Any]):
        by_size: dict[int, list[np.ndarray]] = {}
        for value in values:
            array = as_array(value)
            if array.size <= LARGEST and array.dtype.kind in NUMBERS:
                array = _real(array)
                by_size.setdefault(array.size, []).append(array)
        self._whole = {size: _OfOneSize(arrays) for size, arrays in by_size.items()}
        self._parts: dict[int, _OfOneSize] = {}
        self._found: dict[int, tuple[Any, bool]] = {}  # by identity; the value is kept, or another could take its own

    def have(self, value: Any) -> bool:
        """Whether it is one of them; what has no number, or is one and the same throughout, always is."""
        if id(value) not in self._found:
            self._found[id(value)] = value, self._have(as_array(value))
        return self._found[id(value)][1]

    def have_whole(self, value: Any) -> bool:
        """Whether one of them is this value, in any order of its axes; not of a number, nor where all are the same."""
        array = as_array(value)
        if array.dtype.kind not in "fc" or not 1 < array.size <= LARGEST:
            return False
        array = _real(array)
        return not (array == array.flat[0]).all() and self._has(array)

    def _have(self, array: np.ndarray) -> bool:
        if array.dtype.kind not in NUMBERS or not 0 < array.size <= LARGEST:
            return True
        inverses, array = _inverses(array), _real(array)
        if array.size > 1 and (array == array.flat[0]).all():
            return True
        if self._has(array):
            return True
        if any(all(map(self._has, parts)) for _, parts in _cuts(array)):
            return True
        if any(map(self._has, _without_filling(array))) or any(map(self._has, inverses)):
            return True
        return array.size > 1 and self._parts_of(array.size).have(array)

    def have_element(self, value: Any) -> bool:
        """Whether a number that is no count is an element of one of them."""
        array = as_array(value)
        if array.size != 1 or array.dtype.kind != "f" or array.flat[0] == np.round(array.flat[0]):
            return False
        number = float(array.flat[0])
        first, last = np.searchsorted(self._elements, sorted((number * (1 - ALIKE), number * (1 + ALIKE))))
        return bool(first < last)

    @functools.cached_property
    def _elements(self) -> np.ndarray:
        """In order, of what is not too large to be looked through."""
        arrays = [each.array for known in self._whole.values() for each in known.values]
        return np.sort(np.concatenate([x.ravel() for x in arrays if x.size <= LARGEST_ELEMENTS] or [np.empty(0)]))

    def lacking(self, value: Any) -> Lacking | None:
        """The parts of a value that are none of them, where some are and others are not; None otherwise."""
        array = as_array(value)
        if array.dtype.kind not in NUMBERS or not 1 < array.size <= LARGEST:
            return None
        for axes, parts in _cuts(_real(array), some=True) if array.dtype.kind != "c" else ():
            several = sum(array.shape[axis] > 1 for axis in axes)
            lack = np.array([not self._has_part(part, several) for part in parts])
            if not lack.all():
                return Lacking(axes, lack) if lack.any() else None
        return None

    def _has(self, array: np.ndarray) -> bool:
        return array.size in self._whole and self._whole[array.size].have(array)

    def _has_part(self, part: np.ndarray, axes: int) -> bool:
        """Whether a part of what is cut along that many axes of several elements is one of them, or a part of one."""
        if self._has(part):
            return True
        if part.size > 1:
            return self._parts_of(part.size).have(part)
        if axes > 1:  # where some number may be like one by chance
            return False
        return self.have_element(part) or bool((part == np.round(part)).all())  # what the program has may be Python's

    def _parts_of(self, size: int) -> _OfOneSize:
        if size not in self._parts:
            self._parts[size] = _OfOneSize(itertools.islice(self._cut(size), MOST_OF_ALL))
        return self._parts[size]

    def _cut(self, size: int) -> Iterator[np.ndarray]:
        for whole, known in self._whole.items():
            count, rest = divmod(whole, size)
            if rest or not 1 < count <= MOST_PARTS:
                continue
            for each in known.values:
                for axis, length in enumerate(each.array.shape):
                    if length % count == 0:
                        yield from np.split(each.array, count, axis)


def _inverses(array: np.ndarray) -> Iterator[np.ndarray]:
    """Of orders along an axis their inverses: the rank of each in place of the one of each rank."""
    if array.dtype.kind not in "iu" or array.size > LARGEST_ELEMENTS:
        return
    for axis, length in enumerate(array.shape):
        places = np.expand_dims(np.arange(length), tuple(range(1, array.ndim - axis)))
        if length > 1 and (np.sort(array, axis) == places).all():
            yield _real(np.argsort(array, axis))


Laid = Callable[[np.ndarray], np.ndarray]  # of what lies as a value of the other side does, as this one's does


def cancel(summed: Iterable[Any], results: Iterable[Any]) -> bool:
    """Whether next to nothing is left of a sum, as of one less what is one but for rounding."""

    def largest(values: Iterable[Any]) -> float:
        arrays = [array for array in map(as_array, values) if array.dtype.kind == "f"]
        return max((float(np.abs(array).max(initial=0.0)) for array in arrays), default=0.0)

    return largest(results) <= CANCELLED * largest(summed)


def has_rows(value: Any, part: Any) -> bool:
    """Whether each part of `part` along its first axis is one of a value along all axes before those of that part."""
    whole, rows = as_array(value), as_array(part)
    if "f" not in whole.dtype.kind + rows.dtype.kind or rows.ndim < 2 or whole.shape[1 - rows.ndim :] != rows.shape[1:]:
        return False
    length = math.prod(rows.shape[1:])
    if length < 2 or not len(rows) or whole.size * len(rows) > LARGEST:
        return False
    whole, rows = _real(whole).reshape(-1, length), _real(rows).reshape(-1, length)
    return all(bool(np.isclose(whole, row, rtol=ALIKE, atol=0).all(axis=1).any()) for row in rows)


class Pairs:
    """Floating values of one side, among which those are found that are one of the other's, with how they lie in it.

    Args:
      values: arrays.
    """

    def __init__(self, values: Sequence[np.ndarray]):
        arrays = [_real(np.asarray(value)) for value in values]
        self._places = {id(array): i for i, array in enumerate(arrays)}
        by_size: dict[int, list[np.ndarray]] = {}
        for array in arrays:
            by_size.setdefault(array.size, []).append(array)
        self._whole = {size: _OfOneSize(those) for size, those in by_size.items()}

    def of(self, value: np.ndarray) -> list[tuple[int, Laid]]:
        """The places, in order, of those that are this value, in any order of their axes; none where it has one number
        throughout, or is one that others are by chance."""
        array = _real(value)
        is_one_number = bool(array.size) and bool((array == array.flat[0]).all())
        if not array.size or (is_one_number and (array.size > 1 or array.flat[0] == round(float(array.flat[0])))):
            return []
        found = self._whole[array.size].alike(array) if array.size in self._whole else ()
        return sorted(((self._places[id(x)], _laid(order, value.shape)) for x, order in found), key=lambda one: one[0])


def _laid(order: tuple[int, ...], shape: tuple[int, ...]) -> Laid:
    return lambda array: array.squeeze().transpose(order).reshape(shape)


class Lacking(NamedTuple):
    """Parts of an array: the axes along which it is cut, and which of the parts are meant, bool `[parts]`; all of it
    where it is cut along none."""

    axes: tuple[int, ...]
    which: np.ndarray

    def replaced(self, array: np.ndarray) -> np.ndarray:
        """The array with others of its parts in their place; of all of it, each element with the next, and the least
        and the largest with another, by which sums and limits are others, too; one more where it has but one."""
        if not self.axes:
            return _with_others(array)
        front = tuple(range(len(self.axes)))
        moved = np.moveaxis(array, self.axes, front).copy()
        parts = moved.reshape(len(self.which), -1)
        lack, others = np.flatnonzero(self.which), np.flatnonzero(~self.which)
        parts[lack] = parts[np.resize(others, len(lack))]
        return np.moveaxis(parts.reshape(moved.shape), front, self.axes)


def _with_others(array: np.ndarray) -> np.ndarray:
    if array.size == 1:
        return array + 1
    moved, known = np.roll(array, 1), np.unique(array)
    if len(known) > 1 and array.dtype.kind in "iuf":
        moved[(moved == known[0]) | (moved == known[-1])] = known[-2]
    return moved


def _cuts(array: np.ndarray, *, some: bool = False) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """An array cut along each axis, along the first two, and into its elements where none of those, or not all of
    them, is a count, which is like others by chance: the axes, and the parts one after the other."""
    cuts: list[tuple[int, ...]] = [(axis,) for axis in range(array.ndim) if 1 < array.shape[axis] < array.size]
    cuts += [(0, 1)] if array.ndim > 2 else []
    elements = array != np.round(array)
    cuts += [tuple(range(array.ndim))] if (elements.any() if some else elements.all()) else []
    for axes in cuts:
        moved = np.moveaxis(array, axes, range(len(axes)))
        if 1 < (count := math.prod(moved.shape[: len(axes)])) < MOST_PARTS:
            yield axes, moved.reshape(count, *moved.shape[len(axes) :])


def _without_filling(array: np.ndarray) -> Iterator[np.ndarray]:
    """What is left of it along each axis without the parts that are one number throughout, as what there is no value
    for in a buffer of a fixed size, or under a mask."""
    for axis in range(array.ndim):
        if 1 < array.shape[axis] < array.size:
            rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
            filled = (rows == rows[:, :1]).all(axis=1)
            if filled.any() and not filled.all():
                yield np.compress(~filled, array, axis)


WHOLE = Lacking((), np.ones(1, bool))


class _Value(NamedTuple):
    """An array, the sum of its elements, and how far from them another's may be."""

    array: np.ndarray
    total: float
    within: float


class _OfOneSize:
    """Arrays of equally many elements, in the order of their sums, which no order of axes changes."""

    def __init__(self, arrays: Iterable[np.ndarray]):
        values = [_Value(array, _total(array), ROUNDING * _size(array)) for array in arrays]
        self.values = sorted(values, key=lambda value: value.total)
        self._totals = np.array([value.total for value in self.values])

    def have(self, array: np.ndarray) -> bool:
        return any(True for _ in self.alike(array))

    def alike(self, array: np.ndarray) -> Iterator[tuple[np.ndarray, tuple[int, ...]]]:
        """Those that are this one, and the order of their axes longer than 1 in which they are it."""
        total, within = _total(array), ALIKE * _total(np.abs(array))
        first, last = np.searchsorted(self._totals, [total - within, total + within], side="left")
        flat, rounding = array.ravel(), ROUNDING * _size(array)
        for value in self.values[first : last + 1]:
            order = _order(flat, rounding, value)
            if order is not None:
                yield value.array, order


def _real(array: np.ndarray) -> np.ndarray:
    """In float64; what is complex with an axis more, of its two parts."""
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], -1).astype(np.float64)
    return array.astype(np.float64)


def _order(flat: np.ndarray, rounding: float, value: _Value) -> tuple[int, ...] | None:
    """The order of a value's axes longer than 1 in which its elements are these; None where there is none."""
    within = min(rounding, value.within)  # a mask of zeros and what stands for infinity is like no scores under it

    def close(a: np.ndarray, b: np.ndarray) -> bool:
        with np.errstate(invalid="ignore"):
            far = ~((np.abs(a - b) <= within + ALIKE * np.abs(b)) & np.isfinite(b))
        if not far.any():
            return True
        a, b = a[far], b[far]
        return bool(((a == b) | (np.isnan(a) & np.isnan(b))).all())

    slim = value.array.squeeze()
    if close(flat, value.array.ravel()):
        return tuple(range(slim.ndim))
    if not 2 <= slim.ndim <= MOST_AXES or not close(np.sort(flat), np.sort(slim.ravel())):
        return None
    orders = itertools.permutations(range(slim.ndim))
    return next((axes for axes in orders if close(flat, slim.transpose(axes).ravel())), None)


def _total(array: np.ndarray) -> float:
    with np.errstate(over="ignore"):  # of a mask of the least finite numbers
        return float(array[np.isfinite(array)].sum())


def _size(array: np.ndarray) -> float:
    """The largest magnitude, but for what stands in for infinity, as where scores are masked."""
    sizes = np.abs(array[np.isfinite(array) & (array != 0)])
    if not sizes.size:
        return 0.0
    largest = float(sizes.max())
    if largest / INFINITE <= sizes.min():
        return largest
    return float(sizes[sizes / INFINITE <= np.quantile(sizes, 0.1)].max(initial=0.0))
