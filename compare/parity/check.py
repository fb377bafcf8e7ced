"""`check`: both verdicts on every port of a case, with the evidence."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jax.tree_util as jtu
import numpy as np

from graphmode.weights import as_numpy

from ..case import Case, CaseError, Inputs, Mode
from ..draw import check_inputs, edge_inputs, generator, random_inputs, signature
from ..observation import Observation
from ..quiet import quiet
from ..report.results import Parity, Tensor
from ..trees import is_floating
from . import yardstick
from .yardstick import (
    PRECISE_RATIO,
    SMALLEST_SCALE,
    Difference,
    difference,
    is_judged,
    magnitude,
    port_error,
    ratio_to,
    torch_error,
)

if TYPE_CHECKING:
    import torch

    from ..jax_side import PortSide
    from ..torch_side import TorchSide

DRAWS = 3
TIMED_DRAWS = 2
JITTERS = 2

Key = tuple[str, str]  # kind and name of a tensor


@dataclass(frozen=True)
class Question:
    """One input that both sides answer: its name, the inputs themselves and, for a backward pass, its cotangents."""

    label: str
    mode: Mode
    inputs: Inputs
    cotangents: Mapping[str, np.ndarray] | None
    is_random: bool
    is_timed: bool = False


@dataclass(frozen=True)
class Truth:
    """The judge's answers to one question: in float64, and in the dtype that people run.

    `jitter` has the errors of further answers in that dtype, on inputs moved by half an ulp: how far rounding alone
    moves each tensor.
    """

    question: Question
    reference: Observation
    torch: Observation
    jitter: tuple[Mapping[Key, float], ...] = ()

    @functools.cached_property
    def largest_gradient(self) -> float:
        """The largest magnitude in any gradient of the model."""
        return max(map(magnitude, self._gradients()), default=0.0)

    @functools.cached_property
    def largest_gradient_rms(self) -> float:
        """The root mean square of the gradient where it is largest."""
        return max(map(yardstick.rms, self._gradients()), default=0.0)

    def _gradients(self) -> Iterator[np.ndarray]:
        return (array for kind, _, array in self.reference.tensors() if kind.endswith("gradient"))


@dataclass
class CheckReport:
    """What `check` found: one `Parity` for each port, and for each further variant of the reference.

    Attributes:
      case: its name.
      parity: verdicts with their evidence, as they go into `results.json`.
    """

    case: str
    parity: list[Parity] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return all(p.equal for p in self.parity)

    @property
    def precise(self) -> bool:
        return all(p.precise for p in self.parity)

    @property
    def passed(self) -> bool:
        return bool(self.parity) and all(p.passed for p in self.parity)

    def __str__(self) -> str:
        lines = [f"{self.case}: {'passed' if self.passed else 'FAILED'}"]
        for p in self.parity:
            side = "port" if p.side == "jax" else "reference"
            lines.append(f"  {side} {p.variant}: {_verdict(p)}")
            lines += [f"    {line}" for line in _evidence(p)]
            lines += [f"    note: {note}" for note in p.notes]
        return "\n".join(lines)


def check(
    case: Case,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    dtype: str = "float32",
    device: str = "cpu",
    on_verdict: Callable[[Parity], None] = lambda _: None,
) -> CheckReport:
    """Compares every port of a case, and every further variant of its reference, with the judge.

    Outputs in evaluation mode; outputs, gradients of every parameter and floating input, and buffers after the step in
    training mode; for `draws` random inputs and every edge input. The verdict *equal* is found in float64, *precise*
    in `dtype`.

    Args:
      case: what to compare.
      seed: repeats a run.
      draws: how many random inputs.
      dtype: that people run, `"float32"` or `"bfloat16"`.
      device: `"cpu"` or `"gpu"`.
      on_verdict: called with each verdict as it is found.

    Raises:
      CaseError: where the case cannot be compared as it is written, such as another structure of outputs.
      WeightsError: where the weights do not match a port.
      ImportError: where PyTorch is not installed.

    Example:
      >>> from graphmode.models import zoo
      >>> check(zoo.load("scale_add")).passed
      True
    """
    exam = Examination(case, seed=seed, draws=draws, dtype=dtype, device=device)
    report = CheckReport(case.name)
    for parity in exam.verdicts():
        report.parity.append(parity)
        on_verdict(parity)
    return report


class Examination:
    """The judge's answers to every question about a case, and the way to judge somebody else's.

    Building one builds the references and runs the judge, unless its answers are given as `truths`, found elsewhere
    with the same seed; `verdicts` then runs the ports.
    """

    def __init__(
        self,
        case: Case,
        *,
        seed: int,
        draws: int = DRAWS,
        dtype: str = "float32",
        device: str = "cpu",
        truths: list[Truth] | None = None,
    ):
        from ..torch_side import TorchSide, build_references

        self.case, self.seed, self.dtype, self.device = case, seed, dtype, device
        self.torch_device = "cuda" if device == "gpu" else "cpu"
        self.references, self.perturbed = build_references(case, seed)
        self.judge_name, judge = next(iter(self.references.items()))
        self.state_dict = {name: as_numpy(value) for name, value in judge.state_dict().items()}
        exact = TorchSide(judge, case, dtype="float64", device=self.torch_device)
        usual = TorchSide(judge, case, dtype=dtype, device=self.torch_device)
        self.parameters = sum(p.numel() for p in judge.parameters())
        self._sides = exact, usual
        self._torch_errors: dict[tuple[Key, tuple[int, ...]], float] = {}
        if truths is not None:
            self.truths = truths
        else:
            drawn = [(f"random {i}", check_inputs(case, seed, i), True) for i in range(draws)]
            drawn += [(name, inputs, False) for name, inputs in edge_inputs(case, seed)]
            with quiet():
                self.truths = [self._truth(question) for question in self._questions(drawn)]
        self.scales = self._scales()

    def ask_timed(self) -> None:
        """Adds the judge's answers on what is timed, where the verdicts were found on smaller inputs."""
        if self.case.check_inputs is None or any(truth.question.is_timed for truth in self.truths):
            return
        drawn = [(f"timed {i}", random_inputs(self.case, self.seed, i), True) for i in range(TIMED_DRAWS)]
        with quiet():
            self.truths += [self._truth(question) for question in self._questions(drawn, is_timed=True)]
        self.scales = self._scales()

    def _questions(self, drawn: list[tuple[str, Inputs, bool]], *, is_timed: bool = False) -> Iterable[Question]:
        for mode in self.case.modes:
            for label, inputs, is_random in drawn:
                if mode != "inference" and label in self.case.interpret:
                    continue  # what is there to be read has no gradient to be read
                cotangents = None
                if mode != "inference" and self.case.loss is None:
                    rng = generator(self.case, self.seed, f"cotangents {label}")
                    cotangents = {
                        name: np.asarray(rng.standard_normal(shape), np.float32)
                        for name, shape in self._output_shapes(inputs).items()
                    }
                yield Question(label, mode, inputs, cotangents, is_random, is_timed)

    def _output_shapes(self, inputs: Inputs) -> dict[str, tuple[int, ...]]:
        """Of the floating outputs, by name."""
        outputs = self._sides[1].run(inputs, "inference").outputs
        return {name: value.shape for name, value in outputs.items() if is_floating(value)}

    def _truth(self, question: Question) -> Truth:
        exact, usual = self._sides
        try:
            reference = exact.run(question.inputs, question.mode, question.cotangents)
            jitter = tuple(
                _errors(usual.run(self._jitter(question, i), question.mode, question.cotangents), reference)
                for i in range(JITTERS if question.is_random and question.mode != "inference" else 0)
            )
            return Truth(question, reference, usual.run(question.inputs, question.mode, question.cotangents), jitter)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise CaseError(
                f"case {self.case.name!r}: the reference {self.judge_name!r} fails on the input {question.label!r} in "
                f"{question.mode}: {type(error).__name__}: {error}"
            ) from error

    def _jitter(self, question: Question, index: int) -> Inputs:
        """The question's inputs, each floating element moved by up to half an ulp before it is rounded again."""
        rng = generator(self.case, self.seed, f"jitter {question.label}", index)

        def move(leaf: np.ndarray) -> np.ndarray:
            if not is_floating(leaf):
                return leaf
            noise = rng.uniform(-1, 1, leaf.shape) * 2 * yardstick.HALF_ULP[self.dtype]
            return np.asarray(leaf * (1 + noise), leaf.dtype)

        return jtu.tree_map(move, question.inputs)

    def _scales(self) -> dict[tuple[str, Key], float]:
        """By mode and tensor, its largest magnitude over all inputs."""
        scales: dict[tuple[str, Key], float] = defaultdict(float)
        for truth in self.truths:
            for kind, name, array in truth.reference.tensors():
                key = truth.question.mode, (kind, name)
                scales[key] = max(scales[key], magnitude(array))
        return scales

    def verdicts(self) -> Iterable[Parity]:
        """Judges the reference's further variants, then every port."""
        for name, module in self.references.items():
            if name != self.judge_name:
                yield self.judge(
                    "torch",
                    name,
                    functools.partial(self._reference_side, module),
                )
        for name in self.case.models:
            yield self.judge(
                "jax",
                name,
                functools.partial(self._port_side, name),
            )

    def _reference_side(self, module: torch.nn.Module, dtype: str) -> TorchSide:
        from ..torch_side import TorchSide

        return TorchSide(module, self.case, dtype=dtype, device=self.torch_device)

    def _port_side(self, variant: str, dtype: str) -> PortSide:
        from ..jax_side import PortSide

        return PortSide(self.case, variant, self.state_dict, dtype=dtype, device=self.device, seed=self.seed)

    def judge(self, side: str, variant: str, build: Callable[[str], TorchSide | PortSide]) -> Parity:
        """Both verdicts on one candidate; `build` gives it in a dtype."""
        start = time.perf_counter()
        truths = [truth for truth in self.truths if not truth.question.is_timed]
        notes: list[str] = []
        answers: dict[str, list[Observation]] = {}
        candidates = {dtype: build(dtype) for dtype in ("float64", self.dtype)}
        if side == "jax":
            self._compile_ahead(candidates.values(), truths)  # type: ignore[arg-type]
        for dtype, candidate in candidates.items():
            with quiet():
                answers[dtype] = [self._answer(candidate, truth, side, variant) for truth in truths]
        tensors = self._tensors(answers["float64"], answers[self.dtype], notes)
        readings: dict[str, str] = {}
        for truth, answer in zip(truths, answers[self.dtype], strict=True):
            if truth.question.mode == "inference" and (read := self.case.interpret.get(truth.question.label)):
                readings.update(read(_plain(answer.outputs)))
        return Parity(
            case=self.case.name,
            variant=variant,
            side=side,  # type: ignore[arg-type]
            equal=all(t.equal for t in tensors),
            precise=all(t.precise for t in tensors),
            inputs=list(dict.fromkeys(truth.question.label for truth in truths)),
            tensors=tensors,
            notes=list(dict.fromkeys(notes)),
            readings=readings,
            duration_s=time.perf_counter() - start,
        )

    def _compile_ahead(self, ports: Iterable[PortSide], truths: list[Truth]) -> None:
        """Compiles all graphs that the questions need on two threads: XLA compiles one graph on one."""
        questions = {(q.mode, signature(q.inputs)): q for q in (truth.question for truth in truths)}
        for port in ports:
            for mode in self.case.modes:
                port.program(mode)

        def compile_one(port: PortSide, question: Question) -> None:
            with contextlib.suppress(Exception):  # it comes again, and is told by name, when the question is asked
                port.compile(question.inputs, question.mode, question.cotangents)

        with quiet(), ThreadPoolExecutor(2) as pool:
            for port in ports:
                for question in questions.values():
                    pool.submit(compile_one, port, question)

    def _answer(self, candidate: TorchSide | PortSide, truth: Truth, side: str, variant: str) -> Observation:
        """The candidate's answer, its outputs by the reference's names.

        Raises:
          CaseError: where it cannot run, or gives another structure.
        """
        question = truth.question
        try:
            answer = candidate.run(question.inputs, question.mode, question.cotangents).renamed(truth.reference)
        except CaseError:
            raise
        except Exception as error:
            whose = "port" if side == "jax" else "reference's variant"
            raise CaseError(
                f"case {self.case.name!r}: the {whose} {variant!r} fails on the input {question.label!r} in "
                f"{question.mode}: {type(error).__name__}: {error}"
            ) from error
        if answer.outputs.keys() != truth.reference.outputs.keys():
            raise CaseError(
                f"case {self.case.name!r}: the reference's outputs are {', '.join(truth.reference.outputs)}, and those "
                f"of the {'port' if side == 'jax' else 'variant'} {variant!r} are {', '.join(answer.outputs)}; give "
                "the same structure, or write to_reference"
            )
        return answer

    def _tensors(self, exact: list[Observation], usual: list[Observation], notes: list[str]) -> list[Tensor]:
        """Every tensor's verdicts, the worst over all inputs."""
        judged = []
        for mode in self.case.modes:
            rows = [i for i in range(len(exact)) if self.truths[i].question.mode == mode]
            for key in self._keys(rows, exact, notes):
                judged.append(self._tensor(mode, key, rows, exact, usual, notes))
        return judged

    def _keys(self, rows: list[int], candidate: list[Observation], notes: list[str]) -> list[Key]:
        """The tensors of these questions, those that only one side has among them."""
        reference = [(kind, name) for i in rows for kind, name, _ in self.truths[i].reference.tensors()]
        given = [(kind, name) for i in rows for kind, name, _ in candidate[i].tensors()]
        return list(dict.fromkeys([*reference, *given]))

    def _tensor(
        self,
        mode: str,
        key: Key,
        rows: list[int],
        exact: list[Observation],
        usual: list[Observation],
        notes: list[str],
    ) -> Tensor:
        kind, name = key
        worst, at = Difference(0.0), ""
        for i in rows:
            ours, theirs = exact[i].find(key), self.truths[i].reference.find(key)
            found = self._difference(mode, key, i, ours, theirs, notes)
            if ours is not None and theirs is not None and ours.dtype != theirs.dtype and ours.dtype.kind == "f":
                notes.append(
                    f"{mode}: {kind} {name} is {ours.dtype} in a {theirs.dtype} run: something inside the port casts"
                )
            if found.error > worst.error or not at:
                worst, at = found, self.truths[i].question.label
        ratio, precise, why = self.precision(mode, key, rows, usual)
        return Tensor(
            name=name,
            kind=kind,  # type: ignore[arg-type]
            mode=mode,
            equal=worst.equal,
            precise=precise,
            error=worst.error if np.isfinite(worst.error) else None,
            ratio=ratio if ratio is not None and np.isfinite(ratio) else None,
            input=at,
            index=worst.index,
            port_value=worst.port,
            reference_value=worst.reference,
            note="; ".join(part for part in (worst.note, why) if part),
        )

    def _difference(
        self, mode: str, key: Key, row: int, ours: np.ndarray | None, theirs: np.ndarray | None, notes: list[str]
    ) -> Difference:
        kind, name = key
        if ours is not None and theirs is not None:
            return difference(ours, theirs, self.scale(mode, key, row))
        if theirs is None:
            notes.append(f"{mode}: the port has the {kind} {name}, and the reference has it not as such")
            return Difference(0.0) if kind == "parameter_gradient" else Difference(np.inf, note="only the port has it")
        if name not in self._kept or name.endswith("num_batches_tracked"):
            notes.append(f"{mode}: the {kind} {name} is not kept by the port, and was not compared")
            return Difference(0.0)
        return Difference(np.inf, note="the port has it not: parameters must be nnx.Params")

    def scale(self, mode: str, key: Key, row: int) -> float:
        """What an error in this tensor is a fraction of; for a gradient, the largest gradient of the model."""
        if not key[0].endswith("gradient"):
            own = magnitude(self.truths[row].reference.get(key))
            return max(own, SMALLEST_SCALE * self.scales[mode, key])
        overall = max(truth.largest_gradient for truth in self.truths if truth.question.mode == mode)
        return max(self.truths[row].largest_gradient, SMALLEST_SCALE * overall)

    def precision(
        self, mode: str, key: Key, rows: list[int], usual: list[Observation]
    ) -> tuple[float | None, bool, str]:
        """The worst error ratio, the verdict, and what to say about it: random inputs pooled, each edge by itself."""
        edges = [[i] for i in rows if not self.truths[i].question.is_random] if key[0] == "output" else []
        pools = [[i for i in rows if self.truths[i].question.is_random], *edges]
        worst: float | None = None
        notes: list[str] = []
        kinked = key[0].endswith("gradient")
        for pool in filter(None, pools):
            triples = [
                (usual[i].find(key), self.truths[i].torch.find(key), self.truths[i].reference.find(key)) for i in pool
            ]
            if any(array is None for triple in triples for array in triple):
                continue
            ours, torch, reference = (list(column) for column in zip(*triples, strict=True))
            for p, t, r in zip(ours, torch, reference, strict=True):
                if blame := gross_fault(p, t, r):
                    return worst, False, blame
            if not is_judged(reference):
                notes.append(f"precision not judged: {reference[0].size} elements")
                continue
            theirs = self._torch_error(key, tuple(pool), torch, reference)
            ratio = ratio_to(port_error(ours, reference, kinked=kinked), theirs)
            if worst is None or ratio > worst:
                worst = ratio
        note = "" if worst is not None else (notes[0] if notes else "")
        return worst, worst is None or worst <= PRECISE_RATIO, note

    def _torch_error(
        self, key: Key, pool: tuple[int, ...], torch: list[np.ndarray], reference: list[np.ndarray]
    ) -> float:
        """PyTorch's own error in a tensor, over these inputs and, for a gradient, jittered ones; found once."""
        if (key, pool) not in self._torch_errors:
            kinked = key[0].endswith("gradient")
            self._torch_errors[key, pool] = torch_error(
                torch,
                reference,
                dtype=self.dtype,
                floor_scale=self._floor_scale(key, list(pool)),
                kinked=kinked,
                further=[errors[key] for i in pool for errors in self.truths[i].jitter if key in errors and kinked],
            )
        return self._torch_errors[key, pool]

    def _floor_scale(self, key: Key, rows: list[int]) -> float:
        """For a gradient that is nothing but rounding (zero in exact arithmetic), the size of the model's largest."""
        if not key[0].endswith("gradient"):
            return 0.0
        sizes = [(yardstick.rms(self.truths[i].reference.get(key)), self.truths[i].largest_gradient_rms) for i in rows]
        own, largest = np.median(sizes, axis=0)
        return float(largest) if own < SMALLEST_SCALE * largest else 0.0

    @property
    def _kept(self) -> set[str]:
        """Names that the case does not drop."""
        from graphmode.weights import Drop

        dropped = [rule for rule in self.case.weights if isinstance(rule, Drop)]
        names = {name for truth in self.truths for _, name, _ in truth.reference.tensors()}
        return {name for name in names if not any(rule.matches(name) for rule in dropped)}


