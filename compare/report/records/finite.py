"""Numbers that JSON can hold."""

from __future__ import annotations

import math


def drop_non_finite(record: object, *names: str) -> None:
    """JSON has no infinity, so a record holds from the start what a reader of its file gets."""
    for name in names:
        value = getattr(record, name)
        if value is not None and not math.isfinite(value):
            object.__setattr__(record, name, None)


def or_infinite(value: float | None) -> float:
    return math.inf if value is None else value
