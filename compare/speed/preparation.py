"""Rows are prepared a few at a time, each in its own process: to build and compile one keeps one processor busy."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Literal

from ..case import Mode
from .rows import Row
from .runner import Ready, Refusal
from .seats import Failed, Seat, Unloadable
from .turn import stood_still

FEWEST_AT_ONCE = 2
PROCESSORS_EACH = 4  # beyond which further rows do not disturb those that compile


@dataclass(frozen=True)
class Job:
    """A row of a variant, to be prepared within `budget_s` seconds from when its process has loaded the case.

    With nothing `beside` it, it is prepared alone: PyTorch's threads wait for one another with processors held, and
    where another row computes on one of them each small operation takes a time slice. With `others`, no second such job
    is prepared meanwhile: XLA times its kernels on the GPU.
    """

    row: Row
    variant: str
    budget_s: float
    beside: Literal["anything", "others", "nothing"] = "anything"


@dataclass
class _Running:
    job: Job
    seat: Seat
    since: float
    limit_s: float

    @property
    def left_s(self) -> float:
        """Of its limit, which does not go on while everything stands still for another run."""
        now = time.monotonic()
        return self.limit_s - (now - self.since) + stood_still(self.since, now)


def at_once() -> int:
    """How many rows are prepared at a time."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(FEWEST_AT_ONCE, processors // PROCESSORS_EACH)


def prepared(
    jobs: Sequence[Job],
    mode: Mode,
    take_seat: Callable[[Job], Seat],
    on_begin: Callable[[Job], None],
    load_s: float,
) -> Iterator[tuple[Job, Seat, Ready | Refusal]]:
    """Each job with its seat and what came of it, in the order in which they end.

    A seat whose job failed is closed; one that refused may go on with another mode. The first that has room begins.

    Args:
      jobs: what to prepare.
      mode: for which.
      take_seat: gives a job its seat; after `Unloadable` it has to give one that runs here.
      on_begin: hears of each job that begins.
      load_s: how long a process may take before it has loaded the case.
    """
    waiting, running = deque(jobs), dict[Connection, _Running]()
    try:
        while waiting or running:
            while (job := _next(waiting, [one.job for one in running.values()])) is not None:
                waiting.remove(job)
                on_begin(job)
                seat = take_seat(job)
                connection = seat.begin(mode)
                if connection is None:
                    yield job, seat, _here(seat, mode, job.budget_s)
                else:
                    limit = job.budget_s if seat.is_loaded else load_s
                    running[connection] = _Running(job, seat, time.monotonic(), limit)
            soonest = min((one.left_s for one in running.values()), default=0.0)
            for ended in wait(list(running), max(0.0, soonest)) if running else ():
                one = running[ended]  # type: ignore[index]
                was_loaded = one.seat.is_loaded
                try:
                    outcome: Ready | Refusal | None = one.seat.advance()
                except Failed as error:
                    outcome = Refusal(error.status, error.reason)
                except Unloadable:
                    del running[ended]  # type: ignore[arg-type]
                    waiting.appendleft(one.job)
                    continue
                if outcome is not None:
                    del running[ended]  # type: ignore[arg-type]
                    yield one.job, one.seat, outcome
                elif one.seat.is_loaded and not was_loaded:
                    one.since, one.limit_s = time.monotonic(), one.job.budget_s
            for connection, one in list(running.items()):
                if one.left_s < 0:
                    del running[connection]
                    one.seat.close()
                    yield one.job, one.seat, _late(one.limit_s)
    finally:
        for one in running.values():
            one.seat.close()


def _next(waiting: Iterable[Job], running: Sequence[Job]) -> Job | None:
    """The first of those that wait that can be prepared beside those that run."""
    return next((job for job in waiting if _has_room(job, running)), None)


def _has_room(job: Job, running: Sequence[Job]) -> bool:
    if job.beside == "nothing" or any(other.beside == "nothing" for other in running):
        return not running
    if job.beside == "others" and any(other.beside == "others" for other in running):
        return False
    return len(running) < at_once()


def _late(limit_s: float) -> Refusal:
    return Refusal("timeout", f"not ready after its budget, {limit_s:.3g} s")


def _here(seat: Seat, mode: Mode, limit_s: float) -> Ready | Refusal:
    try:
        return seat.prepare(mode, limit_s)
    except Failed as error:
        return _late(limit_s) if error.status == "timeout" else Refusal(error.status, error.reason)
