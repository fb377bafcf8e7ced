"""Every way of running one case: built, passed through the parity gate, and only then timed, interleaved."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import torch

from ..case import Mode
from ..draw import signature
from ..errors import describe_briefly
from ..jax_side import PortSide
from ..observation import Observation
from ..parity.examination import Examination
from ..parity.yardstick import JUDGED_ELEMENTS, PRECISE_RATIO, difference
from ..quiet import quiet
from ..release import release, trim
from ..report.results import Cell, Parity, Status
from ..torch_side import TorchSide
from .rows import Row, Step, Unavailable, all_rows
from .timing import Expired, Timed, deadline, interleave

INPUT_SETS = 3  # at most, in rotation
WARM_UP = 2  # calls after the first, those of the gate counted
GROSS_ERROR = 1e-3  # of the scale, in any one draw: for outputs, and gradients too small for an error ratio


@dataclass(frozen=True)
class Budget:
    """Seconds a cell: `prepare_s` for build, compilation, warm-up and gate; `time_s` for timed calls."""

    prepare_s: float = 30.0
    time_s: float = 0.5


@dataclass
class Runner:
    """A row that is ready to be timed."""

    row: Row
    variant: str
    side: TorchSide | PortSide
    step: Step
    compile_s: float
    warm_s: float
    error_ratio: float | None
    batches: list[Any]


class CaseBench:
    """The speed cells of one case.

    Args:
      exam: its examination; the answers of its judge are the gate.
      verdicts: the parity of this same run, without which no port gets a number.
      rows: names of the rows that are wanted.
      named: whether the run names them, and so wants those too that are left out otherwise.
      budget: of each cell.
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
        undisturbed: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ):
        self.exam, self.case = exam, exam.case
        self.verdicts = {(p.side, p.variant): p for p in verdicts}
        self.rows = [row for row in all_rows() if row.name in rows]
        self.budget, self._named = budget, named
        self._undisturbed = undisturbed
        self._ports: dict[str, PortSide] = {}

    def cells(self, on_row: Callable[[str], None] = lambda _: None) -> Iterator[list[Cell]]:
        """The cells of each mode together, since they are timed together. `on_row` hears what is being prepared."""
        on_row(f"{self.case.name}: running the reference on what is timed")
        self.exam.ask_timed()
        for mode in self.case.modes:
            yield self._mode(mode, on_row)

    def _mode(self, mode: Mode, on_row: Callable[[str], None]) -> list[Cell]:
        cells: dict[tuple[str, str], Cell] = {}
        runners: list[Runner] = []
        release()  # what was compiled before counts against torch.compile's limit, too
        with self._context(), quiet():
            for row in self.rows:
                variants = self.case.references if row.framework == "torch" else self.case.models
                for variant in variants:
                    on_row(f"{self.case.name} {mode}: {row.name} {variant}")
                    outcome = self._prepare(row, variant, mode)
                    trim()
                    if isinstance(outcome, Cell):
                        cells[row.name, variant] = outcome
                    else:
                        runners.append(outcome)
            on_row(f"{self.case.name} {mode}: timing {len(runners)} rows in turn")
            timed = [Timed(self._caller(runner), runner.warm_s) for runner in runners]
            with self._undisturbed():
                interleave(timed, budget_s=self.budget.time_s, input_sets=INPUT_SETS)
        for runner, times in zip(runners, timed, strict=True):
            cells[runner.row.name, runner.variant] = self._timed_cell(runner, times, mode)
        order = [(row.name, v) for row in self.rows for v in (*self.case.references, *self.case.models)]
        return [cells[key] for key in dict.fromkeys(order) if key in cells]

    @contextlib.contextmanager
    def _context(self) -> Iterator[None]:
        with jax.enable_x64(False), jax.default_matmul_precision("highest"), contextlib.ExitStack() as stack:
            if self.exam.device != jax.default_backend():
                stack.enter_context(jax.default_device(jax.devices(self.exam.device)[0]))
            yield

    def _prepare(self, row: Row, variant: str, mode: Mode) -> Runner | Cell:
        """Builds, warms up and gates one row: ready to be timed, or the cell that says why not."""
        if row.needs_cuda and self.exam.device != "gpu":
            return self._cell(row, variant, mode, "unavailable", "needs a CUDA device, and this run is on the CPU")
        if row.left_out and self.exam.device == "cpu" and not self._named:
            reason = f"left out on a CPU: {row.left_out}; ask for it with --row {row.name}"
            return self._cell(row, variant, mode, "unavailable", reason)
        if (blame := self._not_equal(row, variant)) is not None:
            return self._cell(row, variant, mode, "wrong", blame)
        start = time.perf_counter()
        budget = first_call = self.budget.prepare_s
        if (patience := self.case.patience_with(row.name, variant)) is not None:
            budget = min(budget, patience)
            first_call = budget / 2 if row.optimises_late else budget
        try:
            with deadline(budget):
                return self._ready(row, variant, mode, first_call)
        except Unavailable as error:
            return self._cell(row, variant, mode, "unavailable", str(error))
        except Expired:
            spent = time.perf_counter() - start
            reason = f"not ready after {spent:.0f} s; its budget is {budget:g} s"
            return self._cell(row, variant, mode, "timeout", reason)
        except Wrong as error:
            return self._cell(row, variant, mode, "wrong", str(error), error_ratio=error.ratio)
        except Exception as error:
            if time.perf_counter() - start >= budget:  # a framework wrapped what ended its work
                reason = f"not ready after its budget, {budget:g} s"
                return self._cell(row, variant, mode, "timeout", reason)
            plain = row.name in ("torch.eager", "jax.eager", "jax.jit")
            return self._cell(row, variant, mode, "failed" if plain else "unsupported", describe_briefly(error))

    def _ready(self, row: Row, variant: str, mode: Mode, first_call: float) -> Runner:
        side = self._side(row, variant)
        rows = self._questions(mode)
        first = self.exam.truths[rows[0]].question
        start = time.perf_counter()
        sample = side.place(first.inputs, mode, first.cotangents)
        step = row.build(side, mode, sample)
        batch = row.pack(side.place(first.inputs, mode, first.cotangents))
        result = _judged(row, step, mode, batch)
        compile_s = time.perf_counter() - start
        if compile_s > first_call:
            raise Expired
        answers = {rows[0]: _observe(side, row, step, result, batch, mode)}
        # the first one again, where there is no other: a first call may still be unoptimised, and is never gated alone
        for i in rows[1:] or rows:
            question = self.exam.truths[i].question
            batch = row.pack(side.place(question.inputs, mode, question.cotangents))
            start = time.perf_counter()
            result = _judged(row, step, mode, batch)
            warm_s = time.perf_counter() - start
            answers[i] = _observe(side, row, step, result, batch, mode)
        ratio = self._gate(mode, rows, answers)
        questions = [self.exam.truths[i].question for i in rows[:INPUT_SETS]]
        batches = [row.pack(side.place(q.inputs, mode, q.cotangents)) for q in questions]
        for batch in batches[: max(0, WARM_UP + 1 - len(rows))]:
            start = time.perf_counter()
            _finish(step(batch))
            warm_s = time.perf_counter() - start
        return Runner(row, variant, side, step, compile_s, warm_s, ratio, batches)

    def _side(self, row: Row, variant: str) -> TorchSide | PortSide:
        exam = self.exam
        if row.framework == "torch":
            return TorchSide(
                exam.judge.references[variant], self.case, dtype=exam.dtype, device=exam.judge.torch_device
            )
        if variant not in self._ports:
            self._ports[variant] = PortSide(
                self.case, variant, exam.judge.state_dict, dtype=exam.dtype, device=exam.device, seed=exam.seed
            )
        return self._ports[variant]

    def _questions(self, mode: Mode) -> list[int]:
        """The inputs that one graph takes: those with the first one's shapes, random ones first."""
        timed = self.case.check_inputs is not None
        rows = [i for i, t in enumerate(self.exam.truths) if (t.question.mode, t.question.is_timed) == (mode, timed)]
        shapes = signature(self.exam.truths[rows[0]].question.inputs)
        return [i for i in rows if signature(self.exam.truths[i].question.inputs) == shapes]

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

    def _gate(self, mode: Mode, rows: list[int], answers: Mapping[int, Observation]) -> float | None:
        """The worst error ratio of this row's own answers.

        Raises:
          Wrong: where they are not as precise as the reference's, with the first tensor and input that tell.
        """
        usual = [answers.get(i, truth.torch) for i, truth in enumerate(self.exam.truths)]
        worst: float | None = None
        for kind, name, _ in self.exam.truths[rows[0]].reference.tensors():
            key = (kind, name)
            if kind == "buffer" or any(answers[i].find(key) is None for i in rows):
                if kind == "output":
                    raise Wrong(f"it does not give the output {name}")
                continue
            faults = [fault for i in rows if (fault := self._gross_fault(key, i, answers[i]))]
            # one draw of a gradient may pass a kink on one side alone, and so may what was trained with it; what is
            # wrong is wrong in every draw
            single = kind == "output" and mode != "train_step"
            if faults and (single or len(faults) == len(rows)):
                raise Wrong(faults[0])
            ratio, precise, why = self.exam.precision(mode, key, rows, usual)
            if not precise:
                raise Wrong(f"{kind} {name}: error ratio {ratio}, at most {PRECISE_RATIO:g} was wanted {why}", ratio)
            if ratio is not None and (worst is None or ratio > worst):
                worst = ratio
        return worst

    def _gross_fault(self, key: tuple[str, str], row: int, answer: Observation) -> str:
        """How one answer to one input is further off than any rounding, where PyTorch's own is not; else empty."""
        truth = self.exam.truths[row]
        theirs, ours = truth.reference.get(key), answer.get(key)
        if key[0] != "output" and theirs.size >= JUDGED_ELEMENTS and ours.shape == theirs.shape:
            return ""  # its error ratio tells more
        found = difference(ours, theirs, self.exam.scale(truth, key))
        if found.error <= GROSS_ERROR or not self._reference_holds(key, row):
            return ""
        values = f": {found.port} for {found.reference} at {list(found.index)}" if found.port else ""
        return f"{key[0]} {key[1]} on the input {truth.question.label!r}{values} {found.note}".rstrip()

    def _reference_holds(self, key: tuple[str, str], row: int) -> bool:
        """Whether PyTorch itself, in the dtype in use, is no further off on this input."""
        truth = self.exam.truths[row]
        return (
            difference(truth.torch.get(key), truth.reference.get(key), self.exam.scale(truth, key)).error <= GROSS_ERROR
        )

    def _caller(self, runner: Runner) -> Callable[[int], None]:
        step, batches = runner.step, runner.batches
        if runner.row.framework == "jax":
            return lambda i: jax.block_until_ready(step(batches[i % len(batches)]))
        if self.exam.device == "gpu":

            def call(i: int) -> None:
                step(batches[i % len(batches)])
                torch.cuda.synchronize()

            return call
        return lambda i: step(batches[i % len(batches)])

    def _timed_cell(self, runner: Runner, times: Timed, mode: Mode) -> Cell:
        if times.error is not None or not times.samples:
            reason = describe_briefly(times.error) if times.error is not None else "no repeat was finished"
            return self._cell(runner.row, runner.variant, mode, "failed", reason)
        return self._cell(
            runner.row,
            runner.variant,
            mode,
            "ok",
            error_ratio=runner.error_ratio,
            noisy=times.noisy,
            median_s=times.median / runner.row.steps_per_call,
            iqr_s=times.iqr / runner.row.steps_per_call,
            p95_s=times.p95 / runner.row.steps_per_call,
            steps_per_call=runner.row.steps_per_call,
            samples_s=[sample / runner.row.steps_per_call for sample in times.samples],
            calls_per_sample=times.calls_per_sample,
            compile_s=runner.compile_s,
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
            **measured,
        )


class Wrong(Exception):
    """A row whose answers are not the reference's."""

    def __init__(self, message: str, ratio: float | None = None):
        super().__init__(message)
        self.ratio = ratio


def _judged(row: Row, step: Any, mode: Mode, batch: Any) -> Any:
    """One call, or from the first state as many as the judge's steps of training take."""
    if mode != "train_step":
        return _finish(step(batch))
    step.reset()
    for _ in range(row.judged_calls):
        result = _finish(step(batch))
    return result


def _observe(side: TorchSide | PortSide, row: Row, step: Any, result: Any, batch: Any, mode: Mode) -> Observation:
    if mode == "train_step":
        return step.observe(result)
    result = row.unpack(result)
    if isinstance(side, TorchSide):
        if mode == "inference":
            return side.observe(result)
        outputs, gradients = result
        return side.observe(outputs, gradients, batch)
    if mode == "inference":
        return side.observe(result, batch)
    outputs, gradients, state = result
    return side.observe(outputs, batch, gradients, side.program(mode).rest if state is None else state)


def _finish(result: Any) -> Any:
    jax.block_until_ready(result)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result
