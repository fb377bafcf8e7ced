"""Both scripts step by step over the same batches, in float64 for the verdict and in float32 for the clock."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import jax
import numpy as np
import torch
from flax import nnx

from graphmode.weights import WeightsError, load

from ..case import CaseError
from ..dtypes import allow_tf32
from ..errors import describe_briefly, describe_with_line
from ..parity.yardstick import PRECISE_RATIO, error_ratio
from ..untraceable import port_failure
from .record import Training, in_dtype
from .torch_steps import Kind

EQUAL = 1e-8  # of the loss, at each step in float64
FURTHER_DRAWS = 4  # of weights and batches, where the first says that the port is imprecise
EAGER = "torch.eager"
PORT = "jax.jit"

Told = Callable[[str], None]


@dataclass
class Way:
    """One way of running the script.

    Attributes:
      name: `torch.eager`, `torch.compile`, `torch.cudagraph` or `jax.jit`.
      dtype: float64 or float32.
      losses: before each step.
      seconds: of each step, its loss fetched.
      scores: after the last step.
      reason: why it did not run; empty where it did.
    """

    name: str
    dtype: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def median_s(self) -> float:
        """Of a step, the first ones left out, in which graphs are made."""
        return float(np.median(self.seconds[min(5, len(self.seconds) // 2) :]))


@dataclass(frozen=True)
class TrainingResult:
    """What came of both scripts.

    Attributes:
      name, summary: the training's.
      device: cpu or gpu.
      ways: in float64 the reference and the port; in float32 all.
      error: the largest relative difference of the losses in float64; infinite where one side is not finite alone.
      error_step: where it is.
      ratio: the port's float32 error of the losses over PyTorch's own, both against float64; None for fewer than 64
        steps.
      traces: compilations of the port's step.
    """

    name: str
    summary: str
    device: str
    ways: tuple[Way, ...]
    error: float
    error_step: int
    ratio: float | None
    traces: int

    @property
    def equal(self) -> bool:
        return self.error <= EQUAL

    @property
    def precise(self) -> bool | None:
        """None where too few steps were made to tell."""
        return None if self.ratio is None else self.ratio <= PRECISE_RATIO

    @property
    def passed(self) -> bool:
        return self.equal and self.precise is not False

    def way(self, name: str, dtype: str) -> Way:
        return next(way for way in self.ways if (way.name, way.dtype) == (name, dtype))


def run_training(
    training: Training,
    *,
    steps: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    kinds: tuple[Kind, ...] | None = None,
    told: Told = lambda text: None,
) -> TrainingResult:
    """Trains the reference and the port from the same weights over the same batches.

    Args:
      training: the two scripts.
      steps: how many; the training's own count where None.
      seed: of weights and batches.
      device: `"cpu"` or `"gpu"`, of both.
      kinds: of PyTorch's steps that are timed in float32; eager, compile and, on a GPU, cudagraph where None.
      told: takes a line of progress now and then.

    Raises:
      WeightsError: where the reference's weights do not fit the port.
      CaseError: where a function of the training fails, the batches are too few, or the reference's own losses are not
        finite.
    """
    count = steps or training.count
    kinds = kinds or (("eager", "compile", "cudagraph") if device == "gpu" else ("eager", "compile"))
    if "eager" not in kinds:
        kinds = ("eager", *kinds)
    wide, _ = _trained(training, ("eager",), "float64", count, seed, device, told)
    usual, traces = _trained(training, kinds, "float32", count, seed, device, told)
    finite = np.isfinite(wide[0].losses)
    if not finite.all():
        raise CaseError(
            f"training {training.name!r}: PyTorch's own loss is {wide[0].losses[int(finite.argmin())]} in float64 at "
            f"step {int(finite.argmin())}, so there is nothing to compare; mend it first, or give fewer steps"
        )
    error, at = _difference(wide[-1].losses, wide[0].losses)
    ratio = _ratio([wide], [usual])
    if ratio is not None and ratio > PRECISE_RATIO:
        wides, usuals = [wide], [usual]
        for draw in range(1, FURTHER_DRAWS + 1):
            told(f"float32 looks imprecise; draw {draw + 1} of {FURTHER_DRAWS + 1}")
            wides.append(_trained(training, ("eager",), "float64", count, seed + draw, device, told)[0])
            usuals.append(_trained(training, ("eager",), "float32", count, seed + draw, device, told)[0])
        ratio = _ratio(wides, usuals)
    return TrainingResult(training.name, training.summary, device, (*wide, *usual), error, at, ratio, traces)


def _trained(
    training: Training, kinds: tuple[Kind, ...], dtype: str, count: int, seed: int, device: str, told: Told
) -> tuple[list[Way], int]:
    """PyTorch's ways and then the port's, a batch at a time through each in turn."""
    allow_tf32("float32")
    torch.manual_seed(seed)
    with _named(training, "building the reference"):
        first = training.reference().train()  # drawn in float32 for every dtype of a run
    with _in(dtype, device):
        with _named(training, "batches"):
            batches = iter(training.batches(np.random.default_rng(seed), count))
        with _named(training, "building the model"):
            model = training.model(nnx.Rngs(seed))
        load(model, first.state_dict(), training.weights)
        runners: list[tuple[Way, _Runner]] = []
        for kind in kinds:
            module = copy.deepcopy(first).to(device="cuda" if device == "gpu" else "cpu", dtype=getattr(torch, dtype))
            runners.append((Way(f"torch.{kind}", dtype), _TorchRunner(training, module, kind, device)))
        port = _PortRunner(training, model, dtype, device)
        runners.append((Way(PORT, dtype), port))
        for number in range(count):
            with _named(training, "batches"):
                batch = next(batches, None)
            if batch is None:
                raise CaseError(f"training {training.name!r}: batches gives {number} of the {count} asked for")
            for way, runner in runners:
                if not way.reason:
                    _step(training, way, runner, in_dtype(batch, dtype, "torch", device) if runner is not port else
                          in_dtype(training.to_model(batch), dtype, "jax", device))  # fmt: skip
            if (number + 1) % max(1, count // 4) == 0:
                told(f"{dtype}: step {number + 1} of {count}, loss {runners[0][0].losses[-1]:.4g}")
        if training.scores is not None:
            for way, runner in runners:
                if not way.reason:
                    score = training.scores[0] if runner is not port else training.scores[1]
                    way.scores = {name: float(value) for name, value in score(runner.evaluated()).items()}
        return [way for way, _ in runners], port.step.traces


@contextlib.contextmanager
def _named(training: Training, what: str) -> Iterator[None]:
    """What fails in a user's code is told with the line."""
    try:
        yield
    except (CaseError, WeightsError):
        raise
    except Exception as error:
        raise CaseError(f"training {training.name!r}: {what} fails: {describe_with_line(error)}") from error


