"""Inputs that random ones seldom are: zeros, ties, small, large and few values, a large mean, one sign, masks of one
value, numbers that the reference holds, a batch of one."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import jax.tree_util as jtu
import numpy as np

from ...case import Inputs
from ...draw import input_name, signature
from ...trees import is_floating

LARGE_MEAN = 100.0  # standard deviations
SMALL = (1e-3, 1e-6, 1e-9)  # where an epsilon, of 1e-5 or of 1e-12, decides; below, float32 has no fourth power
LARGE = 1e3  # where an exponential overflows that should have been kept from it
NEAR_ZERO = 0.1  # of the largest
TIES = 2.0  # steps in a standard deviation, about: a step is a power of two, so that 1, where limits lie, is met
FEW = 3
CHANCE = 1e-3  # of what is random, to look as if it were ordered, or as if no number were there twice


@dataclass(frozen=True)
class Leaf:
    """An input array, what all draws of it tell of its domain, and the numbers that the reference holds."""

    array: np.ndarray
    draws: Sequence[np.ndarray]
    held: Sequence[float] = ()

    @functools.cached_property
    def low(self) -> float:
        return min(draw.min().item() for draw in self.draws if draw.size)

    @functools.cached_property
    def high(self) -> float:
        return max(draw.max().item() for draw in self.draws if draw.size)

    @property
    def is_known(self) -> bool:
        return any(draw.size for draw in self.draws) and all(np.isfinite(draw).all() for draw in self.draws)

    @property
    def has_both_signs(self) -> bool:
        return self.low < 0 < self.high

    @property
    def is_near_zero(self) -> bool:
        """Whether some elements are, or lie on both sides of it: lengths of 2 to 6 metres have no small values."""
        least, largest = sorted((abs(self.low), abs(self.high)))
        return self.has_both_signs or least <= NEAR_ZERO * largest

    @functools.cached_property
    def is_coded(self) -> bool:
        """Floating numbers of which there are few, and those whole, as flags and signs are: what lies between them, or
        beyond, means nothing."""
        if not is_floating(self.array):
            return False
        values = np.unique(np.concatenate([np.asarray(draw, np.float64).ravel() for draw in self.draws]))
        return 1 < values.size <= FEW and bool((values == np.trunc(values)).all())

    @property
    def is_one_hot(self) -> bool:
        """Whether of each row one element is one, and the others zero."""
        if self.array.ndim < 2 or self.array.shape[-1] < 2 or (self.low, self.high) != (0, 1):
            return False
        return all((np.count_nonzero(draw, -1) == 1).all() for draw in self.draws)

    @property
    def is_mask(self) -> bool:
        """Booleans, a matrix of zeros and ones, or floating zeros and ones, but no rows that have a single one each."""
        is_matrix = self.array.dtype.kind in "iu" and self.array.ndim > 1
        if is_matrix or self.is_coded:
            return (self.low, self.high) == (0, 1) and not self.is_one_hot
        return self.array.dtype.kind == "b" and not self.is_one_hot

    @property
    def is_arranged(self) -> bool:
        """Whether its rows are sorted, as offsets are, or name nothing twice, as a permutation does."""
        length, rows = self.array.shape[-1], sum(draw.size // draw.shape[-1] for draw in self.draws if draw.size)
        steps = [np.diff(draw, axis=-1) for draw in self.draws]
        if all((step >= 0).all() for step in steps) or all((step <= 0).all() for step in steps):
            return rows * math.lgamma(length + 1) > -math.log(CHANCE)
        pairs = rows * length * (length - 1) / 2
        return pairs / (self.high - self.low + 1) > -math.log(CHANCE) and all(
            np.diff(np.sort(draw, axis=-1), axis=-1).all() for draw in self.draws
        )

    @property
    def padding(self) -> float | None:
        """What stands at the ends of rows alone, or at their starts alone: the least of all, or the largest."""
        for value in (self.low, self.high):
            steps = [np.diff((draw == value).astype(np.int8), axis=-1) for draw in self.draws]
            if all((step >= 0).all() for step in steps) or all((step <= 0).all() for step in steps):
                return value
        return None


def _zeros(leaf: Leaf) -> np.ndarray:
    return np.zeros_like(leaf.array) if is_floating(leaf.array) else leaf.array


def _ties(leaf: Leaf) -> np.ndarray:
    if not is_floating(leaf.array) or not (spread := leaf.array.std()):
        return leaf.array
    step = 2.0 ** np.round(np.log2(spread / TIES))
    return np.clip(np.round(leaf.array / step) * step, leaf.low, leaf.high).astype(leaf.array.dtype)


def _small(factor: float, leaf: Leaf) -> np.ndarray:
    if not is_floating(leaf.array) or not leaf.is_near_zero:
        return leaf.array
    return np.asarray(leaf.array * factor, leaf.array.dtype)


def _large(leaf: Leaf) -> np.ndarray:
    if not is_floating(leaf.array) or not leaf.has_both_signs:
        return leaf.array
    return np.asarray(leaf.array * LARGE, leaf.array.dtype)


def _few_values(leaf: Leaf) -> np.ndarray:
    if leaf.array.dtype.kind not in "iu" or not leaf.array.ndim or leaf.is_mask or leaf.is_arranged:
        return leaf.array
    padding = leaf.padding
    values = np.unique(np.concatenate([draw.ravel() for draw in leaf.draws]))
    values = values[values != padding]
    if not values.size:
        return leaf.array
    few = values[:FEW]
    return np.where(leaf.array == padding, leaf.array, few[np.searchsorted(values, leaf.array) % few.size])


def _one_value(which: int, leaf: Leaf) -> np.ndarray:
    """All integers as the least, or the largest, that was drawn: no object of any class, one row of a table alone."""
    if leaf.array.dtype.kind not in "iu" or not leaf.array.ndim or leaf.is_mask or leaf.is_arranged:
        return leaf.array
    padding = leaf.padding
    values = np.unique(np.concatenate([draw.ravel() for draw in leaf.draws]))
    values = values[values != padding] if len(values) > 1 else values
    return np.where(leaf.array == padding, leaf.array, values[which]) if values.size else leaf.array


def _few_peaks(leaf: Leaf) -> np.ndarray:
    """All but the first two and the last of the last axis are the least: repeats and blanks, if they are classes."""
    if not is_floating(leaf.array) or leaf.array.ndim < 2 or leaf.array.shape[-1] <= FEW:
        return leaf.array
    peaks = leaf.array.copy()
    peaks[..., 2:-1] = leaf.low
    return peaks


def _large_mean(leaf: Leaf) -> np.ndarray:
    if not is_floating(leaf.array) or not leaf.has_both_signs:
        return leaf.array
    return np.asarray(leaf.array + LARGE_MEAN * leaf.array.std(), leaf.array.dtype)


def _positive(leaf: Leaf) -> np.ndarray:
    return np.abs(leaf.array) if is_floating(leaf.array) and leaf.has_both_signs else leaf.array


def _negative(leaf: Leaf) -> np.ndarray:
    return -np.abs(leaf.array) if is_floating(leaf.array) and leaf.has_both_signs else leaf.array


def _nothing(leaf: Leaf) -> np.ndarray:
    return np.zeros_like(leaf.array) if leaf.is_mask else leaf.array


def _everything(leaf: Leaf) -> np.ndarray:
    return np.ones_like(leaf.array) if leaf.is_mask else leaf.array


def _half(leaf: Leaf) -> np.ndarray:
    """Of a mask that is of one value in each draw, by chance or always: of the other in the second half of its rows."""
    is_even = all(draw.size and (draw == draw.flat[0]).all() for draw in leaf.draws)
    if not leaf.is_mask or not leaf.array.ndim or leaf.array.shape[-1] < 2 or not is_even:
        return leaf.array
    made = leaf.array.copy()
    made[..., made.shape[-1] // 2 :] = 1 - int(made.flat[0])
    return made


def _holes(leaf: Leaf) -> np.ndarray:
    """Of a mask whose rows are one stretch each, at the start or the end: its second element moves to the far end."""
    if not leaf.is_mask or leaf.array.ndim < 2 or leaf.padding is None:
        return leaf.array
    rows = leaf.array.reshape(-1, leaf.array.shape[-1]).copy()
    for row in rows:
        kept = np.flatnonzero(row)
        if len(kept) > 2 and len(kept) < len(row):
            at_start = kept[0] == 0
            row[kept[1] if at_start else kept[-2]], row[-1 if at_start else 0] = 0, 1
    return rows.reshape(leaf.array.shape)


def _held(leaf: Leaf) -> np.ndarray:
    """Every second element is a number that the reference holds: a knot, or an end of a bin."""
    within = [value for value in leaf.held if leaf.low <= value <= leaf.high]
    if not is_floating(leaf.array) or not within:
        return leaf.array
    made = leaf.array.flatten()
    made[::2] = np.resize(within, made[::2].shape)
    return made.reshape(leaf.array.shape)


def _one_row(leaf: Leaf) -> np.ndarray:
    return leaf.array[:1] if leaf.array.ndim else leaf.array


BATCH_OF_ONE = "a batch of one"
HOLES = "masks with holes"
HALF = "masks of both values"
FEW_VALUES = "few values"
LEAST, LARGEST = "the least integers", "the largest integers"
FEW_PEAKS = "few peaks"
_MAKERS: dict[str, Callable[[Leaf], np.ndarray]] = {
    "zeros": _zeros,
    "ties": _ties,
    **{f"{factor:g} as large": functools.partial(_small, factor) for factor in SMALL},
    f"{LARGE:g} as large": _large,
    FEW_VALUES: _few_values,
    LEAST: functools.partial(_one_value, 0),
    LARGEST: functools.partial(_one_value, -1),
    FEW_PEAKS: _few_peaks,
    "a large mean": _large_mean,
    "all positive": _positive,
    "all negative": _negative,
    "masks of zeros": _nothing,
    "masks of ones": _everything,
    HALF: _half,
    HOLES: _holes,
    "values of buffers": _held,
    BATCH_OF_ONE: _one_row,
}
KINDS = tuple(_MAKERS)
OF_CODES = {"all positive", "all negative", "masks of zeros", "masks of ones", HALF, HOLES, BATCH_OF_ONE}
"""What leaves floating numbers that are flags or signs what they are."""


def adversarial_inputs(
    draws: Sequence[Inputs],
    kinds: Sequence[str] = KINDS,
    *,
    but: Sequence[Inputs] = (),
    held: Sequence[float] = (),
) -> Iterator[tuple[str, Inputs]]:
    """Inputs made from random ones, those alone that differ from the first draw and from each other.

    Args:
      draws: random inputs of one structure. The first is changed; all of them tell the domain: what has no negative
        element in any is given none, integers that are sorted, or distinct, stay so, and floating numbers that are
        two or three whole ones, as flags and signs are, stay among them.
      kinds: of `KINDS`.
      but: inputs that are asked anyway.
      held: numbers that the reference may compare with.

    Returns:
      Names and inputs. Integers change where they are masks, and for few values or one; floating zeros and ones where
      they are masks alone; a batch of one is cut where all arrays share the length of their first axis.
    """
    leaves = [jtu.tree_leaves_with_path(draw) for draw in draws]
    arrays = {
        input_name(path): [np.asarray(leaf) for other in leaves for p, leaf in other if p == path]
        for path, _ in leaves[0]
    }
    lengths = {np.asarray(leaf).shape[0] for _, leaf in leaves[0] if np.ndim(leaf)}
    told = {_fingerprint(each) for each in (draws[0], *but)}
    for kind in kinds:
        if kind == BATCH_OF_ONE and (len(lengths) != 1 or lengths == {0}):
            continue

        def changed(path: tuple[object, ...], array: np.ndarray, kind: str = kind) -> np.ndarray:
            leaf = Leaf(np.asarray(array), arrays[input_name(path)], held)
            is_made = leaf.is_known and (kind in OF_CODES or not leaf.is_coded)
            return _MAKERS[kind](leaf) if is_made else leaf.array

        made = jtu.tree_map_with_path(changed, draws[0])
        if (found := _fingerprint(made)) not in told:
            told.add(found)
            yield kind, made


def _fingerprint(inputs: Inputs) -> tuple[str, bytes]:
    return signature(inputs), b"".join(np.asarray(leaf).tobytes() for leaf in jtu.tree_leaves(inputs))
