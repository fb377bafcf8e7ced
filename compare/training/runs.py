"""Both scripts step by step over the same batches, in float64 for the verdict and in float32 for the clock."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import numpy as np
import torch
from flax import nnx

from graphmode.weights import WeightsError, load

from ..asked_dtype import attention_in_float64
from ..case import CaseError
from ..copied_module import copied
from ..dtypes import allow_tf32
from ..errors import describe_briefly, describe_with_line
from ..interrupt import remembered
from ..parity.yardstick import PRECISE_RATIO, error_ratio
from ..untraceable import port_failure
from .draws import what_to_do
from .left import Left, compare, nudge
from .narrow import is_more_precise
from .parted import Taken
from .parted import told as parted
from .port_runners import PortRunner, port_runner
from .record import Framework, Training, in_dtype
from .result import EAGER, EQUAL, PORT, Apart, Kept, TrainingResult, Way
from .runners import Runner, TorchRunner
from .torch_steps import Kind

FURTHER_DRAWS = 4  # of weights and batches, where the first says that the port is imprecise

Told = Callable[[str], None]


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

    Returns:
      What came of it; where Ctrl-C ended it after the first step, of the steps that both sides had made.

    Raises:
      WeightsError: where the reference's weights do not fit the port.
      CaseError: where a function of the training fails, the batches are too few, or the reference's own losses are not
        finite.
    """
    count = steps or training.count
    kinds = kinds or (("eager", "compile", "cudagraph") if device == "gpu" else ("eager", "compile"))
    if "eager" not in kinds:
        kinds = ("eager", *kinds)
    wide = _trained(training, ("eager",), "float64", count, seed, device, told)
    asked, count = count, len(wide.torch.losses)
    finite = np.isfinite(wide.torch.losses)
    if not finite.all():
        raise CaseError(
            f"training {training.name!r}: PyTorch's own loss is {wide.torch.losses[int(finite.argmin())]} in float64 "
            f"at step {int(finite.argmin())}, so there is nothing to compare; mend it first, or give fewer steps"
        )
    gaps = _gaps(wide.port.losses, wide.torch.losses)
    result = TrainingResult(
        name=training.name,
        summary=training.summary,
        device=device,
        ways=tuple(wide.ways),
        error=float(gaps.max()),
        error_step=int(gaps.argmax()),
        first_step=int((gaps > EQUAL).argmax()) if gaps.max() > EQUAL else None,
        apart=(),
        compared={},
        ratio=None,
        traces=wide.traces,
        case=training.case,
        asked=asked,
        interrupted=wide.interrupted,
    )
    if wide.interrupted:
        return result
    try:
        result = _judged(result, training, wide, count, seed, device, told)
        return _in_float32(result, training, wide, kinds, count, seed, device, told)
    except KeyboardInterrupt:
        return dataclasses.replace(result, interrupted=True)


def _judged(
    result: TrainingResult, training: Training, wide: _Trained, count: int, seed: int, device: str, told: Told
) -> TrainingResult:
    """With what is off in float64 beside the losses, and with what differs first."""
    first = result.first_step
    warnings = list(wide.warnings) if first is None else []
    if first is not None and (wide.torch_draws or wide.port_draws):
        why = what_to_do(wide.torch_draws, wide.port_draws)
        if wide.torch_draws:
            raise CaseError(f"training {training.name!r}: the losses part at step {first}, and {why}")
        warnings.append(why[0].upper() + why[1:])
    apart: list[Apart] = []
    compared: dict[Kept, int] = {}
    last = first
    if first is None:
        apart, compared, notes = _compared(training, wide, count, seed, device, told)
        warnings += notes
        if any(each.kind in ("parameter", "buffer") for each in apart) and not (wide.torch_draws or wide.port_draws):
            last = count - 1
    elif warnings:
        last = None
    if last is not None and (where := _where(training, last, seed, device)):
        warnings.append(where)
    return dataclasses.replace(result, apart=tuple(apart), compared=compared, warnings=tuple(warnings))


