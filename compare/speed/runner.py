"""One row of one variant, from its building to its last call, in whichever process it runs."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax

from ..case import Mode
from ..dtypes import matmul_precision
from ..errors import describe_briefly
from ..jax_side import PortSide
from ..observation import Observation
from ..parity.examination import Examination
from ..quiet import quiet
from ..release import trim
from ..report.records import Cold, Launches, Memory, Status
from ..torch_side import TorchSide
from .cold import Stages
from .gate import Gate, Wrong
from .launches import count_launches
from .memory import baseline, measured_peak
from .rows import Row, Step, Unavailable
from .timing import LONG_S
from .waiting import wait_for

INPUT_SETS = 3  # at most, in rotation
WARM_UP = 2  # calls after the first, those of the gate counted
CALIBRATIONS = 5
# after another row's turn caches are cold, and an idle processor takes some milliseconds of calls to wake fast again:
# a call of jax.jit that takes 10 us takes 40 us for the first hundred (measured under KVM's haltpoll), and a row whose
# calls take tens to hundreds of microseconds keeps the slower of two speeds for some 10 ms
WAKE_S = 15e-3
PLAIN_ROWS = ("torch.eager", "jax.eager", "jax.jit")  # that any model can be run by


@dataclass(frozen=True)
class Ready:
    """A row that has passed its gate.

    Attributes:
      first_s: seconds from nothing to the end of the first call; `cold` has its parts.
      warm_s: seconds that its last call before any timing took, perhaps while others were prepared.
      error_ratio: the worst of its answers, None where none was judged by one.
      unprinted: how many lines the reference prints in such a call, and this row does not.
    """

    first_s: float
    cold: Cold
    warm_s: float
    error_ratio: float | None
    unprinted: int


@dataclass(frozen=True)
class Refusal:
    """A row that gets no time: the status and reason of its cell."""

    status: Status
    reason: str
    error_ratio: float | None = None


class Runner:
    """Builds, gates and times one row.

    Args:
      exam: of the case; the answers of its judge are the gate.
      row: the way of running.
      variant: of the reference or of the port.
      is_alone: whether its process does nothing else, so that what it holds can be told.
    """

    def __init__(self, exam: Examination, row: Row, variant: str, *, is_alone: bool = False):
        self.exam, self.row, self.variant = exam, row, variant
        self._port: PortSide | None = None
        self._step: Step | None = None
        self._batches: list[Any] = []
        self._enqueued: list[float] = []
        self._is_alone = is_alone
        self._mode: Mode = "inference"
        self._wait = wait_for(row.framework, exam.device)
        self._before: int | None = None

    def prepare(self, mode: Mode) -> Ready | Refusal:
        """Builds the row for a mode, warms it up and gates it; what was prepared before is dropped."""
        self._step, self._batches, self._enqueued, self._mode = None, [], [], mode
        trim()
        self._before = baseline(self.exam.device) if self._is_alone else None
        try:
            with self._context():
                return self._ready(mode)
        except Unavailable as error:
            return Refusal("unavailable", str(error))
        except Wrong as error:
            return Refusal("wrong", str(error), error.ratio)
        except Exception as error:
            plain = self.row.name in PLAIN_ROWS
            return Refusal("failed" if plain else "unsupported", describe_briefly(error))
        finally:
            trim()

    def sample(self, offset: int, calls: int) -> float:
        """Seconds a call, of this many in a row, each waited for; the first takes input set `offset`.

        On a GPU their median: a call takes tens of microseconds at least, and where a hypervisor holds the processor up
        for a millisecond, now and then, a mean would tell that.
        """
        with self._context():
            self._begin(offset, WAKE_S if calls > 1 else 0.0)
            start = time.perf_counter()
            if calls == 1:  # the time until a long call returns comes for nothing
                result = self._step(self._batch(offset))  # type: ignore[misc]
                self._enqueued.append(time.perf_counter() - start)
                self._wait(result)
            elif self.exam.device == "gpu":
                return self._median_call(offset, calls)
            else:
                self._call(offset, calls)
            return (time.perf_counter() - start) / calls

    def enqueue(self, calls: int, is_short: bool) -> float:
        """The median number of seconds until a call returns, whatever it leaves to be done behind it; of the samples of
        one call, where there are any."""
        taken = list(self._enqueued)
        if not taken:
            with self._context():
                self._begin(0, WAKE_S if is_short else 0.0)
                for i in range(calls):
                    batch = self._batch(i)
                    start = time.perf_counter()
                    result = self._step(batch)  # type: ignore[misc]
                    taken.append(time.perf_counter() - start)
                    self._wait(result)
        return sorted(taken)[len(taken) // 2]

    def steady(self, calls: int, is_short: bool) -> float:
        """Seconds a call, of this many in a row with one wait at the end."""
        with self._context():
            self._begin(0, WAKE_S if is_short else 0.0)
            start = time.perf_counter()
            for i in range(calls):
                result = self._step(self._batch(i))  # type: ignore[misc]
            self._wait(result)
            return (time.perf_counter() - start) / calls

    def calibrated(self, shortest_s: float, most: int) -> int:
        """How many calls a sample needs to last `shortest_s` seconds."""
        fastest = min(self.sample(i, 1) for i in range(2))
        for i in range(CALIBRATIONS if fastest < LONG_S else 0):  # torch.jit optimises in any of its first calls
            with self._context():
                self._begin(i, WAKE_S)
            fastest = min(fastest, self.sample(i, 1))
        self._enqueued.clear()
        return min(most, max(1, math.ceil(shortest_s / max(fastest, 1e-9))))

    def _begin(self, offset: int, wake_s: float) -> None:
        """What comes before calls that are timed: a few milliseconds of others, and in training the first state again,
        so that no number of steps carries parameters away."""
        if self._mode == "train_step":
            self._step.reset()  # type: ignore[union-attr]
            self._call(offset, 1)  # the first step of an optimizer makes its state
        awake = time.perf_counter() + wake_s
        while time.perf_counter() < awake:
            self._call(offset, 1)

    def examined(self) -> tuple[Memory | None, Launches | None]:
        """What the row held at most, and what one call launches; it may disturb later times."""
        with self._context():
            peak = measured_peak(self.exam.device, self.row.framework, self._before)  # before a profiler takes memory
            launches = count_launches(self.row.name, self._step, self._batch(0), device=self.exam.device)  # type: ignore[arg-type]
            return None if peak is None or not self._is_alone else Memory(peak_bytes=peak), launches

    def _ready(self, mode: Mode) -> Ready:
        gate = Gate(self.exam)
        side, rows = self._side(), gate.questions(mode)
        first = self.exam.truths[rows[0]].question
        sample = side.place(first.inputs, mode, first.cotangents)
        stages = Stages()
        with stages.building():
            step = self.row.build(side, mode, sample)
        batch = self.row.pack(side.place(first.inputs, mode, first.cotangents))
        with stages.first_call():
            result = self._answered(step, batch, mode)
        answers = {rows[0]: self._observed(side, step, result, batch, mode)}
        warm_s = math.inf
        # the first one again, where there is no other: a first call may still be unoptimised, and is never gated alone
        for i in rows[1:] or rows:
            question = self.exam.truths[i].question
            batch = self.row.pack(side.place(question.inputs, mode, question.cotangents))
            with quiet() as printed:
                start = time.perf_counter()
                result = self._answered(step, batch, mode)
                warm_s = (time.perf_counter() - start) / self._calls_to_judge(mode)
            unprinted = max(0, self.exam.truths[i].printed - printed.lines)
            answers[i] = self._observed(side, step, result, batch, mode)
        ratio = gate.judge(mode, rows, answers)
        questions = [self.exam.truths[i].question for i in rows[:INPUT_SETS]]
        batches = [self.row.pack(side.place(q.inputs, mode, q.cotangents)) for q in questions]
        self._step, self._batches = step, batches
        for i in range(max(0, WARM_UP + 1 - len(rows))):
            start = time.perf_counter()
            self._call(i, 1)
            warm_s = time.perf_counter() - start
        return Ready(stages.total_s, stages.cold(), warm_s, ratio, unprinted)

    def _calls_to_judge(self, mode: Mode) -> int:
        return self.row.judged_calls if mode == "train_step" else 1

    def _answered(self, step: Any, batch: Any, mode: Mode) -> Any:
        """What one call gives, or from the first state the last of as many as the judge's steps of training take."""
        if mode == "train_step":
            step.reset()
        for _ in range(self._calls_to_judge(mode)):
            result = step(batch)
            self._wait(result)
        return result

    def _observed(self, side: TorchSide | PortSide, step: Any, result: Any, batch: Any, mode: Mode) -> Observation:
        if mode == "train_step":
            return step.observe(result)
        result = self.row.unpack(result)
        if isinstance(side, TorchSide):
            if mode == "inference":
                return side.observe(result)
            outputs, gradients = result
            return side.observe(outputs, gradients, batch)
        if mode == "inference":
            return side.observe(result, batch)
        outputs, gradients, state = result
        return side.observe(outputs, batch, gradients, side.program(mode).rest if state is None else state)

    def _side(self) -> TorchSide | PortSide:
        exam = self.exam
        if self.row.framework == "torch":
            module = exam.judge.references[self.variant]
            return TorchSide(module, exam.case, dtype=exam.dtype, device=exam.judge.torch_device)
        if self._port is None:
            self._port = PortSide(
                exam.case, self.variant, exam.judge.state_dict, dtype=exam.dtype, device=exam.device, seed=exam.seed
            )
        return self._port

    def _batch(self, i: int) -> Any:
        return self._batches[i % len(self._batches)]

    def _call(self, offset: int, calls: int) -> None:
        """Calls in a row, each waited for, with as little around them as can be: they are what is timed."""
        step, batches, wait, count = self._step, self._batches, self._wait, len(self._batches)
        for i in range(offset, offset + calls):
            wait(step(batches[i % count]))  # type: ignore[misc]

    def _median_call(self, offset: int, calls: int) -> float:
        """Seconds of each of these calls, with its wait: their median."""
        step, batches, wait, count, clock = self._step, self._batches, self._wait, len(self._batches), time.perf_counter
        taken = []
        for i in range(offset, offset + calls):
            start = clock()
            wait(step(batches[i % count]))  # type: ignore[misc]
            taken.append(clock() - start)
        return sorted(taken)[calls // 2]

    @contextlib.contextmanager
    def _context(self) -> Iterator[None]:
        with (
            jax.enable_x64(False),
            jax.default_matmul_precision(matmul_precision(self.exam.dtype)),
            contextlib.ExitStack() as stack,
        ):
            if self.row.framework == "jax" and self.exam.device != jax.default_backend():
                stack.enter_context(jax.default_device(jax.devices(self.exam.device)[0]))
            yield
