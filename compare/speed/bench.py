"""Every way of running one case: built, passed through the parity gate, and only then timed, interleaved."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from ..case import Mode
from ..parity.examination import Examination
from ..release import release
from ..report.records import Cell, Launches, Memory, Parity, Status
from .rows import Row, all_rows
from .runner import Ready, Refusal
from .seats import Failed, Seat
from .timing import (
    FAR_BEHIND,
    LEAST_REPEATS,
    MOST_CALLS,
    NARROW,
    SHORTEST_SAMPLE_S,
    Timed,
    interleave,
    relative_width,
)

CONTENDERS = 2  # of each framework, at most: the rows that decide a comparison run in further processes
LONGEST_CALLS = 50  # times what a call took before, after which it hangs
LEAST_PATIENCE_S = 20.0
SECONDARY_S = 0.05  # of calls for each of the secondary times, where not even three take as long
SECONDARY_CALLS = (3, 100)  # at least, and at most
LONG_CALL_S = 0.2  # of which one is made


@dataclass(frozen=True)
class Budget:
    """Seconds a cell: `prepare_s` for build, compilation, warm-up and gate; `time_s` for timed calls."""

    prepare_s: float = 30.0
    time_s: float = 0.5


@dataclass
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
    def samples(self) -> list[float]:
        return [sample for one in self.timed for sample in one.samples]

    @property
    def median(self) -> float:
        return float(np.median(self.samples)) if self.samples else math.inf

    @property
    def is_noisy(self) -> bool:
        """Whether the median is not known to 5 %: within a process, or from one process to another."""
        medians = [one.median for one in self.timed if one.samples]
        apart = max(medians) / min(medians) - 1 if len(medians) > 1 else 0.0
        return len(self.samples) < LEAST_REPEATS or relative_width(self.samples) > NARROW or apart > NARROW


class CaseBench:
    """The speed cells of one case.

    Args:
      exam: its examination; the answers of its judge are the gate.
      verdicts: the parity of this same run, without which no port gets a number.
      rows: names of the rows that are wanted.
      named: whether the run names them, and so wants those too that are left out otherwise.
      budget: of each cell.
      processes: that each contender runs in.
      batch: the batch size of a sweep, None for the case's own inputs.
      seat: gives a row of a variant a place to run.
      undisturbed: a context in which nothing else of ours runs; rows are timed in it.
    """

    def __init__(
        self,
        exam: Examination,
        verdicts: list[Parity],
        *,
        rows: frozenset[str],
        named: bool,
        budget: Budget,
        processes: int,
        batch: int | None = None,
        seat: Callable[[Row, str, float], Seat],
        undisturbed: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ):
        self.exam, self.case = exam, exam.case
        self.verdicts = {(p.side, p.variant): p for p in verdicts}
        self.rows = [row for row in all_rows() if row.name in rows]
        self.budget, self._named, self._processes, self._batch = budget, named, processes, batch
        self._open, self.undisturbed = seat, undisturbed
        self._seats: dict[tuple[str, str], Seat] = {}

    def cells(self, on_row: Callable[[str], None] = lambda _: None) -> Iterator[list[Cell]]:
        """The cells of each mode together, since they are timed together. `on_row` hears what is being prepared."""
        try:
            for mode in self.case.modes:
                yield self._mode(mode, on_row)
        finally:
            for seat in self._seats.values():
                seat.close()

    def _mode(self, mode: Mode, on_row: Callable[[str], None]) -> list[Cell]:
        cells: dict[tuple[str, str], Cell] = {}
        entrants: list[Entrant] = []
        release()  # what was compiled before counts against torch.compile's limit, too
        for row in self.rows:
            for variant in self.case.references if row.framework == "torch" else self.case.models:
                on_row(f"{self.case.name} {mode}: {row.name} {variant}")
                outcome = self._prepare(row, variant, mode)
                if isinstance(outcome, Entrant):
                    entrants.append(outcome)
                else:
                    cells[row.name, variant] = self._cell(
                        row, variant, mode, outcome.status, outcome.reason, error_ratio=outcome.error_ratio
                    )
        on_row(f"{self.case.name} {mode}: timing {len(entrants)} rows in turn")
        with self.undisturbed():
            self._time([entrant.start_timing(self.budget.prepare_s) for entrant in entrants])
        for _ in range(self._processes - 1):
            added = []
            for entrant in _contenders(entrants):
                on_row(f"{self.case.name} {mode}: {entrant.row.name} {entrant.variant} in another process")
                if self._add_process(entrant, mode):
                    added.append(entrant.start_timing(self.budget.prepare_s))
            with self.undisturbed():
                self._time(added)
        with self.undisturbed():
            for entrant in entrants:
                self._secondary(entrant)
        for entrant in entrants:
            cells[entrant.row.name, entrant.variant] = self._timed_cell(entrant, mode)
            for seat in entrant.seats[1:]:
                seat.close()
        order = [(row.name, v) for row in self.rows for v in (*self.case.references, *self.case.models)]
        return [cells[key] for key in dict.fromkeys(order) if key in cells]

    def _prepare(self, row: Row, variant: str, mode: Mode) -> Entrant | Refusal:
        """A row that is ready to be timed, or why it is not."""
        if row.needs_cuda and self.exam.device != "gpu":
            return Refusal("unavailable", "needs a CUDA device, and this run is on the CPU")
        if row.left_out and self.exam.device == "cpu" and not self._named:
            return Refusal("unavailable", f"left out on a CPU: {row.left_out}; ask for it with --row {row.name}")
        if (blame := self._not_equal(row, variant)) is not None:
            return Refusal("wrong", blame)
        budget = min(self.budget.prepare_s, self.case.patience_with(row.name, variant) or math.inf)
        start = time.perf_counter()
        try:
            seat = self._seats.get((row.name, variant))
            if seat is None:
                seat = self._seats[row.name, variant] = self._open(row, variant, self.budget.prepare_s)
            ready = seat.prepare(mode, budget)
        except Failed as error:
            self._dismiss(row, variant)
            if error.status == "timeout":
                spent = time.perf_counter() - start
                return Refusal("timeout", f"not ready after {spent:.0f} s; its budget is {budget:g} s")
            return Refusal(error.status, error.reason)
        if isinstance(ready, Refusal):
            return ready
        return Entrant(row, variant, ready, [seat])

    def _dismiss(self, row: Row, variant: str) -> None:
        seat = self._seats.pop((row.name, variant), None)
        if seat is not None:
            seat.close()

    def _add_process(self, entrant: Entrant, mode: Mode) -> bool:
        """A fresh process for the row, which finds what the first one compiled on disk; whether it is ready, too."""
        with contextlib.suppress(Failed):
            seat = self._open(entrant.row, entrant.variant, self.budget.prepare_s)
            ready = seat.prepare(mode, self.budget.prepare_s)
            if isinstance(ready, Ready):
                entrant.seats.append(seat)
                entrant.warm_start_s = ready.first_s
                return True
            seat.close()
        return False

    def _time(self, competitors: Sequence[Timed]) -> None:
        interleave(competitors, budget_s=self.budget.time_s)

    def _secondary(self, entrant: Entrant) -> None:
        """Enqueue and steady-state times, then memory and launches, which may disturb."""
        if entrant.timed[0].error is not None or not entrant.samples:
            return
        seat, a_call = entrant.seats[0], entrant.median * entrant.row.steps_per_call
        fewest, most = SECONDARY_CALLS
        calls = 1 if a_call > LONG_CALL_S else min(most, max(fewest, math.ceil(SECONDARY_S / a_call)))
        patience = max(LEAST_PATIENCE_S, LONGEST_CALLS * calls * a_call)
        with contextlib.suppress(Failed):
            entrant.enqueue_s = seat.enqueue(0, calls, patience)
            entrant.steady_s = seat.steady(calls, patience)
            entrant.memory, entrant.launches = seat.examined(patience)

    def _not_equal(self, row: Row, variant: str) -> str | None:
        """Why the function itself is not the reference's, by the parity check of this run; None where it is."""
        if row.framework == "torch" and variant == self.exam.judge.name:
            return None
        parity = self.verdicts.get((row.framework, variant))
        if parity is None:
            return "its parity was not checked in this run"
        if parity.passed:
            return None
        verdicts = (("not equal to the reference", parity.equal), ("not precise", parity.precise))
        return parity.error or "the parity check found it " + " and ".join(word for word, ok in verdicts if not ok)

    def _timed_cell(self, entrant: Entrant, mode: Mode) -> Cell:
        row, variant, ready, steps = entrant.row, entrant.variant, entrant.ready, entrant.row.steps_per_call
        error = entrant.timed[0].error
        if error is not None or not entrant.samples:
            status: Status = error.status if isinstance(error, Failed) else "failed"
            self._dismiss(row, variant)
            return self._cell(row, variant, mode, status, str(error or "no repeat was finished"))
        samples = entrant.samples
        low, high = np.percentile(samples, [25, 75])
        several = len([one for one in entrant.timed if one.samples]) > 1
        return self._cell(
            row,
            variant,
            mode,
            "ok",
            error_ratio=ready.error_ratio,
            noisy=entrant.is_noisy,
            median_s=entrant.median,
            iqr_s=float(high - low),
            p95_s=float(np.percentile(samples, 95)),
            samples_s=samples,
            calls_per_sample=entrant.timed[0].calls_per_sample,
            process_of=[i for i, one in enumerate(entrant.timed) for _ in one.samples] if several else [],
            steps_per_call=steps,
            enqueue_s=_over(entrant.enqueue_s, steps),
            steady_s=_over(entrant.steady_s, steps),
            compile_s=ready.first_s,
            cold=msgspec.structs.replace(ready.cold, warm_start_s=entrant.warm_start_s),
            memory=entrant.memory,
            launches=entrant.launches,
        )

    def _cell(self, row: Row, variant: str, mode: Mode, status: Status, reason: str = "", **measured: Any) -> Cell:
        equal: bool | None = None
        if row.framework == "jax" or (row.name == "torch.eager" and variant != self.exam.judge.name):
            parity = self.verdicts.get((row.framework, variant))
            equal = parity.equal if parity is not None else None
        elif row.name == "torch.eager":
            equal = True
        return Cell(
            case=self.case.name,
            variant=variant,
            row=row.name,
            mode=mode,
            device=self.exam.device,
            dtype=self.exam.dtype,
            status=status,
            reason=reason,
            expected=self.case.expectation(row.name, variant) if status != "ok" else None,
            equal=equal,
            batch=self._batch,
            **measured,
        )


def _competitor(seat: Seat, row: Row, warm_s: float, least_patience_s: float) -> Timed:
    def patience(calls: int) -> float:
        return max(least_patience_s, LONGEST_CALLS * calls * warm_s)

    is_short = warm_s < SHORTEST_SAMPLE_S
    return Timed(
        take=lambda offset, calls: seat.sample(offset, calls, is_short, patience(calls)),
        calibrate=lambda: seat.calibrated(SHORTEST_SAMPLE_S, MOST_CALLS, patience(MOST_CALLS)),
        warm_s=warm_s,
        steps_per_call=row.steps_per_call,
    )


def _over(seconds: float | None, steps: int) -> float | None:
    return None if seconds is None else seconds / steps


def _contenders(entrants: Sequence[Entrant]) -> list[Entrant]:
    """Of each framework the rows that are fastest, or nearly so."""
    found: list[Entrant] = []
    for framework in ("torch", "jax"):
        mine = sorted((e for e in entrants if e.row.framework == framework and e.samples), key=lambda e: e.median)
        found += [e for e in mine[:CONTENDERS] if e.median <= FAR_BEHIND * mine[0].median]
    return found
