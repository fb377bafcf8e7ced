"""Rows that have passed their gate, with the processes that run them: what is timed, and which of them contend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..report.records import Launches, Memory
from .rows import Row
from .runner import Ready
from .seats import Seat
from .timing import (
    FAR_BEHIND,
    LEAST_REPEATS,
    MOST_CALLS,
    NARROW,
    SHORTEST_SAMPLE_S,
    Timed,
    relative_width,
)

CONTENDERS = 1  # of each framework: the rows that decide a comparison run in further processes
LONGEST_CALLS = 50  # times what a call took before, after which it hangs


@dataclass(eq=False)
class Entrant:
    """A row that has passed its gate, with every process that runs it."""

    row: Row
    variant: str
    ready: Ready
    seats: list[Seat]
    timed: list[Timed] = field(default_factory=list)
    warm_start_s: float | None = None
    enqueue_s: float | None = None
    steady_s: float | None = None
    memory: Memory | None = None
    launches: Launches | None = None

    def start_timing(self, patience_s: float) -> Timed:
        """The competitor that its newest process is."""
        self.timed.append(_competitor(self.seats[-1], self.row, self.ready.warm_s, patience_s))
        return self.timed[-1]

    @property
    def whole(self) -> list[Timed]:
        """Without what Ctrl-C has broken off: two samples of a process are no account of it."""
        return [one for one in self.timed if one.is_whole]

    @property
    def samples(self) -> list[float]:
        return [sample for one in self.whole for sample in one.samples]

    @property
    def median(self) -> float:
        return float(np.median(self.samples)) if self.samples else math.inf

    @property
    def is_noisy(self) -> bool:
        """Whether the median is not known to 5 %: within a process, or from one process to another."""
        medians = [one.median for one in self.whole if one.samples]
        apart = max(medians) / min(medians) - 1 if len(medians) > 1 else 0.0
        return len(self.samples) < LEAST_REPEATS or relative_width(self.samples) > NARROW or apart > NARROW


def contenders(entrants: Sequence[Entrant]) -> list[Entrant]:
    """Of each framework the rows that are fastest, or nearly so; those that leave out what others print come last."""
    found: list[Entrant] = []
    for framework in ("torch", "jax"):
        timed = [e for e in entrants if e.row.framework == framework and e.samples]
        mine = sorted(timed, key=lambda e: (e.ready.unprinted, e.median))
        found += [e for e in mine[:CONTENDERS] if e.median <= FAR_BEHIND * mine[0].median]
    return found


def _competitor(seat: Seat, row: Row, warm_s: float, least_patience_s: float) -> Timed:
    def patience(calls: int) -> float:
        return max(least_patience_s, LONGEST_CALLS * calls * warm_s)

    return Timed(
        take=lambda offset, calls: seat.sample(offset, calls, patience(calls)),
        calibrate=lambda: seat.calibrated(SHORTEST_SAMPLE_S, MOST_CALLS, patience(MOST_CALLS)),
        warm_s=warm_s,
        steps_per_call=row.steps_per_call,
        side=row.framework,
    )
