"""A `PackedSequence` of the reference, and the padded array with lengths that a graph of fixed size has instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

FIELDS = ("data", "batch_sizes", "sorted_indices", "unsorted_indices")


@dataclass(frozen=True, eq=False)
class Packing:
    """Where each row of packed data is in the batch.

    Attributes:
      sizes: `[T]`, how many sequences have each step.
      order: `[B]`, which sequence of the batch each one of those is, longest first.
    """

    sizes: np.ndarray
    order: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """`[B]`, of the batch in its own order."""
        lengths = np.empty(len(self.order), np.int64)
        lengths[self.order] = (self.sizes[:, None] > np.arange(len(self.order))).sum(0)
        return lengths

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each row of the data, its sequence and its step."""
        steps = np.repeat(np.arange(len(self.sizes)), self.sizes)
        ranks = np.concatenate([np.arange(size) for size in self.sizes])
        return self.order[ranks], steps


@dataclass(frozen=True, eq=False)
class PackedLayout:
    """Packed data `[rows, ...]` as a padded array, as `Layout` is for one whose axes are in another order.

    Attributes:
      packing: of the reference's.
      shape: of the port's, `[B, T, ...]`, or `[T, B, ...]` where time is first; T may be longer than any sequence.
      time_first: which of the two.
    """

    packing: Packing
    shape: tuple[int, ...]
    time_first: bool

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array)[self._places]

    def to_port(self, array: np.ndarray) -> np.ndarray:
        padded = np.zeros(self.shape, array.dtype)
        padded[self._places] = array
        return padded

    def gradient_to_port(self, gradient: np.ndarray) -> np.ndarray:
        return self.to_port(gradient)

    @property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        sequences, steps = self.packing.places
        return (steps, sequences) if self.time_first else (sequences, steps)


def unpacked(tensors: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, Packing]]:
    """A call's tensors with the lengths of a `PackedSequence` in place of its indices, and the packing of each data.

    A name that ends in `data` has the fields of a `PackedSequence` beside it where it is the data of one.
    """
    packings: dict[str, Packing] = {}
    found: dict[str, np.ndarray] = {}
    indices: set[str] = set()
    for name, array in tensors.items():
        if name in indices:
            continue
        found[name] = array
        prefix = name.removesuffix(FIELDS[0])
        sizes = tensors.get(f"{prefix}{FIELDS[1]}")
        if name.rpartition(".")[2] != FIELDS[0] or sizes is None or sizes.sum() != len(array):
            continue
        order = tensors.get(f"{prefix}{FIELDS[2]}")
        packings[name] = packing = Packing(sizes, np.arange(sizes[0]) if order is None else order)
        indices |= {f"{prefix}{field}" for field in FIELDS[1:]}
        found[f"{prefix}lengths"] = packing.lengths
    return {name: array for name, array in found.items() if name not in indices}, packings


def packed_layouts(data: np.ndarray, packing: Packing, shape: Sequence[int]) -> Iterator[PackedLayout]:
    """The ways in which a padded array of this shape holds the data."""
    sizes = len(packing.order), len(packing.sizes)
    if len(shape) != data.ndim + 1 or tuple(shape[2:]) != data.shape[1:]:
        return
    for time_first, (batch, steps) in ((False, shape[:2]), (True, (shape[1], shape[0]))):
        if batch == sizes[0] and steps >= sizes[1]:
            yield PackedLayout(packing, tuple(shape), time_first)


def is_lengths(name: str, tensors: Mapping[str, np.ndarray]) -> bool:
    """Whether these are the lengths that `unpacked` adds to a call's tensors."""
    return name not in tensors
