"""A number that is found from what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from .limit import Limit

STEPS = 12
ENOUGH = 1e-13
PARTS = (1.0, 0.5, 0.25, 0.125)  # of a step, tried until one leaves less


def solve(
    left: Callable[[float], np.ndarray | None],
    known: float,
    likely: Iterable[float] = (),
    limit: Limit | None = None,
) -> float | None:
    """The number with which least is left, by the damped steps of Gauss and Newton from the likeliest one.

    Args:
      left: what is left with a number, `[n]`; None where it cannot be told.
      known: the reference's.
      likely: others to start from.
      limit: after which the best so far is given.

    Returns:
      None where the number changes nothing, or nothing can be told.
    """

    def size(vector: np.ndarray | None) -> float:
        return np.inf if vector is None else float(np.linalg.norm(vector))

    value = min(dict.fromkeys((known, *likely)), key=lambda v: size(left(v)))
    vector = left(value)
    if vector is None or not vector.size:
        return None
    for _ in range(STEPS):
        if size(vector) < ENOUGH or (limit is not None and limit.is_over):
            break
        step = 1e-4 * abs(value) or 1e-6
        moved = left(value + step)
        if moved is None:
            return None
        slope = (moved - vector) / step
        length = float(slope @ slope)
        if length == 0:
            return None
        whole = -float(slope @ vector) / length
        for part in PARTS:
            goal = value + part * whole
            further = left(goal)
            if further is not None and size(further) < size(vector):
                value, vector = goal, further
                break
        else:
            break
    return value


def plain(value: float, holds: Callable[[float], bool]) -> float:
    """The number with the fewest digits that does as well."""
    for digits in range(1, 8):
        short = float(f"{value:.{digits}g}")
        if abs(short - value) <= 1e-4 * abs(value) and holds(short):
            return short
    return value
