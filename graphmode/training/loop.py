"""`fit`: the loop around a compiled step, which asks the device for nothing between its reports."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np

from ..nn.arguments import as_integer
from ..optim import with_lr
from .data import BatchSource, as_source, read_ahead, stacked
from .data.host import check_holds_arrays
from .data.source import EPOCH_END
from .early_stopping import EarlyStopping
from .evaluation import Evaluation
from .fit_arguments import check_apart, check_given_state, check_types
from .loggers import Logger
from .nonfinite import NonfiniteError, first_nonfinite
from .progress import Report, reporter
from .rates import check_plateau_rates, tell_kept_rates
from .state import TrainState
from .step import TrainStep

if TYPE_CHECKING:
    from .checkpoints import Checkpoints

LOG = logging.getLogger(__name__)
Stopped = Literal["steps", "data", "early"]


@dataclass
class Fit:
    """What came of a run.

    Attributes:
      state: after the last step.
      history: each metric of each step, `[steps]`, from the step at which the run (or its resumption) began; empty
        arrays where no step was left to take.
      evaluations: `(steps taken, metrics)` of each evaluation.
      stopped: by the number of steps, the end of the data, or early.
    """

    state: TrainState
    history: dict[str, np.ndarray]
    evaluations: list[tuple[int, dict[str, float]]]
    stopped: Stopped


def fit(
    step: TrainStep,
    data: Any,
    *,
    state: TrainState | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    evaluation: Evaluation | None = None,
    early_stopping: EarlyStopping | None = None,
    plateau: tuple[Any, str] | None = None,
    checkpoints: Checkpoints | None = None,
    log_every: int = 50,
    loggers: Sequence[Logger] = (),
    progress: bool | None = None,
    ahead: int = 2,
    on_step: Callable[[int, dict[str, Any]], None] | None = None,
) -> Fit:
    """Trains until the steps, the epochs or the data are over.

    Batches are read and placed ahead of the device. Where data end with fewer batches than a launch of several steps
    takes, these are left out, and a warning says how many. Metrics stay on the device and are fetched every `log_every`
    steps, which is also when a loss that is not finite is found; the state is then the one before that step, whatever
    came after. With checkpoints a run goes on from the newest one, data position and learning rate included.

    Args:
      step: of `gm.train_step`.
      data: what `as_source` takes: a source, `torch.utils.data.DataLoader`, a Grain loader, an iterable of batches.
      state: to start from, where `checkpoints` has none to go on from; `step.init()` where None.
      steps: how many in all, those before a resumption included; to a multiple of `steps_per_launch`.
      epochs: likewise. Without either, one epoch of data that has an end to it, all of a source that knows its epochs.
      evaluation: on other data, or on the same by a source of its own.
      early_stopping: by the evaluation. A run whose newest checkpoint is one of an early end has ended: more patience
        goes on from it.
      plateau: a `ReduceLROnPlateau` and the name of the evaluation's metric that it watches. It begins with the
        optimizer's own rates: with groups a list, the rate of what no `Group` takes first, then those of `groups`.
      checkpoints: where to save, and to resume from.
      log_every: steps between reports.
      loggers: `JsonLines`, `TensorBoard`, or your own; closed at the end.
      progress: a bar on a terminal, plain lines elsewhere; True and False force the one and silence both.
      ahead: how many batches are made ready.
      on_step: called after each launch with the number of steps taken and its metrics, which are on the device.

    Returns:
      The last state, and what was measured.

    Raises:
      NonfiniteError: where a loss or gradient is not finite (`on_nonfinite="stop"`), with the step and the first bad
        tensor.
      ValueError: for bad arguments, and for batches that the step refuses or that hold no arrays, as None; for a
        `state` of a later step than that of the newest checkpoint, or of the same step with other values; for a plateau
        with other rates than the optimizer.

    Example:
      >>> import graphmode as gm, jax.numpy as jnp, numpy as np
      >>> from flax import nnx
      >>> model = gm.nn.Linear(3, 1, rngs=nnx.Rngs(0))
      >>> step = gm.train_step(model, lambda model, x: jnp.mean(model(x) ** 2), gm.optim.sgd(lr=0.1))
      >>> data = gm.training.from_arrays(np.ones((8, 3), np.float32), batch_size=4)
      >>> run = gm.training.fit(step, data, steps=4, progress=False)
      >>> run.history["loss"].shape, run.stopped
      ((4,), 'steps')
    """
    check_types(step, state, evaluation, plateau, checkpoints, loggers)
    as_integer("log_every", log_every, least=1)
    for name, number in {"steps": steps, "epochs": epochs}.items():
        if number is not None:
            as_integer(name, number, least=1)
    if steps is not None and steps % step.steps_per_launch:
        raise ValueError(f"steps is {steps}, and a launch takes {step.steps_per_launch} steps; give a multiple of them")
    needing = {"early_stopping": early_stopping, "plateau": plateau}
    if evaluation is None and (without := [name for name, value in needing.items() if value is not None]):
        raise ValueError(f"{' and '.join(without)} watches the evaluation, and there is none; give evaluation=")
    source = as_source(data)
    check_apart(source, evaluation)
    if steps is None and epochs is None:
        epochs = source.epochs or 1
    if step.steps_per_launch > 1:
        source = stacked(source, step.steps_per_launch)
    run = _Run(step, source, steps, epochs, evaluation, early_stopping, plateau, checkpoints, log_every, on_step)
    with reporter(progress, total=steps or _total(source, epochs, step)) as report:
        try:
            return run.through(state, report, loggers, ahead)
        finally:
            if checkpoints is not None:
                checkpoints.wait()
            for logger in loggers:
                logger.close()


def _total(source: BatchSource, epochs: int | None, step: TrainStep) -> int | None:
    if epochs is None or source.batches_per_epoch is None:
        return None
    return epochs * source.batches_per_epoch * step.steps_per_launch


@dataclass
class _Interval:
    """Since the last report."""

    began: float = field(default_factory=time.perf_counter)
    metrics: list[dict[str, jax.Array]] = field(default_factory=list)
    positions: list[tuple[int, dict[str, Any]]] = field(default_factory=list)  # number of the step, before its batch
    rows: int = 0


class _Run:
    def __init__(
        self,
        step: TrainStep,
        source: BatchSource,
        steps: int | None,
        epochs: int | None,
        evaluation: Evaluation | None,
        early_stopping: EarlyStopping | None,
        plateau: tuple[Any, str] | None,
        checkpoints: Checkpoints | None,
        log_every: int,
        on_step: Callable[[int, dict[str, Any]], None] | None,
    ):
        self.step, self.source, self.steps, self.epochs = step, source, steps, epochs
        self.evaluation, self.early_stopping, self.plateau = evaluation, early_stopping, plateau
        self.checkpoints, self.log_every, self.on_step = checkpoints, log_every, on_step
        self.history: dict[str, list[np.ndarray]] = {}
        self.metrics = ["loss"]  # of the run before, where it goes on from a checkpoint
        self.ended_early = False  # that run
        self.evaluations: list[tuple[int, dict[str, float]]] = []

    def through(self, state: TrainState | None, report: Report, loggers: Sequence[Logger], ahead: int) -> Fit:
        state = self._start(state)
        number = int(state.step)
        report.start(number)
        interval = _Interval()
        stopped: Stopped = "steps"
        end: dict[str, Any] | None = None  # before batches that were read and left out
        with read_ahead(self.source, size=ahead, place=self.step.place) as batches:
            while True:
                if self.steps is not None and number >= self.steps:
                    break
                if self.ended_early:
                    stopped = "early"
                    break
                if (self.epochs is not None and batches.epoch >= self.epochs) or batches.finished:
                    stopped = "data"
                    break
                position, epoch = batches.state(), batches.epoch
                batch = next(batches, EPOCH_END)
                if batch is EPOCH_END:
                    stopped = "data"
                    break
                where = f"batch {position['batch']} of epoch {epoch}"
                check_holds_arrays(batch, f"the batch of step {number}, {where},")
                if (left := self._too_few(batch, number)) is not None:
                    LOG.warning("%s", left)
                    stopped, end = "data", position
                    break
                state, metrics = self.step(state, batch)
                interval.positions.append((number, position))
                number += self.step.steps_per_launch
                interval.metrics.append(metrics)
                interval.rows += _rows(batch, self.step.steps_per_launch)
                if self.on_step is not None:
                    self.on_step(number, metrics)
                is_last = self.steps is not None and number >= self.steps
                ends_epoch = batches.epoch != epoch
                saves = self.checkpoints is not None and self.checkpoints.is_due(number, self.step.steps_per_launch)
                evaluates = self._evaluates(number, ends_epoch)
                if is_last or ends_epoch or saves or evaluates or len(interval.metrics) >= self._launches:
                    self._report(state, interval, number, epoch, report, loggers)
                    interval = _Interval()
                if evaluates:
                    state, is_over = self._evaluate(state, number, report, loggers)
                    interval = _Interval()
                    if is_over:
                        stopped = "early"
                        break
                if saves:
                    self._save(state, batches.state())
            if interval.metrics:
                self._report(state, interval, number, batches.epoch, report, loggers)
            if self.checkpoints is not None:
                self._save(state, batches.state() if end is None else end, last=True)
        history = {name: np.concatenate(parts) for name, parts in self.history.items()}
        if not history:
            history = {name: np.empty(0, np.float32) for name in self.metrics}
        return Fit(state, history, self.evaluations, stopped)

    def _too_few(self, batches: Any, number: int) -> str | None:
        """What is to be told of the last batches of all, where they are fewer than the steps of a launch.

        Raises:
          ValueError: where there were no others.
        """
        several = self.step.steps_per_launch
        if several == 1 or (left := jax.tree.leaves(batches)[0].shape[0]) == several:
            return None
        told = f"a launch takes {several} steps, and the data end with {left} {'batch' if left == 1 else 'batches'}"
        if not number:
            raise ValueError(f"{told} in all; give more epochs or data, or a smaller steps_per_launch")
        return f"{told} more, left out after step {number}; give steps=, or epochs= to go on into the next epoch"

    @property
    def _launches(self) -> int:
        return max(1, self.log_every // self.step.steps_per_launch)

    def _start(self, state: TrainState | None) -> TrainState:
        found = None
        if self.checkpoints is not None:
            self.checkpoints.prepare()
            found = self.checkpoints.restore(self.step)
        if found is None:
            state = self.step.init() if state is None else state
            self._check_plateau(state)
            return state
        given, (state, kept) = state, found
        if given is not None and (told := check_given_state(given, state, self.checkpoints)):
            LOG.warning("%s", told)
        self.source.restore(kept["source"])
        self.metrics = kept.get("metrics", self.metrics)
        if self.plateau is None:
            tell_kept_rates(self.step.optimizer, state.optimizer, "the checkpoint")
        for name, watcher in self._watchers().items():
            if name in kept:
                watcher.load_state_dict(kept[name])
        if "early_stopping" in kept and self.early_stopping is not None:
            self.ended_early = self.early_stopping.exhausted
        self._check_plateau(state)
        return state

    def _check_plateau(self, state: TrainState) -> None:
        if self.plateau is not None:
            check_plateau_rates(self.plateau[0], self.step.optimizer, state.optimizer)

    def _watchers(self) -> dict[str, Any]:
        found = {"early_stopping": self.early_stopping, "plateau": self.plateau and self.plateau[0]}
        return {name: watcher for name, watcher in found.items() if watcher is not None}

    def _save(self, state: TrainState, position: dict[str, Any], *, last: bool = False) -> None:
        assert self.checkpoints is not None
        if last and int(state.step) in self.checkpoints.steps:
            return
        watchers = {name: watcher.state_dict() for name, watcher in self._watchers().items()}
        metrics = list(self.history) or self.metrics
        self.checkpoints.save(state, data={"source": position, "metrics": metrics, **watchers}, force=last)

    def _evaluates(self, number: int, ends_epoch: bool) -> bool:
        if self.evaluation is None:
            return False
        every = self.evaluation.every
        return ends_epoch if every is None else number // every > (number - self.step.steps_per_launch) // every

    def _evaluate(
        self, state: TrainState, number: int, report: Report, loggers: Sequence[Logger]
    ) -> tuple[TrainState, bool]:
        assert self.evaluation is not None
        found = self.evaluation.run(self.step, state)
        self.evaluations.append((number, found))
        for logger in loggers:
            logger.log(number, {f"evaluation/{name}": value for name, value in found.items()})
        report.evaluated(number, found)
        if self.plateau is not None:
            watcher, metric = self.plateau
            if metric not in found:
                raise ValueError(f"plateau watches {metric!r}, and the evaluation has {', '.join(found)}")
            state = state._replace(optimizer=with_lr(state.optimizer, watcher.step(found[metric])))
        return state, self.early_stopping is not None and self.early_stopping.is_over(found)

    def _report(
        self,
        state: TrainState,
        interval: _Interval,
        number: int,
        epoch: int,
        report: Report,
        loggers: Sequence[Logger],
    ) -> None:
        """Fetches the interval's metrics, which waits for its steps."""
        fetched = jax.device_get(interval.metrics)
        bad = int(state.bad_step)
        if bad >= 0:
            raise self._nonfinite(state, bad, interval)
        for one in fetched:
            for name, value in one.items():
                self.history.setdefault(name, []).append(np.atleast_1d(value))
        seconds = time.perf_counter() - interval.began
        means = {name: float(np.mean([one[name] for one in fetched], dtype=np.float64)) for name in fetched[0]}
        speed = {
            "epoch": float(epoch),
            "steps_per_second": len(fetched) * self.step.steps_per_launch / seconds,
            "rows_per_second": interval.rows / seconds,
        }
        for logger in loggers:
            logger.log(number, {**means, **speed})
        report.trained(number, {**means, **speed})

    def _nonfinite(self, state: TrainState, bad: int, interval: _Interval) -> NonfiniteError:
        """The error, with the first bad tensor where the batch can be read again."""
        tensor = ""
        launches = [position for number, position in interval.positions if number <= bad]
        if launches:
            try:
                self.source.restore(launches[-1])
                batch = next(self.source)
            except ValueError:
                tensor = "its batch cannot be read again, so that the first bad tensor is not known"
                return NonfiniteError(bad, tensor, state)
            within = bad % self.step.steps_per_launch
            if self.step.steps_per_launch > 1:
                batch = jax.tree.map(lambda x: x[within : within + 1], batch)
            tensor = first_nonfinite(self.step, state, batch)
        return NonfiniteError(bad, tensor, state)


def _rows(batch: Any, lead: int) -> int:
    shape = jax.tree.leaves(batch)[0].shape
    return math.prod(shape[: 1 + (lead > 1)])