def _in_float32(
    result: TrainingResult,
    training: Training,
    wide: _Trained,
    kinds: tuple[Kind, ...],
    count: int,
    seed: int,
    device: str,
    told: Told,
) -> TrainingResult:
    """With the ways in float32, and how precise the port is."""
    usual = _trained(training, kinds, "float32", count, seed, device, told)
    result = dataclasses.replace(result, ways=(*wide.ways, *usual.ways), traces=usual.traces)
    if usual.interrupted:
        return dataclasses.replace(result, interrupted=True)
    ratio, warnings = _ratio([wide], [usual]), list(result.warnings)
    if result.equal and ratio is not None and ratio > PRECISE_RATIO:
        wides, usuals = [wide], [usual]
        for draw in range(1, FURTHER_DRAWS + 1):
            told(f"float32 looks imprecise; draw {draw + 1} of {FURTHER_DRAWS + 1}")
            try:
                wides.append(_trained(training, ("eager",), "float64", count, seed + draw, device, told))
                usuals.append(_trained(training, ("eager",), "float32", count, seed + draw, device, told))
            except KeyboardInterrupt:
                return dataclasses.replace(result, interrupted=True)
            if wides[-1].interrupted or usuals[-1].interrupted:
                return dataclasses.replace(result, interrupted=True)
        ratio = _ratio(wides, usuals)
    narrow: tuple[str, ...] = ()
    if result.first_step is None and is_more_precise(usual.port.losses, usual.torch.losses, wide.torch.losses):
        narrow = tuple(sorted(usual.torch_dtypes))
    if narrow:
        warnings.append(
            f"The PyTorch script computes in {' and '.join(narrow)}, and the port in float32: its error is a hundredth "
            f'of PyTorch\'s own, or less. Give train_step the same: precision="{narrow[0]}"'
        )
    return dataclasses.replace(
        result,
        ratio=ratio,
        narrow=narrow,
        warnings=tuple(warnings),
    )


@dataclass(frozen=True)
class _Trained:
    """One pass over the batches.

    Attributes:
      ways: PyTorch's, and the port's last.
      left: of PyTorch's first way and of the port, in float64.
      torch_draws, port_draws: what draws random numbers in float64; empty where nothing does.
      torch_dtypes: narrower ones than float32 in which PyTorch's first way ran.
      traces: of the port's step.
      warnings: what a reader should know of the steps.
      interrupted: Ctrl-C came; the ways have the steps that all of them had made, and nothing is left to compare.
    """

    ways: list[Way]
    left: tuple[Left, Left] | None
    torch_draws: str
    port_draws: str
    torch_dtypes: set[str]
    traces: int
    warnings: list[str]
    interrupted: bool = False

    @property
    def torch(self) -> Way:
        return self.ways[0]

    @property
    def port(self) -> Way:
        return self.ways[-1]


