"""How long a search may take: what counts is the time that it computes, whatever else runs on the machine."""

from __future__ import annotations

import math
import time

SLOWED = 3.0  # times as long it may take by the clock, where others compute beside it, or other threads for it


class Limit:
    """A time from now on, for what this thread does.

    Args:
      seconds: that this thread computes; by the clock it may be three times as long.
      deadline: of `time.monotonic`, by when it is over in any case.
    """

    def __init__(self, seconds: float, deadline: float = math.inf):
        self.seconds, self._start, self._began = seconds, time.monotonic(), time.thread_time()
        self._last, self._deadline = deadline, min(deadline, self._start + SLOWED * seconds)

    def anew(self) -> Limit:
        """The same from now on."""
        return Limit(self.seconds, self._last)

    @property
    def is_over(self) -> bool:
        return time.thread_time() - self._began > self.seconds or time.monotonic() > self._deadline

    @property
    def taken(self) -> float:
        """Seconds by the clock."""
        return time.monotonic() - self._start


class LateError(Exception):
    """The time is over."""


def check(limit: Limit) -> None:
    if limit.is_over:
        raise LateError
