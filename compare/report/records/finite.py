"""Numbers that JSON can hold, and that can have been measured."""

from __future__ import annotations

import math
from collections.abc import Iterable

SMALLEST, LARGEST = 1e-15, 1e30  # in seconds, bytes, operations, and these a second


def drop_non_finite(record: object, *names: str) -> None:
    """JSON has no infinity, so a record holds from the start what a reader of its file gets."""
    for name in names:
        value = getattr(record, name)
        if value is not None and not math.isfinite(value):
            object.__setattr__(record, name, None)


def or_infinite(value: float | None) -> float:
    return math.inf if value is None else value


def require_measured(record: object, *names: str, or_zero: bool = False) -> None:
    """That what the fields hold can have been measured: a number, all of a list or of a dict's values, or None.

    Raises:
      ValueError: for one that is negative, not finite, or of a size that no machine has; for 0 unless `or_zero`.
    """
    for name in names:
        for value in _numbers(getattr(record, name)):
            if not (SMALLEST <= value <= LARGEST or (or_zero and value == 0)):
                raise ValueError(f"{name} is {value:g}, which cannot have been measured")


def _numbers(held: float | list[float] | dict[str, float] | None) -> Iterable[float]:
    if held is None:
        return ()
    if isinstance(held, dict):
        return held.values()
    return held if isinstance(held, list) else (held,)
