"""Inputs that random ones seldom are: zeros, ties, a large mean, one sign, masks of one value, a batch of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import jax.tree_util as jtu
import numpy as np

from ...case import Inputs
from ...draw import input_name, signature
from ...trees import is_floating

LARGE_MEAN = 100.0  # standard deviations
TIES = 2.0  # steps in a standard deviation, about: a step is a power of two, so that 1, where limits lie, is met


@dataclass(frozen=True)
class Leaf:
    """An input array, and the least and largest of its elements in every draw: what is known of its domain."""

    array: np.ndarray
    low: float
    high: float

    @property
    def has_both_signs(self) -> bool:
        return self.low < 0 < self.high

    @property
    def is_mask(self) -> bool:
        """Booleans, or a matrix of zeros and ones."""
        kind = self.array.dtype.kind
        return kind == "b" or (kind in "iu" and self.array.ndim > 1 and (self.low, self.high) == (0, 1))


def _zeros(leaf: Leaf) -> np.ndarray:
    return np.zeros_like(leaf.array) if is_floating(leaf.array) else leaf.array


def _ties(leaf: Leaf) -> np.ndarray:
    if not is_floating(leaf.array) or not (spread := leaf.array.std()):
        return leaf.array
    step = 2.0 ** np.round(np.log2(spread / TIES))
    return np.clip(np.round(leaf.array / step) * step, leaf.low, leaf.high).astype(leaf.array.dtype)


def _large_mean(leaf: Leaf) -> np.ndarray:
    if not is_floating(leaf.array) or not leaf.has_both_signs:
        return leaf.array
    return np.asarray(leaf.array + LARGE_MEAN * leaf.array.std(), leaf.array.dtype)


def _positive(leaf: Leaf) -> np.ndarray:
    return np.abs(leaf.array) if is_floating(leaf.array) else leaf.array


def _negative(leaf: Leaf) -> np.ndarray:
    return -np.abs(leaf.array) if is_floating(leaf.array) and leaf.has_both_signs else leaf.array


def _nothing(leaf: Leaf) -> np.ndarray:
    return np.zeros_like(leaf.array) if leaf.is_mask else leaf.array


def _everything(leaf: Leaf) -> np.ndarray:
    return np.ones_like(leaf.array) if leaf.is_mask else leaf.array


def _one_row(leaf: Leaf) -> np.ndarray:
    return leaf.array[:1] if leaf.array.ndim else leaf.array


BATCH_OF_ONE = "a batch of one"
TIED = ("zeros", "ties")  # on which the order of a sort decides
_MAKERS: dict[str, Callable[[Leaf], np.ndarray]] = {
    "zeros": _zeros,
    "ties": _ties,
    "a large mean": _large_mean,
    "all positive": _positive,
    "all negative": _negative,
    "masks of zeros": _nothing,
    "masks of ones": _everything,
    BATCH_OF_ONE: _one_row,
}
KINDS = tuple(_MAKERS)


def adversarial_inputs(
    draws: Sequence[Inputs], kinds: Sequence[str] = KINDS, *, but: Sequence[Inputs] = ()
) -> Iterator[tuple[str, Inputs]]:
    """Inputs made from random ones, those alone that differ from the first draw and from each other.

    Args:
      draws: random inputs of one structure. The first is changed; all of them tell the domain: what has no negative
        element in any is given none.
      kinds: of `KINDS`.
      but: inputs that are asked anyway.

    Returns:
      Names and inputs. Integers stay as they are, but for masks; a batch of one is cut where all arrays share the
      length of their first axis.
    """
    leaves = [jtu.tree_leaves_with_path(draw) for draw in draws]
    elements = {
        input_name(path): [np.asarray(leaf).ravel() for other in leaves for p, leaf in other if p == path]
        for path, _ in leaves[0]
    }
    lengths = {np.asarray(leaf).shape[0] for _, leaf in leaves[0] if np.ndim(leaf)}
    told = {_fingerprint(each) for each in (draws[0], *but)}
    for kind in kinds:
        if kind == BATCH_OF_ONE and (len(lengths) != 1 or lengths == {0}):
            continue

        def changed(path: tuple[object, ...], array: np.ndarray, kind: str = kind) -> np.ndarray:
            values = np.concatenate(elements[input_name(path)])
            if not values.size or not np.isfinite(values).all():
                return array
            return _MAKERS[kind](Leaf(np.asarray(array), values.min().item(), values.max().item()))

        made = jtu.tree_map_with_path(changed, draws[0])
        if (found := _fingerprint(made)) not in told:
            told.add(found)
            yield kind, made


def _fingerprint(inputs: Inputs) -> tuple[str, bytes]:
    return signature(inputs), b"".join(np.asarray(leaf).tobytes() for leaf in jtu.tree_leaves(inputs))
