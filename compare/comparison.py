"""One run over cases: parity, then speed, every finished cell saved at once."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from graphmode.weights import WeightsError

from . import interrupt
from .ahead import Ahead, Lost, can_go_ahead
from .case import Case, CaseError
from .draw import random_inputs, signature
from .findings import Findings
from .parity.examination import Examination
from .release import release
from .report.results import CaseInfo, Cell, Parity, Results
from .speed.bench import Budget, CaseBench
from .speed.environment import choose_device, describe
from .speed.rooms import Rooms, Seats
from .speed.rows import selected

QUICK = Budget(prepare_s=15.0, time_s=0.25)


@dataclass(frozen=True)
class Plan:
    """What a run does.

    Attributes:
      speed: whether to time, after the parity check that every number needs.
      rows: patterns of row names; all where empty.
      device: `"auto"`, `"cpu"` or `"gpu"`.
      seed: of weights, inputs and cotangents.
      quick: shorter budgets.
      budget: of each cell; None for the usual one.
      prepare_s: the part of the budget before the first timed call, where it is to be another.
      processes: that each contender for the fastest row runs in; times differ from process to process.
      isolate: whether each row runs in a process of its own, where the system can fork: what hangs or crashes costs
        its own cell. In one process a debugger can reach it.
    """

    speed: bool = True
    rows: tuple[str, ...] = ()
    device: str = "auto"
    seed: int = 0
    quick: bool = False
    budget: Budget | None = None
    prepare_s: float | None = None
    processes: int = 2
    isolate: bool = True

    @property
    def cell_budget(self) -> Budget:
        budget = self.budget or (QUICK if self.quick else Budget())
        return budget if self.prepare_s is None else replace(budget, prepare_s=self.prepare_s)


@dataclass
class Listener:
    """What a front end hears of a run; each hook does nothing unless set."""

    on_case: Callable[[Case], None] = field(default=lambda case: None)
    on_step: Callable[[str], None] = field(default=lambda text: None)
    on_parity: Callable[[Parity], None] = field(default=lambda parity: None)
    on_cells: Callable[[list[Cell]], None] = field(default=lambda cells: None)
    on_problem: Callable[[CaseInfo], None] = field(default=lambda info: None)


def run(
    cases: Iterable[Case],
    plan: Plan | None = None,
    *,
    listener: Listener | None = None,
    save_to: Path | None = None,
    locations: Sequence[str] = (),
) -> Results:
    """Compares the cases, one after the other.

    A case that cannot be compared as it is written does not end the run: it is recorded, and the next one follows.

    Args:
      cases: drawn one at a time.
      plan: what to do.
      listener: hears of progress.
      save_to: `results.json`, written after every verdict and every mode's cells: an interrupted run keeps them.
      locations: where another process finds each of the cases, `package.module:NAME` or `path/to/file.py:NAME`. With
        them, the parity of later cases is found by that process while earlier ones are prepared; on a CPU alone.

    Raises:
      DeviceError, RowError: for a device that is not there, a pattern that matches no row.
      KeyboardInterrupt: on Ctrl-C, at the next step at the latest, whatever a framework does with it.
    """
    heard = listener or Listener()
    with interrupt.remembered() as interrupted:

        def step(text: str) -> None:
            interrupted()
            heard.on_step(text)

        return _run(cases, plan or Plan(), replace(heard, on_step=step), save_to, locations)


def _run(
    cases: Iterable[Case],
    plan: Plan,
    listener: Listener,
    save_to: Path | None,
    locations: Sequence[str],
) -> Results:
    rows = selected(plan.rows)
    device = choose_device(plan.device)
    start = time.perf_counter()
    results = Results(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seed=plan.seed,
        quick=plan.quick,
        environment=describe(device),
    )

    def save() -> None:
        results.duration_s = time.perf_counter() - start
        if save_to is not None:
            results.save(save_to)

    save()
    # the first is at hand here before it could be there
    later = locations[1:] if plan.speed and device == "cpu" and can_go_ahead() else ()
    with contextlib.ExitStack() as stack:
        rooms = stack.enter_context(Rooms(isolate=plan.isolate, seed=plan.seed, device=device)) if plan.speed else None
        if rooms is not None and device == "cpu" and any(row.startswith("torch.compile") for row in rows):
            rooms.set_up_compilers()
        ahead = stack.enter_context(contextlib.closing(Ahead(later, seed=plan.seed, device=device))) if later else None
        for number, case in enumerate(cases):
            listener.on_case(case)
            location = locations[number] if number < len(locations) else ""
            try:
                found = _examine(case, plan, device, listener, ahead if number else None)
                verdicts = _judge(found, plan, results, listener, save)
                if rooms is not None:
                    with rooms.of(found.exam, verdicts, location=location, found=found.path) as seats:
                        undisturbed = ahead.paused if ahead else contextlib.nullcontext
                        _time(found.exam, verdicts, seats, plan, rows, results, listener, save, undisturbed)
                del found, verdicts
            except (CaseError, WeightsError) as error:
                info = CaseInfo(name=case.name, summary=case.summary, problem=str(error))
                results.cases = [*(c for c in results.cases if c.name != case.name), info]
                listener.on_problem(info)
                save()
            release()
    results.complete = True
    save()
    return results


@dataclass
class _Found:
    """A case's examination and verdicts; the file where they lie, if another process found them."""

    exam: Examination
    verdicts: Iterable[Parity]
    path: Path | None = None