def _step(training: Training, way: Way, runner: _Runner, batch: Any) -> None:
    began = perf_counter()
    try:
        loss = runner(batch)
    except Exception as error:
        if isinstance(error, CaseError):
            raise
        if way.name in (EAGER, PORT):
            where = f"at step {len(way.losses)} in {way.dtype}"
            told = f"the port {port_failure(error, where)}"
            if way.name == EAGER:
                told = f"the PyTorch step fails {where}: {describe_with_line(error)}"
            raise CaseError(f"training {training.name!r}: {told}") from error
        way.reason = describe_briefly(error)
        return
    way.seconds.append(perf_counter() - began)
    way.losses.append(loss)


class _Runner:
    def __call__(self, batch: Any) -> float:
        raise NotImplementedError

    def evaluated(self) -> Any:
        """The module after the last step, in evaluation mode."""
        raise NotImplementedError


class _TorchRunner(_Runner):
    def __init__(self, training: Training, module: torch.nn.Module, kind: Kind, device: str):
        self._module, self._device = module, device
        self._step = training.reference_step(module, kind)

    def __call__(self, batch: Any) -> float:
        return float(self._step(batch))

    def evaluated(self) -> torch.nn.Module:
        return self._module.eval()


class _PortRunner(_Runner):
    def __init__(self, training: Training, model: nnx.Module, dtype: str, device: str):
        for _, variable in nnx.to_flat_state(nnx.state(model)):
            value = variable.get_raw_value()
            if jax.numpy.issubdtype(value.dtype, jax.numpy.floating):
                variable.set_value(value.astype(dtype))
        self.step = training.model_step(model)
        self._state = self.step.init()

    def __call__(self, batch: Any) -> float:
        self._state, metrics = self.step(self._state, batch)
        return float(metrics["loss"])

    def evaluated(self) -> nnx.Module:
        return self.step.objective.evaluated(self._state.params, self._state.rest)


def _difference(port: list[float], reference: list[float]) -> tuple[float, int]:
    ours, theirs = np.asarray(port), np.asarray(reference)
    gaps = np.abs(ours - theirs) / np.maximum(np.abs(theirs), np.finfo(float).tiny)
    gaps = np.where(np.isfinite(ours), gaps, np.inf)
    return float(gaps.max()), int(gaps.argmax())


def _ratio(wide: list[list[Way]], usual: list[list[Way]]) -> float | None:
    return error_ratio(
        [np.asarray(ways[-1].losses) for ways in usual],
        [np.asarray(ways[0].losses) for ways in usual],
        [np.asarray(ways[0].losses) for ways in wide],
    )


@contextlib.contextmanager
def _in(dtype: str, device: str) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with (
            jax.enable_x64(dtype == "float64"),
            jax.default_device(jax.devices(device)[0]),
            jax.default_matmul_precision("highest"),
        ):
            yield
    finally:
        torch.set_default_dtype(before)
