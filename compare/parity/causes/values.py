"""Values of one side, among which a value of the other is looked for, however it lies."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

ALIKE = 1e-9  # of itself, in which an element is one and the same
ROUNDING = 1e-12  # of the largest element, to which another is rounded
INFINITE = 1e6  # times what most elements are
MOST_AXES = 5  # whose orders are tried
MOST_PARTS = 256  # of a value, such as the steps of a sequence
MOST_OF_ALL = 50_000  # parts of all values, of one size
LARGEST = 4_000_000  # elements of a value that is looked at
NUMBERS = "fiubc"  # kinds of dtypes


class Values:
    """Values, among which another is found: itself in any order of its axes, its parts, or it as a part of one.

    Args:
      values: numpy's, JAX's or any that `np.asarray` takes; those of other kinds than numbers are left out.
    """

    def __init__(self, values: Iterable[Any]):
        by_size: dict[int, list[np.ndarray]] = {}
        for value in values:
            array = np.asarray(value)
            if array.size <= LARGEST and array.dtype.kind in NUMBERS:
                array = _real(array)
                by_size.setdefault(array.size, []).append(array)
        self._whole = {size: _OfOneSize(arrays) for size, arrays in by_size.items()}
        self._parts: dict[int, _OfOneSize] = {}
        self._found: dict[int, tuple[Any, bool]] = {}  # by identity; the value is kept, or another could take its own

    def have(self, value: Any) -> bool:
        """Whether it is one of them; what has no number, or is one and the same throughout, always is."""
        if id(value) not in self._found:
            self._found[id(value)] = value, self._have(np.asarray(value))
        return self._found[id(value)][1]

    def _have(self, array: np.ndarray) -> bool:
        if array.dtype.kind not in NUMBERS or not 0 < array.size <= LARGEST:
            return True
        array = _real(array)
        if array.size > 1 and (array == array.flat[0]).all():
            return True
        if self._has(array):
            return True
        cuts = [axis for axis, length in enumerate(array.shape) if 1 < length < min(array.size, MOST_PARTS)]
        if any(all(map(self._has, np.moveaxis(array, axis, 0))) for axis in cuts):
            return True
        return array.size > 1 and self._parts_of(array.size).have(array)

    def _has(self, array: np.ndarray) -> bool:
        return array.size in self._whole and self._whole[array.size].have(array)

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
        total, within = _total(array), ALIKE * _total(np.abs(array))
        first, last = np.searchsorted(self._totals, [total - within, total + within], side="left")
        flat, rounding = array.ravel(), ROUNDING * _size(array)
        return any(_are_alike(flat, rounding, value) for value in self.values[first : last + 1])


def _real(array: np.ndarray) -> np.ndarray:
    """In float64; what is complex with an axis more, of its two parts."""
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], -1).astype(np.float64)
    return array.astype(np.float64)


def _are_alike(flat: np.ndarray, rounding: float, value: _Value) -> bool:
    within = min(rounding, value.within)  # a mask of zeros and what stands for infinity is like no scores under it

    def close(a: np.ndarray, b: np.ndarray) -> bool:
        return bool(np.allclose(a, b, rtol=ALIKE, atol=within, equal_nan=True))

    if close(flat, value.array.ravel()):
        return True
    slim = value.array.squeeze()
    if not 2 <= slim.ndim <= MOST_AXES or not close(np.sort(flat), np.sort(slim.ravel())):
        return False
    return any(close(flat, slim.transpose(axes).ravel()) for axes in itertools.permutations(range(slim.ndim)))


def _total(array: np.ndarray) -> float:
    with np.errstate(over="ignore"):  # of a mask of the least finite numbers
        return float(array[np.isfinite(array)].sum())


def _size(array: np.ndarray) -> float:
    """The largest magnitude, but for what stands in for infinity, as where scores are masked."""
    sizes = np.abs(array[np.isfinite(array) & (array != 0)])
    usual = sizes[sizes / INFINITE <= np.quantile(sizes, 0.1)] if sizes.size else sizes
    return float(usual.max(initial=0.0))
