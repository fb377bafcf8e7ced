"""Gradients that a module gives, or is handed, otherwise than the reference's, and that go no further: those of ties
behind a relu, say, which the module shares out otherwise, and the relu lets none of them through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..yardstick import SMALLEST_GRADIENT, difference, magnitude
from .calls import CallId

if TYPE_CHECKING:
    from .borders import Backward, What

FEW = 4  # calls, that are tried one by one where they make a difference together
Named = Mapping[str, np.ndarray]


def going_no_further(
    backward: Backward,
    wrong: set[CallId],
    again: Callable[[set[CallId]], Backward],
    largest: float,
    what: What = "input_gradient",
) -> set[CallId]:
    """Of calls that give a wrong gradient, or are handed one, those with which all else is the same as with the right
    one.

    Args:
      backward: in which every call hands on the reference's gradients.
      wrong: the calls.
      again: the same where these hand on their own, or what they are handed.
      largest: gradient of a parameter, beside which others are small.
      what: is wrong of them.
    """
    if not wrong or _is_same(backward, again(wrong), wrong, largest, what):
        return wrong
    each = [{at} for at in wrong] if 1 < len(wrong) <= FEW else []
    return {at for calls in each if _is_same(backward, again(calls), calls, largest, what) for at in calls}


def _is_same(before: Backward, after: Backward, calls: set[CallId], largest: float, what: What) -> bool:
    found = {key: array for key, array, _ in _gradients(after, calls, what)}
    for key, array, reference in _gradients(before, calls, what):
        scale = max(magnitude(reference), SMALLEST_GRADIENT * largest)
        if key not in found or not difference(found[key], array, scale).equal:
            return False
    return True


def _gradients(
    backward: Backward, calls: set[CallId], what: What
) -> Iterator[tuple[tuple[object, ...], np.ndarray, np.ndarray]]:
    """All that is seen but what is wrong of these calls: by name, and with what it is beside."""
    for seen in backward.seen:
        if seen.what != what or seen.at not in calls:
            yield (seen.at, seen.what, seen.name), seen.port, seen.reference
    for kind, named in (("parameter", backward.by_parameters), ("input", backward.by_inputs)):
        for name, array in named.items():
            yield (kind, name), array, array
