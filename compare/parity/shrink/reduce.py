"""Inputs made smaller and simpler as long as two modules still differ on them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from ...observation import Named
from ...trees import is_floating
from ..yardstick import Difference
from .find import Failure

Places = list[tuple[str, int]]  # axes of inputs that are cut together


class Reducer:
    """Cuts axes, then sets elements to zero, one or whole numbers.

    Args:
      failure: that must stay.
      budget_s: seconds after which no further attempt is made.

    Attributes:
      inputs: the smallest so far.
      off: how far the port is off on them.
      tries: how many were run.
    """

    def __init__(self, failure: Failure, *, budget_s: float):
        self.failure = failure
        self.inputs = failure.inputs
        self.tries = 0
        self._end = time.perf_counter() + budget_s
        self.off: Difference | None = failure.off(self.inputs)

    def run(self) -> None:
        """Until nothing more can be left out, or time is up."""
        if self.off is None:
            return
        while self._shapes() or self._values():
            pass

    @property
    def in_time(self) -> bool:
        return time.perf_counter() < self._end

    def _try(self, inputs: Named) -> bool:
        if not self.in_time:
            return False
        self.tries += 1
        off = self.failure.off(inputs)
        if off is None:
            return False
        self.inputs, self.off = inputs, off
        return True

    def _shapes(self) -> bool:
        """Each axis, with all others of its length, its place, or alone: to one element, to a half, by one."""
        changed = False
        more = True
        while more and self.in_time:
            more = False
            for places in list(self._axes()):
                more |= self._cut(places)
            changed |= more
        return changed

    def _axes(self) -> Iterator[Places]:
        places = [(name, axis) for name, array in self.inputs.items() for axis in range(array.ndim)]
        groups: list[Places] = [[place for place in places if place[1] == 0]]  # the batch comes first
        for length in sorted({self._length(place) for place in places}, reverse=True):
            same = [place for place in places if self._length(place) == length]
            groups.append(same)
            groups += [[place for place in same if place[1] == axis] for axis in {axis for _, axis in same}]
            groups += [[place] for place in same]
        known = []
        for group in groups:
            lengths = {self._length(place) for place in group}
            if group and len(lengths) == 1 and lengths != {1} and lengths != {0} and group not in known:
                known.append(group)
                yield group

    def _length(self, place: tuple[str, int]) -> int:
        return self.inputs[place[0]].shape[place[1]]

    def _cut(self, places: Places) -> bool:
        lengths = {self._length(place) for place in places}
        if len(lengths) != 1:
            return False  # an earlier cut has parted them
        (length,) = lengths
        worst = self.off.index[0] if self.off is not None and self.off.index and places[0][1] == 0 else 0
        starts = dict.fromkeys(at for at in (worst, 0, length - 1) if at < length)
        kept = [slice(at, at + 1) for at in starts] if length > 1 else []
        half = length // 2
        if length > 3:
            kept += [slice(0, half), slice(half, length), slice(0, length - half)]
        if length > 2:
            kept += [slice(0, length - 1), slice(1, length)]
        for part in kept:
            cut = dict(self.inputs)
            for name, axis in places:
                cut[name] = cut[name][(slice(None),) * axis + (part,)]
            if self._try(cut):
                return True
        return False

    def _values(self) -> bool:
        """Whole arrays at once, then ever smaller parts of them; true where an element changed."""
        changed = False
        for name in self.inputs:
            array = self.inputs[name]
            if array.dtype.kind not in "iufb" or not array.size:
                continue
            whole = [np.zeros_like(array), np.ones_like(array)]
            if is_floating(array):
                whole += [np.round(array), np.sign(array)]
            changed |= any(self._simplify(name, each) for each in whole)
            changed |= self._parts(name)
        return changed

    def _simplify(self, name: str, array: np.ndarray) -> bool:
        """Each change makes an input simpler, so that there is an end to it."""
        return _complexity(array) < _complexity(self.inputs[name]) and self._try({**self.inputs, name: array})

    def _parts(self, name: str) -> bool:
        """Halves, quarters and so on of an array's elements to zero, or else to simpler numbers."""
        changed = False
        size = self.inputs[name].size
        length = max(1, size // 2)
        while self.in_time:
            for start in range(0, size, length):
                flat = self.inputs[name].ravel()
                part = flat[start : start + length]
                for simpler in self._simpler(part):
                    new = flat.copy()
                    new[start : start + length] = simpler
                    if self._simplify(name, new.reshape(self.inputs[name].shape)):
                        changed = True
                        break
            if length == 1:
                return changed
            length = max(1, length // 2)
        return changed

    def _simpler(self, part: np.ndarray) -> Iterator[np.ndarray]:
        """Zeros; then ones, whole numbers and one decimal for what is none of these yet."""
        if not part.any():
            return
        yield np.zeros_like(part)
        if part.dtype.kind == "b" or (part == 1).all():
            return
        yield np.ones_like(part)
        if is_floating(part):
            if (np.abs(part) == 1).all():
                return
            yield np.sign(part)
            for decimals in (0, 1, 2):
                rounded = np.round(part, decimals)
                if (rounded == part).all():
                    return
                yield rounded
        elif len(part) == 1 and abs(int(part[0])) > 2:
            yield part // 2


def _complexity(array: np.ndarray) -> float:
    """The sum over elements: 0 for zero, 1 for one, more for a negative, a larger number, each decimal."""
    wide = array.astype(np.float64)
    wide = wide[np.isfinite(wide)]
    total = 20.0 * (array.size - wide.size) + float(np.where(wide == 0, 0, np.where(wide == 1, 1, 2)).sum())
    total += float(np.log2(1 + np.abs(wide)).sum())
    return total + sum(4.0 * float((np.round(wide, decimals) != wide).sum()) for decimals in (0, 1, 2))