def _errors(answer: Observation, reference: Observation) -> dict[Key, float]:
    """The root mean square error of each floating tensor."""
    pairs = (((kind, name), array, reference.find((kind, name))) for kind, name, array in answer.tensors())
    return {
        key: yardstick.rms_error(ours, theirs)
        for key, ours, theirs in pairs
        if theirs is not None and ours.shape == theirs.shape and is_floating(ours)
    }


def gross_fault(port: np.ndarray, torch: np.ndarray, reference: np.ndarray) -> str:
    """What no precision excuses: another shape, a new NaN or infinity, an integer that PyTorch gets right."""
    if port.shape != torch.shape:
        return f"shape {port.shape}, and PyTorch has {torch.shape}"
    if reference.dtype.kind in "iub":
        wrong = (port != reference) & (torch == reference)
        return f"{int(wrong.sum())} of {port.size} elements differ" if wrong.any() else ""
    if np.isfinite(port).all():
        return ""
    new = ~np.isfinite(port) & np.isfinite(torch) & np.isfinite(reference)
    return f"{int(new.sum())} of {port.size} elements are not finite, and PyTorch's are" if new.any() else ""


def _plain(outputs: dict[str, np.ndarray]) -> object:
    """Named outputs as the case's `interpret` takes them: a bare array, or the mapping by name."""
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def _verdict(parity: Parity) -> str:
    if parity.error:
        return parity.error
    return f"{'equal' if parity.equal else 'NOT EQUAL'} and {'precise' if parity.precise else 'NOT PRECISE'}"


def _evidence(parity: Parity) -> Iterable[str]:
    """The tensors that failed, or the worst of those that passed."""
    failed = [t for t in parity.tensors if not (t.equal and t.precise)]
    for t in failed[:10] or filter(None, [parity.worst_error]):
        size = "" if t.error is None else f"error {t.error:.2g} of its scale"
        values = f" ({t.port_value} for {t.reference_value})" if t.port_value else ""
        ratio = "" if t.ratio is None else f", error ratio {t.ratio:.2f}"
        yield f"{t.mode} {t.kind} {t.name} on {t.input!r} at {list(t.index)}: {size}{values}{ratio} {t.note}".rstrip()
    if len(failed) > 10:
        yield f"and {len(failed) - 10} more tensors"
