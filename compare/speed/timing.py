"""Interleaved timing: every way of running inside each repeat, so that drift hits all alike."""

from __future__ import annotations

import functools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import numpy as np

from ..interrupt import is_swallowed

SHORTEST_SAMPLE_S = 1e-3
MOST_CALLS = 200
LEAST_REPEATS = 5
FEWEST_REPEATS = 3  # for a competitor that is far behind
FAR_BEHIND = 1.25  # times the fastest median
MOST_REPEATS = 40
NOISY_IQR = 0.25


AGAIN_S = 0.5  # until the block has ended: code in between may have swallowed the first


class Expired(BaseException):
    """The time budget ended. No `Exception`, so that a framework which wraps errors lets it through."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises `Expired` in the block once the seconds are over.

    By SIGALRM, so in the main thread of a POSIX process alone; elsewhere the block just runs. Code that does not return
    to Python, as XLA while it compiles, is interrupted when it does.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def expire(signum: int, frame: FrameType | None) -> None:
        if not is_swallowed(frame):
            raise Expired

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@dataclass
class Timed:
    """One competitor: `call(i)` runs input set `i` to its end; `samples` are seconds a call.

    `warm_s` is what its last call before took, where that is known: one that fills a sample needs no calibration.
    """

    call: Callable[[int], None]
    warm_s: float = 0.0
    calls_per_sample: int = 1
    samples: list[float] = field(default_factory=list)
    error: Exception | None = None

    def is_done(self, budget_s: float, far_behind_s: float) -> bool:
        if self.error is not None or len(self.samples) < FEWEST_REPEATS:
            return self.error is not None
        enough = FEWEST_REPEATS if self.median > far_behind_s else LEAST_REPEATS
        return len(self.samples) >= enough and sum(self.samples) * self.calls_per_sample > budget_s

    @property
    def median(self) -> float:
        return float(np.median(self.samples))

    @property
    def iqr(self) -> float:
        low, high = np.percentile(self.samples, [25, 75])
        return float(high - low)

    @property
    def p95(self) -> float:
        return float(np.percentile(self.samples, 95))

    @property
    def noisy(self) -> bool:
        return len(self.samples) < LEAST_REPEATS or self.iqr > NOISY_IQR * self.median


def interleave(competitors: list[Timed], *, budget_s: float, input_sets: int, repeats: int = MOST_REPEATS) -> None:
    """Fills `samples`: each repeat runs every competitor once, starting with another one each time.

    A competitor is done after `repeats`, or once it has used up `budget_s` and has five, or three where it is far
    behind the fastest. One that raises is out, with its error kept.
    """
    for one in competitors:
        if one.warm_s < SHORTEST_SAMPLE_S:
            _attempt(one, functools.partial(_calibrate, one, input_sets))
    for repeat in range(repeats):
        fastest = min((one.median for one in competitors if one.samples), default=math.inf)
        running = [one for one in competitors if not one.is_done(budget_s, FAR_BEHIND * fastest)]
        if not running:
            return
        turn = repeat % len(running)
        for one in running[turn:] + running[:turn]:
            _attempt(one, functools.partial(_take, one, repeat, input_sets))


def _attempt(one: Timed, action: Callable[[], None]) -> None:
    if one.error is None:
        try:
            action()
        except Exception as error:
            one.error = error


def _calibrate(one: Timed, input_sets: int) -> None:
    one.calls_per_sample = 1
    fastest = _sample(one, 0, input_sets)
    if fastest < SHORTEST_SAMPLE_S:
        fastest = min(fastest, *(_sample(one, i, input_sets) for i in range(3)))
    one.calls_per_sample = min(MOST_CALLS, max(1, math.ceil(SHORTEST_SAMPLE_S / max(fastest, 1e-9))))


def _take(one: Timed, offset: int, input_sets: int) -> None:
    one.samples.append(_sample(one, offset, input_sets))


def _sample(one: Timed, offset: int, input_sets: int) -> float:
    start = time.perf_counter()
    for i in range(one.calls_per_sample):
        one.call((offset + i) % input_sets)
    return (time.perf_counter() - start) / one.calls_per_sample
