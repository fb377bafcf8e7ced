"""Every way of running one case: built, passed through the parity gate, and only then timed, interleaved."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..case import Mode
from ..parity.examination import Examination
from ..release import release
from ..report.records import Cell, Parity, Status
from ..report.wording import count
from .entrants import LONGEST_CALLS, Entrant, contenders
from .preparation import Job, prepared
from .rows import Row, all_rows
from .runner import Ready, Refusal
from .seats import Failed, Seat
from .timing import MOST_REPEATS, Timed, interleave

LEAST_PATIENCE_S = 20.0
LOAD_S = 90.0  # for a process to start and to load the case
KEPT_BYTES = 150 * 2**20  # a process that held more is not kept for the next mode
LATE_ROUNDS = 2  # after which a row that leads by a single process is left at that
SECONDARY_S = 0.05  # of calls for each of the secondary times, where not even three take as long
SECONDARY_CALLS = (3, 100)  # at least, and at most
LONG_CALL_S = 0.03  # of which two are made at most
LONGEST_STEADY_S = 0.05  # a call beyond which the wait at its end is nothing


@dataclass(frozen=True)
class Budget:
    """Seconds a cell: `prepare_s` for build, compilation, warm-up and gate; `time_s` for timed calls.

    With `is_patient` a row has `prepare_s` also where its case says otherwise (`Case.patience`): a user asked for it.
    Else it has `slowness` times as much as either says.
    """

    prepare_s: float = 30.0
    time_s: float = 0.4
    is_patient: bool = False
    slowness: float = 1.0

    def with_patience(self, patience_s: float | None) -> float:
        """Seconds to prepare a row for which its case has `patience_s`."""
        if self.is_patient:
            return self.prepare_s
        return self.slowness * (self.prepare_s if patience_s is None else patience_s)


class CaseBench:
    """The speed cells of one case.

    Args:
      exam: its examination; the answers of its judge are the gate.
      verdicts: the parity of this same run, without which no port gets a number.
      rows: names of the rows that are wanted.
      modes: that are timed.
      named: whether the run names them, and so wants those too that are left out otherwise.
      budget: of each cell.
      processes: that each contender runs in; None for two, where the second does not take long to prepare.
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
        modes: Sequence[Mode],
        named: bool,
        budget: Budget,
        processes: int | None,
        batch: int | None = None,
        seat: Callable[[Row, str], Seat],
        undisturbed: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ):
        self.exam, self.case = exam, exam.case
        self.verdicts = {(p.side, p.variant): p for p in verdicts}
        self._modes = modes
        self.rows = [row for row in all_rows() if row.name in rows]
        self.budget, self._named, self._processes, self._batch = budget, named, processes, batch
        self._open, self.undisturbed = seat, undisturbed
        self._seats: dict[tuple[str, str], Seat] = {}
        self._standing: Callable[[], list[Cell]] | None = None
        self.notes: list[str] = []

    def cells(self, on_row: Callable[[str], None] = lambda _: None) -> Iterator[list[Cell]]:
        """The cells of each mode together, since they are timed together. `on_row` hears what is being prepared.

        Ctrl-C is raised after the cells of the mode that it breaks off, of which `notes` then tell: those stand once
        every row has been timed in one process. Before that, the fastest may be among those that have not.
        """
        mode: Mode | None = None
        try:
            for mode in self._modes:
                self._standing = None
                yield self._mode(mode, on_row)
                mode = None
        except KeyboardInterrupt:
            if mode is not None:
                yield self._broken_off(mode)
            raise
        finally:
            for seat in self._seats.values():
                seat.close()

    def _mode(self, mode: Mode, on_row: Callable[[str], None]) -> list[Cell]:
        release()  # what was compiled before counts against torch.compile's limit, too
        cells: dict[tuple[str, str], Cell] = {}
        jobs: list[Job] = []
        for row in self.rows:
            for variant in self.case.references if row.framework == "torch" else self.case.models:
                refusal = self._refusal(row, variant, mode)
                if refusal is None:
                    jobs.append(self._job(row, variant, self._budget_of(row, variant, mode)))
                else:
                    cells[row.name, variant] = self._refused_cell(row, variant, mode, refusal)
        jobs.sort(key=self._place)  # a stable sort
        entrants: list[Entrant] = []
        for job, seat, outcome in prepared(jobs, mode, self._seat, self._announce(mode, "", on_row), LOAD_S):
            if isinstance(outcome, Ready):
                entrants.append(Entrant(job.row, job.variant, outcome, [seat]))
            else:
                cells[job.row.name, job.variant] = self._refused_cell(job.row, job.variant, mode, outcome)
                spoilt = job.row.needs_cuda and outcome.status == "unsupported"  # by a capture that was broken off
                if outcome.status in ("timeout", "failed") or spoilt:
                    self._dismiss(job.row, job.variant)
        order = [(row.name, v) for row in self.rows for v in (*self.case.references, *self.case.models)]
        entrants.sort(key=lambda entrant: order.index((entrant.row.name, entrant.variant)))
        on_row(f"{self.case.name} {mode}: timing {len(entrants)} rows in turn")
        with self.undisturbed():
            self._time([entrant.start_timing(self.budget.with_patience(None)) for entrant in entrants])
            self._standing = functools.partial(self._recorded, cells, entrants, order, mode)
            further = self._worth_repeating(entrants)
            done = [entrant for entrant in entrants if entrant not in further]
            self._secondary(done)  # before there are more processes
        self._make_room(done)
        self._repeat(further, mode, on_row, unexamined=further)
        tried = set(further)
        for _ in range(LATE_ROUNDS):  # who leads now has to show it in as many processes
            further = [entrant for entrant in self._worth_repeating(entrants) if entrant not in tried]
            tried.update(further)
            self._repeat(further, mode, on_row)
        return self._recorded(cells, entrants, order, mode)

    def _recorded(
        self,
        refused: Mapping[tuple[str, str], Cell],
        entrants: Sequence[Entrant],
        order: Sequence[tuple[str, str]],
        mode: Mode,
    ) -> list[Cell]:
        timed = {(entrant.row.name, entrant.variant): self._timed_cell(entrant, mode) for entrant in entrants}
        cells = {**refused, **timed}
        return [cells[key] for key in dict.fromkeys(order) if key in cells]

    def _broken_off(self, mode: Mode) -> list[Cell]:
        """What stands of a mode whose rows were still being prepared or timed."""
        if self._standing is None:
            why = "the fastest may be among the rows that had no time yet"
            self.notes.append(f"{mode}: interrupted before every row had been timed, and nothing of it is kept: {why}")
            return []
        self.notes.append(
            f"{mode}: interrupted after every row had been timed in a process: what another one, and a look at memory "
            "and launches, would have told may be missing"
        )
        return self._standing()

    def _worth_repeating(self, entrants: Sequence[Entrant]) -> list[Entrant]:
        """The contenders, where the run does not want one process alone, nor a second one takes too long."""
        if self._processes == 1:
            return []
        found = contenders(entrants)
        return [e for e in found if self._processes is not None or e.ready.first_s < e.row.again_s]

    def _repeat(
        self,
        further: Sequence[Entrant],
        mode: Mode,
        on_row: Callable[[str], None],
        unexamined: Sequence[Entrant] = (),
    ) -> None:
        """Times these in the further processes that they are to have, and last the `unexamined` by the other clocks."""
        if not further:
            return
        for left in reversed(range((self._processes or 2) - 1)):
            added = self._added_processes(further, mode, on_row)
            with self.undisturbed():
                self._time([entrant.start_timing(self.budget.with_patience(None)) for entrant in added])
                if not left:
                    self._secondary(unexamined)
        self._make_room(further)

    def _refusal(self, row: Row, variant: str, mode: Mode) -> Refusal | None:
        """Why a row is not even tried."""
        on_cpu = self.exam.device != "gpu"
        if row.needs_cuda and on_cpu:
            return Refusal("unavailable", "needs a CUDA device, and this run is on the CPU")
        if row.left_out and on_cpu and not self._named and mode not in row.kept_in:
            return Refusal("unavailable", f"left out on a CPU: {row.left_out}; ask for it with --row {row.name}")
        if self.exam.judge.missing_weights:
            return Refusal("unavailable", self.exam.judge.missing_weights)
        blame = self._not_equal(row, variant)
        return None if blame is None else Refusal("wrong", blame)

    def _job(self, row: Row, variant: str, budget_s: float) -> Job:
        if self.exam.device == "gpu":
            return Job(row, variant, budget_s, beside="others" if row.framework == "jax" else "anything")
        alone = row.fills_processors or row.framework == "torch"
        return Job(row, variant, budget_s, beside="nothing" if alone else "anything")

    def _place(self, job: Job) -> int:
        """When it begins: on a CPU last what keeps all processors busy, on a GPU first what takes longest."""
        return job.row.fills_processors if self.exam.device == "cpu" else not job.row.is_slow_to_compile

    def _budget_of(self, row: Row, variant: str, mode: Mode) -> float:
        """Seconds to prepare a row. What a case says of its patience is of a CPU."""
        patience_s = self.case.patience_with(row.name, variant, mode) if self.exam.device == "cpu" else None
        return self.budget.with_patience(patience_s)

    def _seat(self, job: Job) -> Seat:
        """Where a job runs: what it ran in for the mode before, as long as that is there."""
        key = job.row.name, job.variant
        if key not in self._seats or self._seats[key].is_closed:
            self._seats[key] = self._open(job.row, job.variant)
        return self._seats[key]

    def _announce(self, mode: Mode, where: str, on_row: Callable[[str], None]) -> Callable[[Job], None]:
        return lambda job: on_row(f"{self.case.name} {mode}: {job.row.name} {job.variant}{where}")

    def _refused_cell(self, row: Row, variant: str, mode: Mode, refusal: Refusal) -> Cell:
        return self._cell(row, variant, mode, refusal.status, refusal.reason, error_ratio=refusal.error_ratio)

    def _dismiss(self, row: Row, variant: str) -> None:
        seat = self._seats.pop((row.name, variant), None)
        if seat is not None:
            seat.close()

    def _added_processes(self, entrants: Sequence[Entrant], mode: Mode, on_row: Callable[[str], None]) -> list[Entrant]:
        """Those that got a fresh process, which finds what the first one compiled on disk, and passes the gate too."""
        by_name = {(entrant.row.name, entrant.variant): entrant for entrant in entrants}
        jobs = [self._job(entrant.row, entrant.variant, self.budget.with_patience(None)) for entrant in entrants]
        announce = self._announce(mode, " in another process", on_row)
        added = []
        for job, seat, outcome in prepared(jobs, mode, lambda job: self._open(job.row, job.variant), announce, LOAD_S):
            if isinstance(outcome, Ready):
                entrant = by_name[job.row.name, job.variant]
                entrant.seats.append(seat)
                entrant.warm_start_s = outcome.first_s
                added.append(entrant)
            else:
                seat.close()
        return added

    def _make_room(self, entrants: Sequence[Entrant]) -> None:
        """Ends what the next mode does not need: further processes, and those that hold much."""
        for entrant in entrants:
            for seat in entrant.seats[1:]:
                seat.close()
            if entrant.memory is None or (entrant.memory.peak_bytes or 0) > KEPT_BYTES:
                self._dismiss(entrant.row, entrant.variant)

    def _time(self, competitors: Sequence[Timed]) -> None:
        more = max(1.0, self.budget.time_s / Budget.time_s)
        interleave(competitors, budget_s=self.budget.time_s, repeats=math.ceil(more * MOST_REPEATS))
        for one in competitors:
            one.is_whole = True

    def _secondary(self, entrants: Sequence[Entrant]) -> None:
        """Enqueue and steady-state times, then memory and launches, which may disturb."""
        for entrant in entrants:
            if entrant.timed[0].error is not None or not entrant.samples:
                continue
            seat, a_call = entrant.seats[0], entrant.median * entrant.row.steps_per_call
            fewest, most = SECONDARY_CALLS
            calls = 2 if a_call > LONG_CALL_S else min(most, max(fewest, math.ceil(SECONDARY_S / a_call)))
            patience = max(LEAST_PATIENCE_S, LONGEST_CALLS * calls * a_call)
            with contextlib.suppress(Failed):
                is_short = entrant.timed[0].is_short
                entrant.enqueue_s = seat.enqueue(calls, is_short, patience)
                if a_call < LONGEST_STEADY_S:
                    entrant.steady_s = seat.steady(calls, is_short, patience)
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
        several = len([one for one in entrant.whole if one.samples]) > 1
        return self._cell(
            row,
            variant,
            mode,
            "ok",
            reason=_left_out(ready.unprinted),
            unprinted=ready.unprinted,
            error_ratio=ready.error_ratio,
            noisy=entrant.is_noisy,
            median_s=entrant.median,
            iqr_s=float(high - low),
            p95_s=float(np.percentile(samples, 95)),
            samples_s=samples,
            calls_per_sample=entrant.timed[0].calls_per_sample,
            process_of=[i for i, one in enumerate(entrant.whole) for _ in one.samples] if several else [],
            steps_per_call=steps,
            enqueue_s=_over(entrant.enqueue_s, steps),
            steady_s=_over(entrant.steady_s, steps),
            compile_s=ready.first_s,
            cold=replace(ready.cold, warm_start_s=entrant.warm_start_s),
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


def _over(seconds: float | None, steps: int) -> float | None:
    return None if seconds is None else seconds / steps


def _left_out(unprinted: int) -> str:
    return f"it leaves out {count(unprinted, 'line')} that the reference prints in a call" if unprinted else ""
