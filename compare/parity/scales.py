"""What an error in a tensor is a fraction of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .judge import shares_scale
from .yardstick import EQUAL_TOLERANCE, SMALLEST_SCALE, magnitude

if TYPE_CHECKING:
    from .judge import Key, Truth

ALLOWED_UNREST = 30.0  # another order of the same sums makes several times the rounding of the one


class Scales:
    """Of every tensor of the judge's answers: they bear on each other, an input's on another's."""

    def __init__(self, truths: Sequence[Truth]):
        self._truths = truths
        self._magnitudes: dict[tuple[str, Key], float] = {}

    def beside(self, truths: Sequence[Truth]) -> Scales:
        """Of these answers, and of those it knows: what cancels on the one input does not on others."""
        return Scales([*truths, *self._truths])

    def of(self, truth: Truth, key: Key) -> float:
        """Of a tensor of one answer; for a gradient, the largest of all parameters'.

        It is larger where float64 itself cannot tell the tensor that well.
        """
        mode = truth.question.mode
        unrest = max((t.unrest.get(key, 0.0) for t in self._truths if t.question.mode == mode), default=0.0)
        least = allowed_unrest(unrest)
        if not shares_scale(key[0]):
            own = magnitude(truth.reference.get(key))
            return max(own, SMALLEST_SCALE * self.magnitude(mode, key), least)
        overall = max(t.shared_scale(key) for t in self._usual(mode))
        return max(truth.shared_scale(key), SMALLEST_SCALE * overall, least)

    def magnitude(self, mode: str, key: Key) -> float:
        """Of a tensor, the largest over the usual inputs."""
        if (mode, key) not in self._magnitudes:
            arrays = (truth.reference.find(key) for truth in self._usual(mode))
            self._magnitudes[mode, key] = max((magnitude(array) for array in arrays if array is not None), default=0.0)
        return self._magnitudes[mode, key]

    def _usual(self, mode: str) -> list[Truth]:
        """The random inputs' answers, or all where there is none: one edge input whose tensors are 1e30 says nothing of
        how large an error is on the others."""
        answers = [truth for truth in self._truths if truth.question.mode == mode]
        return [truth for truth in answers if truth.question.is_random] or answers


def allowed_unrest(unrest: float) -> float:
    """The scale of a tensor that float64 itself tells no better than so."""
    return ALLOWED_UNREST * unrest / EQUAL_TOLERANCE
