"""One step after the other of the port's script, whether that is of `gm.train_step` or a function written by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.monitoring
import numpy as np
from flax import nnx

import graphmode as gm
from graphmode.training import TrainStep

from ..case import CaseError
from ..endless import broken_off, no_endless_loop
from ..jax_side import run_layers_in
from .clipping import NO_STEP_CLIPS
from .draws import jax_sources, jax_streams
from .left import Left, as_gradients, of_model, of_port, without_parameters
from .record import Training
from .runners import Runner
from .taken import Gradients, KeepsGradients, NnxGradients, Settings, settings_of_port

COMPILED = "/jax/core/compile/backend_compile_duration"
FIRST_STEPS = 3  # of which each may compile something
OFTEN = 0.25  # of the steps after them


def port_runner(training: Training, model: nnx.Module, dtype: str, *, noted: bool = False) -> PortRunner:
    """Of the port's script.

    Args:
      training: whose script it is.
      model: with the reference's weights.
      dtype: that its floating variables get. In float64, which is not timed, loops that never end are broken off.
      noted: whether the gradients that its optimizers take are kept, where those can be seen.

    Raises:
      CaseError: where `model_step` gives nothing that can be called.
    """
    for _, variable in nnx.to_flat_state(nnx.state(model)):
        value = variable.get_raw_value()
        if jax.numpy.issubdtype(value.dtype, jax.numpy.floating):
            variable.set_value(value.astype(dtype))
    run_layers_in(dtype, model)
    gradients = NnxGradients(model)
    with gradients.kept() if noted else contextlib.nullcontext():
        step = training.model_step(model)
    guarded = dtype == "float64"
    if isinstance(step, TrainStep):
        return StepRunner(training, step, guarded=guarded, noted=noted)
    if callable(step):
        return HandWrittenRunner(training, model, step, gradients if noted else None, guarded=guarded)
    held = f" of {len(step)}; call them in one function" if isinstance(step, tuple | list) else ""
    raise CaseError(
        f"training {training.name!r}: model_step gives a {type(step).__name__}{held}. Wanted was gm.train_step(...) or "
        "a function that trains the module it was given on a batch, in place, and gives the loss before that"
    )


class PortRunner(Runner):
    """What both kinds of scripts have in common.

    Args:
      training: whose script it is.
      guarded: whether loops that never end are broken off.
    """

    def __init__(self, training: Training, *, guarded: bool):
        self._name, self._weights, self._guarded = training.name, training.weights, guarded

    def __call__(self, batch: Any) -> float:
        if self._guarded:
            with broken_off(), no_endless_loop():
                return self._stepped(batch)
        return self._stepped(batch)

    def _stepped(self, batch: Any) -> float:
        raise NotImplementedError

    @property
    def traces(self) -> int:
        """Compilations of the step so far."""
        raise NotImplementedError


class StepRunner(PortRunner):
    """Of a `gm.train_step`. Gradients are those after its own clipping."""

    def __init__(self, training: Training, step: TrainStep, *, guarded: bool, noted: bool):
        super().__init__(training, guarded=guarded)
        self.step = step
        self._noted = noted and step.placement is None
        if self._noted:
            step.optimizer = KeepsGradients(step.optimizer)
        self._rates: tuple[float, ...] = ()
        self._norms = [0.0]
        self._state = step.init()
        self._streams = jax_streams(self._state.rest)

    def _stepped(self, batch: Any) -> float:
        self._state, metrics = self.step(self._state, batch)
        self._rates = (float(metrics["lr"]),) if "lr" in metrics else ()
        if self._guarded and "grad_norm" in metrics:
            self._norms.append(float(metrics["grad_norm"]))
        return float(metrics["loss"])

    @property
    def traces(self) -> int:
        return self.step.traces

    def gradients(self) -> Gradients:
        if not self._noted:
            return Gradients()
        model = self.step.objective.model(self._state.optimizer.gradients, without_parameters(self._state.rest))
        return Gradients(as_gradients(model, self._weights), further=self._own is None)

    def rates(self) -> tuple[float, ...]:
        return self._rates

    def settings(self) -> Settings:
        return {} if self._own is None else settings_of_port(self._own)

    @property
    def _own(self) -> gm.optim.Optimizer | None:
        """Its optimizer, where that is of `gm.optim` and seen."""
        inner = self.step.optimizer.inner if self._noted else None
        return inner if isinstance(inner, gm.optim.Optimizer) else None

    def warning(self) -> str:
        """That no step came to the norm that it clips to; known in float64 alone, in which steps are not timed."""
        limit, largest = self.step.clip_norm, max(self._norms)
        if limit is None or not self._guarded or largest > limit:
            return ""
        return NO_STEP_CLIPS.format(largest=largest, what="clip_norm", limit=limit)

    def evaluated(self) -> nnx.Module:
        return self.step.objective.evaluated(self._state.params, self._state.rest)

    def left(self) -> Left:
        return of_port(self.step, self._state, self._weights)

    def draws(self) -> str:
        return jax_sources(self._streams, jax_streams(self._state.rest))


class HandWrittenRunner(PortRunner):
    """Of a function of batches that trains the module itself, with as many optimizers as it likes."""

    def __init__(
        self,
        training: Training,
        model: nnx.Module,
        step: Callable[[Any], Any],
        noted: NnxGradients | None,
        *,
        guarded: bool,
    ):
        super().__init__(training, guarded=guarded)
        self._model, self._step, self._noted = model, step, noted
        self._compiled: list[int] = []
        self._streams = jax_streams(nnx.state(model))

    def _stepped(self, batch: Any) -> float:
        with _compilations() as compiled:
            loss = self._step(batch) if self._noted is None else self._noted.stepped(self._step, batch)
        self._compiled.append(len(compiled))
        if np.shape(loss) != () or not isinstance(loss, float | int | np.ndarray | np.generic | jax.Array):
            told = f"a {type(loss).__name__}" if not hasattr(loss, "shape") else f"an array of shape {loss.shape}"
            raise CaseError(
                f"training {self._name!r}: the step that model_step gives returned {told}; wanted was the loss before "
                "the step, one number"
            )
        return float(loss)

    @property
    def traces(self) -> int:
        return sum(self._compiled)

    def warning(self) -> str:
        """That it compiles again and again."""
        settled = self._compiled[FIRST_STEPS:]
        late = sum(number > 0 for number in settled)
        if late < OFTEN * max(len(settled), FIRST_STEPS):
            return ""
        return (
            f"The port's step compiles anew in {late} of its {len(self._compiled)} steps: shapes that change, a number "
            "of Python's that is static, or jax.jit of a new function in each step."
        )

    def gradients(self) -> Gradients:
        return Gradients() if self._noted is None else self._noted.last(self._weights)

    def settings(self) -> Settings:
        return {} if self._noted is None else self._noted.settings()

    def rates(self) -> tuple[float, ...]:
        return ()

    def evaluated(self) -> nnx.Module:
        return nnx.view(self._model, deterministic=True, use_running_average=True, raise_if_not_found=False)

    def left(self) -> Left:
        return of_model(self._model, self._weights)

    def draws(self) -> str:
        return jax_sources(self._streams, jax_streams(nnx.state(self._model)))


@contextlib.contextmanager
def _compilations() -> Iterator[list[float]]:
    """A list with an entry for each graph that is compiled in this block."""
    found: list[float] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == COMPILED:
            found.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