def _examine(case: Case, plan: Plan, device: str, listener: Listener, ahead: Ahead | None) -> _Found:
    """Found by the process ahead or here."""
    listener.on_step(f"{case.name}: checking parity")
    if ahead is not None:
        with contextlib.suppress(Lost):
            path = ahead.findings()
            findings = Findings.read(path)
            exam = Examination(case, seed=plan.seed, device=device, truths=findings.truths)
            return _Found(exam, findings.verdicts, path)
    exam = Examination(case, seed=plan.seed, device=device)
    return _Found(exam, exam.verdicts())


def _judge(found: _Found, plan: Plan, results: Results, listener: Listener, save: Callable[[], None]) -> list[Parity]:
    """Records the case and its verdicts, each as soon as it is there."""
    case = found.exam.case
    shapes = signature(random_inputs(case, plan.seed, 0))
    parameters = found.exam.judge.parameters
    results.cases.append(CaseInfo(name=case.name, summary=case.summary, inputs=shapes, parameters=parameters))
    judged: list[Parity] = []
    for parity in found.verdicts:
        judged.append(parity)
        results.parity.append(parity)
        listener.on_parity(parity)
        save()
    return judged


def _time(
    exam: Examination,
    verdicts: list[Parity],
    seats: Seats,
    plan: Plan,
    rows: frozenset[str],
    results: Results,
    listener: Listener,
    save: Callable[[], None],
    undisturbed: Callable[[], contextlib.AbstractContextManager[object]],
) -> None:
    bench = CaseBench(
        exam,
        verdicts,
        rows=rows,
        named=bool(plan.rows),
        budget=plan.cell_budget,
        processes=plan.processes,
        seat=seats.open,
        undisturbed=undisturbed,
    )
    for cells in bench.cells(listener.on_step):
        results.cells += cells
        results.cases[-1] = msgspec.structs.replace(results.cases[-1], notes=list(seats.notes))
        listener.on_cells(cells)
        save()


def bench(case: Case, plan: Plan | None = None) -> Results:
    """Parity and speed of one case; `.cells` holds one record for each way of running it.

    Raises:
      CaseError, WeightsError: where the case cannot be compared as it is written.

    Example:
      >>> from graphmode.compare import bench
      >>> from graphmode.models import zoo
      >>> result = bench(zoo.load("scale_add"))
      >>> all(cell.median_s is None for cell in result.cells if cell.status != "ok")
      True
    """
    results = run([case], plan)
    if results.problems:
        raise CaseError(results.problems[0])
    return results
