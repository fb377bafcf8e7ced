"""A tensor as long as its values say, and the one of a fixed size that a graph has instead.

Eager code takes the rows of a mask, or the tokens so far; a graph keeps all that there is room for, and the rows that
count are the first of them, or stay where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..yardstick import largest


class Form(Protocol):
    """How the port lays out the part that counts, as `Layout` does."""

    def to_port(self, array: np.ndarray) -> np.ndarray: ...
    def to_reference(self, array: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class FixedSizeLayout:
    """The reference's tensor as places along one axis of a longer one.

    Attributes:
      form: of those places alone.
      axis: of the port's tensor.
      places: `[n]`, ascending, where it has what the reference has.
      whole: the port's tensor as it was found; what stands elsewhere in it stays there.
    """

    form: Form
    axis: int
    places: np.ndarray
    whole: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the port's tensor."""
        return self.whole.shape

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        return self.form.to_reference(np.take(np.asarray(array), self.places, self.axis))

    def to_port(self, array: np.ndarray) -> np.ndarray:
        return self._put(array, self.whole.astype(array.dtype))

    def gradient_to_port(self, gradient: np.ndarray) -> np.ndarray:
        """With nothing at all elsewhere: what does not count has no influence."""
        return self._put(gradient, np.zeros(self.shape, gradient.dtype))

    def beyond(self, array: np.ndarray) -> np.ndarray:
        """What stands elsewhere."""
        return np.delete(array, self.places, self.axis)

    def _put(self, array: np.ndarray, whole: np.ndarray) -> np.ndarray:
        whole[(slice(None),) * self.axis + (self.places,)] = self.form.to_port(array)
        return whole


def fixed_size_layout(
    port: np.ndarray,
    reference: np.ndarray,
    fit: Callable[[np.ndarray, np.ndarray], Form | None],
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
    if port.ndim != reference.ndim or not 0 < reference.size < port.size:
        return None
    for axis, length in enumerate(port.shape):
        rest = port.size // length
        count, remainder = divmod(reference.size, rest)
        if remainder or not 0 < count < length:
            continue
        others = [each for each in known if isinstance(each, FixedSizeLayout)]
        usual = next((one.places for one in others if (len(one.places), one.shape[one.axis]) == (count, length)), None)
        form = fit(np.take(port, np.arange(count), axis), reference)
        if form is None or (given and usual is None):
            continue
        wanted = np.moveaxis(form.to_port(reference), axis, 0)
        places = _places(np.moveaxis(port, axis, 0), wanted, tolerance)
        places = usual if places is None else places
        if places is not None:
            return FixedSizeLayout(form, axis, places, port.copy())
    return None


def _places(port: np.ndarray, wanted: np.ndarray, tolerance: float) -> np.ndarray | None:
    """Where the rows stand that are wanted: the first ones, or some in their order."""
    limit = tolerance * float(largest(wanted))

    def same(a: np.ndarray, b: np.ndarray) -> bool:
        if a.dtype.kind in "biu":
            return bool((a == b).all())
        equal = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= limit)
        return bool(equal.all())

    if same(port[: len(wanted)], wanted):
        return np.arange(len(wanted))
    places: list[int] = []
    for place, row in enumerate(port):
        if len(places) < len(wanted) and same(row, wanted[len(places)]):
            places.append(place)
    return np.asarray(places) if len(places) == len(wanted) else None
