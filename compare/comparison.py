"""One run over cases: parity, then speed, every finished cell saved at once."""

from __future__ import annotations

import contextlib
import datetime
import functools
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graphmode.dispatch import dispatch_inline
from graphmode.vectors import use_wide_vectors
from graphmode.weights import WeightsError

from . import interrupt
from .ahead import Ahead, Lost
from .case import MODES, Case, CaseError, Mode
from .draw import random_inputs, signature
from .dtypes import check_dtype
from .early_exit import LeftEarly
from .errors import describe_briefly, line_of
from .findings import Findings
from .functional_dropout import functional_dropout_off
from .locate import absolute
from .parity.certificate import certificate, certify
from .parity.examination import Examination
from .plan import QUICK, Listener, Plan
from .release import release
from .report.certificates import CaseCertificate
from .report.ratios import groups
from .report.records import CaseInfo, Cell, Parity
from .report.results import Results, ResultsError
from .speed.bench import Budget, CaseBench
from .speed.environment import choose_device, describe
from .speed.forkserver import Died
from .speed.pace import slowness
from .speed.rooms import Rooms
from .speed.rows import selected
from .speed.turn import taken
from .sweep import narrowed, resized

logger = logging.getLogger(__name__)


def run(
    cases: Iterable[Case],
    plan: Plan | None = None,
    *,
    listener: Listener | None = None,
    save_to: Path | None = None,
    locations: Sequence[str] = (),
    refused: Mapping[str, str] | None = None,
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
      refused: what was asked for and is no case, with the problem of each: recorded before the first case.

    Raises:
      DeviceError, DtypeError, RowError: for a device or dtype that is not there, a pattern that matches no row.
      KeyboardInterrupt: on Ctrl-C, at the next step at the latest, whatever a framework does with it.
    """
    heard = listener or Listener()
    with interrupt.remembered() as interrupted:

        def step(text: str) -> None:
            interrupted()
            heard.on_step(text)

        prepared = _Run(plan or Plan(), replace(heard, on_step=step), save_to, locations)
        for name, problem in (refused or {}).items():
            prepared.refuse(CaseInfo(name=name, summary="", problem=problem))
        return prepared.over(cases)


class _Run:
    """What the steps of one run share."""

    def __init__(self, plan: Plan, listener: Listener, save_to: Path | None, locations: Sequence[str]):
        self.plan, self.listener = plan, listener
        self.rows = selected(plan.rows)
        dispatch_inline()
        use_wide_vectors()
        self.device = choose_device(plan.device)
        for dtype in plan.dtypes:
            check_dtype(dtype, self.device)
        for mode in plan.modes:
            if mode not in MODES:
                raise CaseError(f"--mode is {mode!r}; choose from {', '.join(MODES)}")
        self._save_to, self._locations = save_to, locations
        self._start = time.perf_counter()
        self.results = Results(
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            seed=plan.seed,
            quick=plan.quick,
            environment=describe(self.device),
        )
        self._rooms: Rooms | None = None
        self._ahead: Ahead | None = None
        self._is_surveyed = False
        self._certified: list[CaseCertificate] = []

    def over(self, cases: Iterable[Case]) -> Results:
        self._save()
        with contextlib.ExitStack() as stack:
            if self.plan.speed:
                self._rooms = stack.enter_context(
                    Rooms(isolate=self.plan.isolate, seed=self.plan.seed, device=self.device)
                )
                if self.device == "cpu" and any(row.startswith("torch.compile") for row in self.rows):
                    self._rooms.set_up_compilers()
                # the first is at hand here before it could be there
                later = [(absolute(location), dtype) for location in self._locations for dtype in self.plan.dtypes][1:]
                if later and self.device == "cpu" and self._rooms.server is not None:
                    with contextlib.suppress(Died):
                        self._ahead = Ahead(
                            self._rooms.server, later, seed=self.plan.seed, device=self.device, modes=self.plan.modes
                        )
                        stack.enter_context(contextlib.closing(self._ahead))
            took: dict[str, float] = {}
            for number, case in enumerate(cases):
                begun = time.perf_counter()
                within = self.plan.within_s
                if number and within is not None and begun - self._start + self._likely_s(case, took) > within:
                    self.results.left_out.append(case.name)
                    continue
                self.listener.on_case(case)
                before = len(self.results.cases)
                try:
                    self._case(case.training(self.plan.modes), number)
                except ResultsError:  # the disk is full: no fault of the case, and nothing further could be kept
                    raise
                # an exit in a user's code would end the run as if all were well
                except (Exception, SystemExit) as error:
                    told = isinstance(error, CaseError | WeightsError | SystemExit)
                    if not told:  # nobody foresaw it, so where it arose is needed; the other cases go on
                        logger.exception("%s: cannot be compared", case.name)
                    problem = str(error) if told else describe_briefly(error)
                    if isinstance(error, SystemExit):
                        problem = f"it cannot be compared: {_left(error)}{line_of(error)}"
                    del self.results.cases[before:]
                    self.refuse(CaseInfo(name=case.name, summary=case.summary, problem=problem))
                took[case.name] = time.perf_counter() - begun
        self.results.complete = True
        self._save()
        return self.results

    def _likely_s(self, case: Case, took: Mapping[str, float]) -> float:
        """What a case is likely to need, after what others took."""
        usual = self.plan.usual_s
        known = [name for name in took if name in usual]
        if case.name not in usual or not known:
            return max(took.values())
        return usual[case.name] * sum(took[name] for name in known) / sum(usual[name] for name in known)

    def refuse(self, info: CaseInfo) -> None:
        """Records what cannot be compared."""
        self.results.cases.append(info)
        self.listener.on_problem(info)
        self._save()

    def _case(self, case: Case, number: int) -> None:
        location = self._locations[number] if number < len(self._locations) else ""
        for i, dtype in enumerate(self.plan.dtypes):
            with functional_dropout_off():
                exam, found, path = self._examined(case, dtype, number * len(self.plan.dtypes) + i)
                if i == 0:
                    shapes = signature(random_inputs(case, self.plan.seed, 0))
                    parameters = exam.judge.parameters
                    self.results.cases.append(
                        CaseInfo(name=case.name, summary=case.summary, inputs=shapes, parameters=parameters)
                    )
                    self._note(self._left_out(case))
                verdicts = self._recorded(found)
            self._certified.append(certify(exam, verdicts))
            self.results.certificate = certificate(self._certified, self.device)
            if i == 0:
                self._trained(case, dtype)
                self._shrunk(case, verdicts, location, dtype)
            cells = self._timed(exam, verdicts, location, path) if self.plan.speed else []
            if self.plan.speed and self.plan.sweep and case.sweep is not None:
                self._sweep(exam, verdicts, location, cells)
            del exam, found, verdicts
            release()

    def _left_out(self, case: Case) -> Iterable[str]:
        """What the plan names and the case has not, and a name that is not its own."""
        if sum(other.name == case.name for other in self.results.cases) > 1:
            yield "another case of this run has the same name, and pages show both as one: give each its own"
        if self.plan.steps and case.optimizer is None:
            yield "not trained in lockstep, since it has no `optimizer`"
        if not self.plan.speed:
            return
        if self.plan.sweep and case.sweep is None:
            yield "no batch sweep, since the case has no `sweep`"
        for mode in self.plan.modes:
            if mode not in case.modes:
                why = ", since it has no `optimizer`" if mode == "train_step" else ""
                yield f"not timed in {mode}, which is none of the case's modes{why}"

    def _examined(self, case: Case, dtype: str, place: int) -> tuple[Examination, Iterable[Parity], Path | None]:
        """The examination and the verdicts, and the file where they lie if the process ahead found them; in the run's
        order of cases and dtypes this is the one at `place`, and that process begins after the first."""
        plan = self.plan
        self.listener.on_step(f"{case.name}: checking parity")
        if self._ahead is not None and place:
            with contextlib.suppress(Lost):
                path = self._ahead.findings(place - 1)
                findings = Findings.read(path)
                exam = Examination(case, seed=plan.seed, dtype=dtype, device=self.device, truths=findings.truths)
                return exam, findings.verdicts, path

        def on_stage(stage: str) -> None:
            self.listener.on_step(f"{case.name}: {stage}")

        exam = Examination(
            case, seed=plan.seed, dtype=dtype, device=self.device, inside=plan.modules, on_stage=on_stage
        )
        return exam, exam.verdicts(), None

    def _recorded(self, found: Iterable[Parity]) -> list[Parity]:
        """The verdicts, each recorded as soon as it is there."""
        verdicts: list[Parity] = []
        for parity in found:
            verdicts.append(parity)
            self.results.parity.append(parity)
            self.listener.on_parity(parity)
            self._save()
        return verdicts

    def _trained(self, case: Case, dtype: str) -> None:
        """Training in lockstep, where the plan has it."""
        from .parity.lockstep.run import lockstep

        for variant in case.models if self.plan.steps and case.optimizer is not None else ():
            self.listener.on_step(f"{case.name}: training in lockstep")
            result = lockstep(case, steps=self.plan.steps, seed=self.plan.seed, variant=variant, dtype=dtype)
            self.results.lockstep.append(result)
            self.listener.on_told(str(result))
            self._save()

    def _shrunk(self, case: Case, verdicts: list[Parity], location: str, dtype: str) -> None:
        """A script of each port that is not equal, where the plan has a folder for them."""
        from .parity.shrink.run import shrink

        folder = self.plan.shrink
        if folder is None:
            return
        wrong = [p.variant for p in verdicts if p.side == "jax" and not p.equal]
        if not wrong:
            self.listener.on_told(f"{case.name}: nothing to shrink, every port is equal")
        for variant in wrong:
            self.listener.on_step(f"{case.name}: shrinking")
            budget = QUICK.prepare_s if self.plan.quick else 60.0
            try:
                found = shrink(
                    case,
                    seed=self.plan.seed,
                    budget_s=budget,
                    variant=variant,
                    location=location or None,
                    dtype=dtype,
                )
                paths = found.save(folder / variant if len(wrong) > 1 else folder)
            except CaseError as error:
                self._note([f"not shrunk: {error}"])
                self.listener.on_told(f"not shrunk: {error}")
                continue
            self.listener.on_told("\n".join([str(found), *(f"  wrote {path}" for path in paths)]))

    def _timed(
        self,
        exam: Examination,
        verdicts: list[Parity],
        location: str,
        found: Path | None = None,
        *,
        size: int | None = None,
        rows: frozenset[str] | None = None,
    ) -> list[Cell]:
        assert self._rooms is not None
        timed: list[Cell] = []
        modes = exam.case.timed_modes(self.plan.modes)
        exam.ask_timed(modes)
        with self._rooms.of(exam, verdicts, location=location, found=found, size=size) as seats:
            bench = CaseBench(
                exam,
                verdicts,
                rows=self.rows if rows is None else rows,
                modes=modes,
                named=bool(self.plan.rows),
                budget=self._budget,
                processes=1 if size is not None else self.plan.contender_processes,
                batch=size,
                seat=seats.open,
                undisturbed=self._undisturbed,
            )
            for cells in bench.cells(self.listener.on_step):
                timed += cells
                self.results.cells += cells
                self._note([*seats.notes, *bench.notes])
                self._save()
                self.listener.on_cells(cells)
            self._work(exam, modes, size)
            if self.plan.floors and not self._is_surveyed:
                self._is_surveyed = True
                self.listener.on_step("measuring what this machine can do at best")
                with bench.undisturbed():
                    floors = self._rooms.floors(self.plan.dtypes)
                if isinstance(floors, str):
                    self._note([f"what this machine can do at best could not be measured: {floors}"])
                else:
                    self.results.floors = floors
                self._save()
        return timed

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """In which nothing else of ours runs, of another run on this machine neither."""
        with self._ahead.paused() if self._ahead else contextlib.nullcontext(), taken():
            yield

    @functools.cached_property
    def _budget(self) -> Budget:
        """That of the plan; what nobody named is as much longer as this machine is slower than usual."""
        budget = self.plan.cell_budget
        if budget.is_patient or self.plan.budget is not None:
            return budget
        self.listener.on_step("measuring how fast this machine compiles")
        with self._undisturbed():
            budget = replace(budget, slowness=slowness())
        self.results.environment.moment["time to prepare a row"] = f"{budget.slowness:.1f} times the usual"
        return budget

    def _work(self, exam: Examination, modes: Sequence[Mode], size: int | None) -> None:
        """The least that a step of each mode has to do, on what was timed."""
        timed = exam.case.check_inputs is not None
        for mode in modes:
            truths = (t for t in exam.truths if (t.question.mode, t.question.is_timed) == (mode, timed))
            try:
                self.results.work.append(exam.judge.least_work(mode, next(truths).question, size))
            except Exception as error:  # it is counted beside what the run is for
                self._note([f"the least work of {mode} could not be counted: {describe_briefly(error)}"])

    def _sweep(self, exam: Examination, verdicts: list[Parity], location: str, cells: list[Cell]) -> None:
        """The rows that matter, at other batch sizes: eager PyTorch, and the fastest of each framework."""
        fastest = [group.fastest_torch for group in groups(cells)] + [group.fastest_jax for group in groups(cells)]
        wanted = [cell for cell in fastest if cell is not None]
        rows = frozenset({"torch.eager", *(cell.row for cell in wanted)})
        case = narrowed(exam.case, *({c.variant for c in wanted if c.framework == f} for f in ("torch", "jax")))
        for size in self.plan.sweep:
            sized = Examination(
                resized(case, size), seed=self.plan.seed, dtype=exam.dtype, device=self.device, truths=[]
            )
            self._timed(sized, verdicts, location, size=size, rows=rows & self.rows)
            release()

    def _note(self, notes: Iterable[str]) -> None:
        last = self.results.cases[-1]
        self.results.cases[-1] = replace(last, notes=list(dict.fromkeys([*last.notes, *notes])))

    def _save(self) -> None:
        self.results.duration_s = time.perf_counter() - self._start
        if self._save_to is not None:
            self.results.save(self._save_to)


def _left(error: SystemExit) -> str:
    return str(error) if isinstance(error, LeftEarly) else f"sys.exit({error.code!r}) was called"


def bench(case: Case, plan: Plan | None = None) -> Results:
    """Parity and speed of one case; `.cells` holds one record for each way of running it.

    Raises:
      CaseError, WeightsError: where the case cannot be compared as it is written.

    Example:
      >>> from graphmode.compare import Plan, bench
      >>> from graphmode.models import zoo
      >>> result = bench(zoo.load("scale_add"), Plan(rows=("torch.eager", "jax.jit"), quick=True, floors=False))
      >>> sorted({cell.row for cell in result.cells})
      ['jax.jit', 'torch.eager']
      >>> all(cell.equal for cell in result.cells)
      True
    """
    results = run([case], plan)
    if results.problems:
        raise CaseError(results.problems[0])
    return results