def _trained(
    training: Training, kinds: tuple[Kind, ...], dtype: str, count: int, seed: int, device: str, told: Told
) -> _Trained:
    """PyTorch's ways and then the port's, a batch at a time through each in turn."""
    exact = dtype == "float64"
    first = _reference(training, seed)
    with _in(dtype, device):
        with _named(training, "building the model"):
            model = training.model(nnx.Rngs(seed))
        load(model, first.state_dict(), training.weights)
        runners: list[tuple[Way, Runner]] = []
        for kind in kinds:
            module = _placed(first, dtype, device)
            seen = kind == "eager" and not exact
            with _named(training, "reference_step"):
                in_torch = TorchRunner(training, module, kind, watched=exact, seen=seen)
            runners.append((Way(f"torch.{kind}", dtype), in_torch))
        with _named(training, "model_step"):
            port = port_runner(training, model, dtype)
        runners.append((Way(PORT, dtype), port))
        interrupted = False
        try:
            with remembered() as again:
                for number, batch in enumerate(_batches(training, count, seed)):
                    again()
                    for way, runner in runners:
                        if not way.reason:
                            its = training.to_model(batch) if runner is port else batch
                            framework: Framework = "jax" if runner is port else "torch"
                            _step(training, way, runner, in_dtype(its, dtype, framework, device))
                    if (number + 1) % max(1, count // 4) == 0:
                        told(f"{dtype}: step {number + 1} of {count}, loss {runners[0][0].losses[-1]:.4g}")
            for way, runner in runners:
                if not way.reason:
                    way.scores = _scores(training, runner)
        except KeyboardInterrupt:
            if not _cut([way for way, _ in runners]):
                raise
            interrupted = True
        sides = (runners[0], runners[-1])
        left = []
        if exact and not interrupted:
            left = [dataclasses.replace(runner.left(), scores=way.scores) for way, runner in sides]
    return _Trained(
        ways=[way for way, _ in runners],
        left=(left[0], left[1]) if left else None,
        torch_draws=runners[0][1].draws(),
        port_draws=port.draws(),
        torch_dtypes=sides[0][1].narrow_dtypes(),
        traces=port.traces,
        warnings=list(filter(None, [port.warning() or runners[0][1].warning()])),
        interrupted=interrupted,
    )


def _cut(ways: list[Way]) -> int:
    """To the steps that all of them have made, which it gives."""
    made = min(len(way.losses) for way in ways if not way.reason)
    for way in ways:
        way.scores = {}
        del way.losses[made:], way.seconds[made:]
    return made


def _compared(
    training: Training, wide: _Trained, count: int, seed: int, device: str, told: Told
) -> tuple[list[Apart], dict[Kept, int], list[str]]:
    """What both are left with; where something is off, the reference is trained once more to tell its own rounding."""
    assert wide.left is not None
    reference, port = wide.left
    found = compare(port, reference, None, training.weights)
    if not found[0]:
        return found
    told(f"{len(found[0])} of what is left are off; the reference once more, from weights one rounding apart")
    module = _reference(training, seed)
    with _in("float64", device):
        module = _placed(module, "float64", device)
        nudge(module, seed)
        runner = TorchRunner(training, module, "eager", watched=False)
        for batch in _batches(training, count, seed):
            runner(in_dtype(batch, "float64", "torch", device))
        scores = _scores(training, runner)
        moved = dataclasses.replace(runner.left(), scores=scores)
    return compare(port, reference, moved, training.weights)


def _where(training: Training, last: int, seed: int, device: str) -> str:
    """What differs first, of the steps until the last one that is to be looked at; both are run once more for it."""
    module = _reference(training, seed)
    with _in("float64", device):
        runners = _noted(training, module, seed, device)
        left = [runner.left().copy() for runner in runners]
        for number, batch in enumerate(_batches(training, last + 1, seed)):
            port, reference = runners
            losses = (
                port(in_dtype(training.to_model(batch), "float64", "jax", device)),
                reference(in_dtype(batch, "float64", "torch", device)),
            )
            before, left = left, [runner.left().copy() for runner in runners]
            taken = [
                Taken(loss, one.gradients(), one.rates(), was, now, one.settings())
                for loss, one, was, now in zip(losses, runners, before, left, strict=True)
            ]
            if words := parted(number, *taken):
                return words
    return ""


def _noted(training: Training, module: torch.nn.Module, seed: int, device: str) -> tuple[PortRunner, TorchRunner]:
    model = training.model(nnx.Rngs(seed))
    load(model, module.state_dict(), training.weights)
    placed = _placed(module, "float64", device)
    return (
        port_runner(training, model, "float64", noted=True),
        TorchRunner(training, placed, "eager", watched=False, noted=True),
    )


def _reference(training: Training, seed: int) -> torch.nn.Module:
    """Drawn in float32 for every dtype of a run."""
    allow_tf32("float32")
    torch.manual_seed(seed)
    with _named(training, "building the reference"):
        return training.reference().train()


def _placed(module: torch.nn.Module, dtype: str, device: str) -> torch.nn.Module:
    return copied(module).to(device="cuda" if device == "gpu" else "cpu", dtype=getattr(torch, dtype))


def _batches(training: Training, count: int, seed: int) -> Iterator[Any]:
    with _named(training, "batches"):
        batches = iter(training.batches(np.random.default_rng(seed), count))
    for number in range(count):
        with _named(training, "batches"):
            batch = next(batches, None)
        if batch is None:
            raise CaseError(f"training {training.name!r}: batches gives {number} of the {count} asked for")
        yield batch


def _scores(training: Training, runner: Runner) -> dict[str, float]:
    if training.scores is None:
        return {}
    score = training.scores[isinstance(runner, PortRunner)]
    with _named(training, "the port's score" if isinstance(runner, PortRunner) else "the reference's score"):
        return {name: float(value) for name, value in score(runner.evaluated()).items()}


@contextlib.contextmanager
def _named(training: Training, what: str) -> Iterator[None]:
    """What fails in a user's code is told with the line."""
    try:
        yield
    except (CaseError, WeightsError):
        raise
    except Exception as error:
        raise CaseError(f"training {training.name!r}: {what} fails: {describe_with_line(error)}") from error


def _step(training: Training, way: Way, runner: Runner, batch: Any) -> None:
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


def _gaps(port: list[float], reference: list[float]) -> np.ndarray:
    """Relative, of each step; infinite where the port's loss alone is not finite."""
    ours, theirs = np.asarray(port), np.asarray(reference)
    gaps = np.abs(ours - theirs) / np.maximum(np.abs(theirs), np.finfo(float).tiny)
    return np.where(np.isfinite(ours), gaps, np.inf)


def _ratio(wide: list[_Trained], usual: list[_Trained]) -> float | None:
    return error_ratio(
        [np.asarray(each.port.losses) for each in usual],
        [np.asarray(each.torch.losses) for each in usual],
        [np.asarray(each.torch.losses) for each in wide],
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
            attention_in_float64() if dtype == "float64" else contextlib.nullcontext(),
        ):
            yield
    finally:
        torch.set_default_dtype(before)
