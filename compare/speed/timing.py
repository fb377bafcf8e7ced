"""Interleaved timing: every way of running inside each repeat, so that drift hits all alike."""

from __future__ import annotations

import functools
import math
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import numpy as np

from ..interrupt import is_swallowed

SHORTEST_SAMPLE_S = 2e-3
MOST_CALLS = 200
LONG_S = 20e-3  # of a call by itself, which surely fills a sample
SURELY_LONG_S = 1.0  # of a call beside others, or of one that still compiled something
LEAST_REPEATS = 5
FEWEST_REPEATS = 3  # for a competitor that is far behind
FAR_BEHIND = 1.25  # times the fastest median of its side
HOPELESS = 2.0  # likewise, of every sample: no noise hides the fastest there, and five tell what it takes
ENOUGH_REPEATS = 12  # where the median is known to SHARP by then
MOST_REPEATS = 25
NARROW = 0.05  # of the median, the width of its interval: a wider one is noisy
SHARP = 0.02
TWO_SIDED_95 = 1.96

SPIN_S = 10e-3  # after which threads that have nothing to do sleep: libgomp's spin for 8 ms
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
    """One competitor.

    Attributes:
      take: `(offset, calls)` gives seconds a call, of that many calls from input set `offset` on.
      steps_per_call: a sample is seconds a step.
      side: its framework: the fastest of each are what is compared, so that neither is short of samples.
      calibrate: how many calls a sample needs; called once, but for one whose calls are surely long.
      warm_s: what its last call before took, perhaps beside others: a long one needs no calibration.
      repeats: the index of the repeat that each sample was taken in.
      is_whole: whether the timing has come to its end.
    """

    take: Callable[[int, int], float]
    calibrate: Callable[[], int] = lambda: 1
    warm_s: float = math.inf
    steps_per_call: int = 1
    side: str = ""
    calls_per_sample: int = 1
    samples: list[float] = field(default_factory=list)
    repeats: list[int] = field(default_factory=list)
    error: Exception | None = None
    is_whole: bool = False

    @property
    def is_short(self) -> bool:
        """Whether one call does not fill a sample."""
        return self.calls_per_sample > 1

    def is_done(self, budget_s: float, fastest_s: float) -> bool:
        if self.error is not None or len(self.samples) < FEWEST_REPEATS:
            return self.error is not None
        if len(self.samples) >= LEAST_REPEATS and min(self.samples) > HOPELESS * fastest_s:
            return True
        if len(self.samples) >= ENOUGH_REPEATS and relative_width(self.samples) < SHARP:
            return True
        enough = FEWEST_REPEATS if self.median > FAR_BEHIND * fastest_s else LEAST_REPEATS
        spent = sum(self.samples) * self.steps_per_call * self.calls_per_sample
        return len(self.samples) >= enough and spent > budget_s

    @property
    def median(self) -> float:
        return float(np.median(self.samples))


def relative_width(samples: Sequence[float]) -> float:
    """The 95% interval of the median, by order statistics: its width over the median, infinite below five samples."""
    count = len(samples)
    if count < LEAST_REPEATS:
        return math.inf
    ordered = sorted(samples)
    low = max(0, math.floor((count - TWO_SIDED_95 * math.sqrt(count)) / 2))
    return (ordered[count - 1 - low] - ordered[low]) / float(np.median(ordered))


def interleave(
    competitors: Sequence[Timed], *, budget_s: float, repeats: int = MOST_REPEATS, first_repeat: int = 0
) -> None:
    """Fills `samples`: each repeat runs every competitor once, in an order of its own: what ran before a competitor
    leaves threads that spin and caches that are cold, and is to be another one each time.

    A competitor is done after `repeats`, once its median is known to 2 %, once it has five samples, each of more than
    twice the fastest median of its side, or once it has used up `budget_s` and has five samples, or three where it is
    far behind that one. One that raises is out, with its error kept.
    """
    for one in competitors:
        if one.warm_s < SURELY_LONG_S:
            _attempt(one, functools.partial(_calibrate, one))
    for repeat in range(first_repeat, first_repeat + repeats):
        fastest: dict[str, float] = defaultdict(lambda: math.inf)
        for one in competitors:
            if one.samples:
                fastest[one.side] = min(one.median, fastest[one.side])
        running = [one for one in competitors if not one.is_done(budget_s, fastest[one.side])]
        if not running:
            return
        for place in np.random.default_rng(repeat).permutation(len(running)):
            _attempt(running[place], functools.partial(_take, running[place], repeat))


def _attempt(one: Timed, action: Callable[[], None]) -> None:
    if one.error is None:
        try:
            action()
        except Exception as error:
            one.error = error


def _calibrate(one: Timed) -> None:
    one.calls_per_sample = one.calibrate()


def _take(one: Timed, repeat: int) -> None:
    one.samples.append(one.take(repeat, one.calls_per_sample) / one.steps_per_call)
    one.repeats.append(repeat)
