"""Gradients that a module gives otherwise than the reference's, and that go no further: those of ties behind a relu,
say, which the module shares out otherwise, and the relu lets none of them through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..yardstick import SMALLEST_GRADIENT, difference, magnitude
from .calls import CallId

if TYPE_CHECKING:
    from .borders import Backward

FEW = 4  # calls, that are tried one by one where they make a difference together
Named = Mapping[str, np.ndarray]


def going_no_further(
    backward: Backward, wrong: set[CallId], again: Callable[[set[CallId]], Backward], largest: float
) -> set[CallId]:
    """Of calls that give a wrong gradient, those with which all around them is the same as with the right one.

    Args:
      backward: in which every call hands on the reference's gradients.
      wrong: the calls.
      again: the same where these hand on their own.
      largest: gradient of a parameter, beside which others are small.
    """
    if not wrong or _is_same(backward, again(wrong), wrong, largest):
        return wrong
    each = [{at} for at in wrong] if 1 < len(wrong) <= FEW else []
    return {at for calls in each if _is_same(backward, again(calls), calls, largest) for at in calls}


def _is_same(before: Backward, after: Backward, calls: set[CallId], largest: float) -> bool:
    found = {key: array for key, array, _ in _gradients(after, calls)}
    for key, array, reference in _gradients(before, calls):
        scale = max(magnitude(reference), SMALLEST_GRADIENT * largest)
        if key not in found or not difference(found[key], array, scale).equal:
            return False
    return True


def _gradients(backward: Backward, calls: set[CallId]) -> Iterator[tuple[tuple[object, ...], np.ndarray, np.ndarray]]:
    """All that is seen but what these calls give: by name, and with what it is beside."""
    for seen in backward.seen:
        if seen.what != "input_gradient" or seen.at not in calls:
            yield (seen.at, seen.what, seen.name), seen.port, seen.reference
    for what, named in (("parameter", backward.by_parameters), ("input", backward.by_inputs)):
        for name, array in named.items():
            yield (what, name), array, array
