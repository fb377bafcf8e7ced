"""Judging: what a candidate answers, beside what the judge answers, tensor by tensor."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from ..case import DEFAULT_VARIANT, Case, CaseError, Mode
from ..draw import signature
from ..endless import no_endless_loop
from ..errors import describe_briefly, describe_with_line
from ..observation import Observation
from ..quiet import quiet
from ..release import trim
from ..report.records import Parity, Tensor
from ..speed.machine import processors
from ..untraceable import port_failure
from .adversarial import HALF, Found, OwnInputs
from .coverage import coverage_warnings, listed, nan_notes
from .diagnosis import Diagnosis, diagnose, look_inside
from .differences import Differences, as_tensor
from .doubts import settled, unequal
from .dropout_rates import dropout_warnings
from .effect import without_effect
from .finite_by_rounding import finite_by_rounding
from .further import Further
from .judge import Judge, Key, Question, Truth
from .large_weights import overflows
from .lost_digits import diagnose_precision
from .lost_nan import lost_nan
from .more_draws import on_more_draws
from .narrower import narrower_reference
from .other_limits import is_told
from .other_weights import after_steps, with_other_weights
from .precision import Again as Redrawn
from .precision import Precision
from .scales import Scales
from .second_call import Again, in_turns, later_outputs, second_call
from .subnormal import Subnormal
from .yardstick import JUDGED_ELEMENTS, Difference

if TYPE_CHECKING:
    import torch

    from ..jax_side import PortSide
    from ..torch_side import TorchSide

NOT_JUDGED = (
    f"the precision of no tensor was judged: all have fewer than {JUDGED_ELEMENTS} elements, too few for statistics of "
    "rounding; give the case larger inputs, or such by check_inputs"
)
NOT_ASKED = "the check asked none of its own inputs, since something differs on the case's"
DRAWS = 3
REDRAWS = 4  # of an input in which a candidate seems imprecise


class Examination:
    """The judge's answers to every question about a case, and the way to judge somebody else's.

    Building one builds the references and runs the judge, unless its answers are given as `truths`, found elsewhere
    with the same seed; `verdicts` then runs the ports. Its own inputs are asked of those alone that are equal on the
    case's; a `hasty` one judges the precision of no other, either.
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
        locate: bool = True,
        inside: bool = False,
        compiled: bool = True,
        hasty: bool = False,
        on_stage: Callable[[str], None] = lambda stage: None,
    ):
        self.case, self.seed, self.dtype, self.device = case, seed, dtype, device
        self.on_stage = on_stage
        self.locate, self.inside, self.compiled, self.hasty = locate, inside, compiled, hasty
        self.judge = Judge(case, seed=seed, dtype=dtype, device=device)
        self.truths = self.judge.truths(draws) if truths is None else truths
        self.own = OwnInputs(self)
        self.scales = Scales(self.truths)
        self._ports: dict[tuple[str, str], PortSide] = {}
        self._sound: set[str] = set()
        self._fine: set[str] = set()
        self.subnormal = Subnormal(self.judge)
        self.precision = Precision(self)

    def ask_timed(self, modes: Sequence[Mode]) -> None:
        """Adds the judge's answers on what is timed, where the verdicts were found on smaller inputs."""
        if self.case.check_inputs is None or any(truth.question.is_timed for truth in self.truths):
            return
        self.truths += self.judge.timed_truths(modes)
        self.scales = Scales(self.truths)

    def verdicts(self) -> Iterable[Parity]:
        """Judges the reference's further variants, then every port."""
        for name, module in self.judge.references.items():
            if name != self.judge.name:
                yield self.verdict(
                    "torch",
                    name,
                    functools.partial(self._reference_side, module),
                )
        for name in self.case.models:
            yield self.verdict(
                "jax",
                name,
                functools.partial(self.port_side, name),
            )
        self.own.forget()

    def _reference_side(self, module: torch.nn.Module, dtype: str) -> TorchSide:
        from ..torch_side import TorchSide

        return TorchSide(module, self.case, dtype=dtype, device=self.judge.torch_device)

    def port_side(self, variant: str, dtype: str) -> PortSide:
        """A variant of the port in a dtype. Building takes long, so small ones are kept until the verdict is found."""
        if (variant, dtype) in self._ports:
            return self._ports[variant, dtype]
        port = self.port_with(variant, dtype, self.judge.state_dict)
        if not self.judge.is_large:
            self._ports[variant, dtype] = port
        return port

    def port_with(self, variant: str, dtype: str, state_dict: Mapping[str, np.ndarray]) -> PortSide:
        """The same with another `state_dict`."""
        from ..jax_side import PortSide

        return PortSide(
            self.case,
            variant,
            state_dict,
            dtype=dtype,
            device=self.device,
            seed=self.seed,
            compiled=self.compiled,
            declared=self.dtype,
            asked=lambda: self.judge.asked,
            ends=True,
            quickly=variant not in self._sound,
            fine=dtype == "float64" and variant in self._fine,
        )

    def finely(self, variant: str, *, built: bool) -> PortSide:
        """A variant in float64, built in float64 whatever dtype it asks for there, or as it asks."""
        (self._fine.add if built else self._fine.discard)(variant)
        self._ports.pop((variant, "float64"), None)
        return self.port_side(variant, "float64")

    def keep(self, port: PortSide, variant: str) -> PortSide:
        """A variant in float64 that is compiled soundly, in place of that which was compiled quickly."""
        self._sound.add(variant)
        if (variant, "float64") in self._ports:
            self._ports[variant, "float64"] = port
        return port

    def verdict(self, side: str, variant: str, build: Callable[[str], TorchSide | PortSide]) -> Parity:
        """Both verdicts on one candidate; `build` gives it in a dtype."""
        start = time.perf_counter()
        whose = "the reference's variant" if side == "torch" else "the port"
        whose += "" if variant == DEFAULT_VARIANT else f" {variant!r}"
        self.on_stage(f"{whose} on the case's inputs")
        truths = [truth for truth in self.truths if not truth.question.is_timed]
        notes = list(nan_notes(truths))
        if side == "jax":
            notes += self._not_learned
        apart = Differences(self.case, self.judge, self.scales)
        if self.judge.missing_weights:
            notes.append(f"checked with random weights: {self.judge.missing_weights}")
        exact, usual = build("float64"), None if self.hasty else build(self.dtype)
        if side == "jax" and self.compiled:
            self._compile_ahead([exact] if usual is None else [exact, usual], truths)  # type: ignore[list-item]
            trim()
        answers, own = None, Found()
        with quiet():
            # of an answer in float64 what differs is kept, and not the arrays: they are the largest thing here
            differences = [apart.of(truth, self.answer(exact, truth, side, variant)) for truth in truths]
            notes += apart.notes
            if side == "jax":
                exact, truths, differences, told = settled(self, variant, exact, truths, differences)  # type: ignore[arg-type]
                notes += told
            is_wrong = unequal(differences) > 0
            if not self.hasty or not is_wrong:
                usual = usual or build(self.dtype)
                answers = [self.answer(usual, truth, side, variant) for truth in truths]
                if is_wrong and self.own.kinds:
                    notes.append(NOT_ASKED)
                else:
                    self.on_stage(f"{whose} on inputs of the check's own")
                    own = self._on_own_inputs(exact, usual, side, variant)
                    notes += self.own.notes
            del exact
        with quiet():
            again = None if usual is None else self._again(usual, side, variant)
            tensors = self.tensors(differences, answers, again) + own.tensors
        # of a port that is wrong anyway, a gradient that differs at a kink says nothing more
        warnings = own.warnings if all(t.equal for t in tensors) else []
        warnings += self.subnormal.taken_warnings()
        left, others = Again(), Further()
        if side == "jax" and usual is not None and not self.judge.is_large and all(t.equal for t in tensors):
            asked = [t.question for t in truths if t.question.mode == "inference" and t.question.is_random]
            self.on_stage(f"{whose} in further calls and with other weights")
            with quiet():
                warnings += [lost for q in asked[:1] if (lost := lost_nan(usual, self.judge.usual, q))]  # type: ignore[arg-type]
                port = self.port_side(variant, "float64")
                left = second_call(self, port)
                if left.tensors and (sound := port.soundly()) is not None:
                    left = second_call(self, self.keep(sound, variant))
                tensors += self._finite_by_rounding(port, truths, notes)
                if not left.tensors:
                    others = on_more_draws(self, variant, self.port_side(variant, "float64"))
                if not (left.tensors or others.tensors):
                    exact = self.port_side(variant, "float64")
                    others = with_other_weights(self, variant, exact)
                    warnings += [lost for q in asked[:1] if (lost := overflows(self, variant, exact, q))]
            tensors += left.tensors + others.tensors
            notes += others.notes
            warnings += others.warnings
        if side == "jax" and usual is not None:
            warnings += self._untold(usual, truths, tensors)  # type: ignore[arg-type]
        if apart.trained:
            names = ", ".join(dict.fromkeys(apart.trained))
            warnings.append(
                f"the port has a gradient by {names}, which the reference freezes (requires_grad=False): a step that "
                "takes it trains them; leave them out of what the optimizer updates, or stop the gradient"
            )
        if side == "jax" and "train_step" in self.case.modes:
            found = self._optimizer
            (notes if isinstance(found, str) else tensors).append(found)  # type: ignore[arg-type]
        if side == "jax" and self.locate and not all(t.equal for t in tensors):
            self.on_stage(f"{whose} is not equal: looking for where it goes wrong, and why")
            if _are_steps_alone(tensors) and not self.judge.is_large:
                left = self._without_optimizer(variant, tensors)
                tensors += left.tensors
        accused = [t for t in tensors if t.mode != "train_step"] if left.tensors else tensors
        seen = self.seen_inside(variant, accused) if side == "jax" else Diagnosis()
        self._ports.clear()
        notes += seen.notes
        readings: dict[str, str] = {}
        for truth, answer in zip(truths, answers or (), strict=answers is not None):
            if self.judge.missing_weights:
                break  # random weights read nothing
            if truth.question.mode == "inference" and (read := self.case.interpret.get(truth.question.label)):
                readings.update(read(_plain(answer.outputs)))
        return Parity(
            case=self.case.name,
            variant=variant,
            side=side,  # type: ignore[arg-type]
            equal=all(t.equal for t in tensors),
            precise=all(t.precise for t in tensors),
            inputs=list(dict.fromkeys([*(truth.question.label for truth in truths), *own.labels, *others.labels])),
            tensors=tensors,
            notes=list(dict.fromkeys(notes)),
            readings=readings,
            dtype=self.dtype,
            divergences=seen.divergences + left.divergences + others.divergences,
            modules=seen.modules,
            warnings=[*self._coverage, *warnings] if side == "jax" else warnings,
            duration_s=time.perf_counter() - start,
        )

    def seen_inside(self, variant: str, tensors: Sequence[Tensor]) -> Diagnosis:
        if self.locate and not all(t.equal for t in tensors):
            return diagnose(self, variant, tensors)
        if self.locate and not all(t.precise for t in tensors):
            return diagnose_precision(self, variant, tensors)
        return look_inside(self, variant) if self.inside else Diagnosis()

    def _without_optimizer(self, variant: str, tensors: Sequence[Tensor]) -> Again:
        """What is off in later calls, or with later weights, of a port that is wrong after steps of training alone:
        before its optimizer is accused."""
        port, label = self.port_side(variant, "float64"), next(t.input for t in tensors if not t.equal)
        with quiet():
            left = second_call(self, port)
            if left.tensors:
                return left
            found = after_steps(self, variant, port, label)
        return Again(found.tensors, found.divergences)

    def _finite_by_rounding(self, port: PortSide, truths: Sequence[Truth], notes: list[str]) -> list[Tensor]:
        """Gradients that would be NaN without what a compiled graph rounds."""
        asked = (t for t in truths if t.question.mode == "forward_backward" and t.question.is_random)
        truth = next((t for t in asked if not t.question.is_timed), None)
        try:
            return finite_by_rounding(port, truth) if truth is not None else []
        except Exception as error:  # what some primitive does operation by operation is no verdict
            notes.append(f"whether gradients are finite by rounding alone was not found out: {describe_briefly(error)}")
            return []

    def _untold(self, port: PortSide, truths: Sequence[Truth], tensors: Sequence[Tensor]) -> Iterator[str]:
        """What neither verdict tells of a port."""
        yield from narrower_reference(tensors, truths, self.dtype)
        if self.case.modes != ("inference",):
            trained = (t.question for t in truths if t.question.mode == "forward_backward" and not t.question.is_timed)
            yield from dropout_warnings(self.judge.exact, port, next(trained, None))
        rounds = any(array.dtype.kind in "fc" for truth in truths for _, _, array in truth.reference.tensors())
        if rounds and all(t.equal and t.precise and t.ratio is None for t in tensors):
            yield NOT_JUDGED

    @functools.cached_property
    def _optimizer(self) -> Tensor | str:
        from .optimizer import examine_optimizer

        return examine_optimizer(self.case, seed=self.seed, dtype=self.dtype, device=self.device)

    @property
    def _not_learned(self) -> Iterator[str]:
        """Which gradients are not compared, since the reference has none."""
        frozen, module = self.judge.frozen, self.judge.references[self.judge.name]
        if frozen and "forward_backward" in self.case.modes:
            every = not any(p.requires_grad for p in module.parameters())
            whose = "any parameter" if every else listed(frozen)
            yield f"the gradient of {whose} was not compared: the reference has requires_grad=False there"

    @functools.cached_property
    def _coverage(self) -> list[str]:
        """What no verdict on these inputs could show."""
        module = self.judge.references[self.judge.name]
        learned = [name for name, p in module.named_parameters() if p.requires_grad]
        effect = without_effect if not self.judge.is_large else lambda _, truth, names: names
        truths = [*self.truths, *self.own.asked]
        asked = [t.question for t in reversed(self.truths) if t.question.is_random and not t.question.is_timed]
        firsts = {question.mode: question for question in asked if question.mode != "train_step"}
        turns = functools.cache(lambda: [in_turns(self.judge, first) for first in firsts.values()])
        told = functools.partial(is_told, self.judge.exact, truths, in_turns=turns)
        later = functools.partial(later_outputs, self.judge)
        return coverage_warnings(
            self.truths,
            self.judge.state_dict,
            learned,
            self.judge.sides,
            functools.partial(effect, self.judge.exact),
            told if not self.judge.is_large else lambda *_: True,
            later if not self.judge.is_large else lambda _: (),
            [truth for truth in self.own.asked if truth.question.label == HALF],
        )

    def _on_own_inputs(
        self, exact: TorchSide | PortSide, usual: TorchSide | PortSide, side: str, variant: str
    ) -> Found:
        own = self.own.examine(exact, usual)
        sound = exact.soundly() if side == "jax" and own.apart else None  # type: ignore[union-attr]
        if sound is None:
            return own
        again = self.own.examine(sound, usual, own.apart.values())
        if again.apart.keys() == own.apart.keys():
            return own
        return self.own.examine(self.keep(sound, variant), usual)

    def _compile_ahead(self, ports: Iterable[PortSide], truths: list[Truth]) -> None:
        """Compiles all graphs that the questions need on several threads: XLA compiles one graph on one."""
        questions = {(q.mode, signature(q.inputs)): q for q in (truth.question for truth in truths)}
        ports = list(ports)
        for port in ports:
            for mode in self.case.modes:
                port.program(mode)

        def compile_one(port: PortSide, question: Question) -> None:
            with contextlib.suppress(Exception):  # it comes again, and is told by name, when the question is asked
                port.compile(question.inputs, question.mode, question.cotangents)

        threads = 1 if any(port.keeps_results for port in ports) else max(2, len(processors()) // 2)
        with quiet(), ThreadPoolExecutor(threads) as pool:
            for port in ports:
                for question in questions.values():
                    pool.submit(compile_one, port, question)

    def answer(self, candidate: TorchSide | PortSide, truth: Truth, side: str, variant: str) -> Observation:
        """The candidate's answer, its outputs by the reference's names.

        Raises:
          CaseError: where it cannot run, or gives another structure.
        """
        question = truth.question
        try:
            with no_endless_loop():
                answer = candidate.run(question.inputs, question.mode, question.cotangents).renamed(truth.reference)
        except CaseError:
            raise
        except Exception as error:
            where = f"on the input {question.label!r} in {question.mode}"
            told = f"the reference's variant {variant!r} fails {where}: {describe_with_line(error)}"
            if side == "jax":
                told = f"the port {variant!r} {port_failure(error, where)}"
            raise CaseError(f"case {self.case.name!r}: {told}") from error
        if answer.outputs.keys() != truth.reference.outputs.keys():
            ours, theirs = (", ".join(given.outputs) or "none at all" for given in (answer, truth.reference))
            raise CaseError(
                f"case {self.case.name!r}: the reference's outputs are {theirs}, and those of the "
                f"{'port' if side == 'jax' else 'variant'} {variant!r} are {ours}; give the same structure, or write "
                "to_reference"
            )
        return answer

    def _again(self, candidate: TorchSide | PortSide, side: str, variant: str) -> Redrawn:
        """Further draws of an input, with the candidate's answers."""

        @functools.cache
        def draw(row: int) -> list[tuple[Truth, Observation]]:
            truths = self.judge.redrawn(self.truths[row].question, REDRAWS)
            return [(truth, self.answer(candidate, truth, side, variant)) for truth in truths]

        return draw

    def tensors(
        self,
        differences: list[dict[Key, Difference]],
        answers: list[Observation] | None = None,
        again: Redrawn | None = None,
    ) -> list[Tensor]:
        """Every tensor's verdicts, the worst over all inputs; its precision is judged by the answers, if any."""
        judged = []
        for mode in self.case.modes:
            rows = [i for i in range(len(differences)) if self.truths[i].question.mode == mode]
            for key in dict.fromkeys(key for i in rows for key in differences[i]):
                judged.append(self._tensor(mode, key, rows, differences, answers, again))
        return judged

    def _tensor(
        self,
        mode: Mode,
        key: Key,
        rows: list[int],
        differences: list[dict[Key, Difference]],
        answers: list[Observation] | None,
        again: Redrawn | None,
    ) -> Tensor:
        worst, at = Difference(0.0), ""
        for i in rows:
            found = differences[i].get(key)
            if found is not None and (found.error > worst.error or not at):
                worst, at = found, self.truths[i].question.label
        ratio, precise, why = None, worst.equal, ""
        if answers is not None:
            ratio, precise, why = self.precision.verdict(mode, key, rows, answers, again, is_equal=worst.equal)
        return dataclasses.replace(
            as_tensor(mode, at, key, worst, precise=precise),
            ratio=ratio if ratio is not None and np.isfinite(ratio) else None,
            note="; ".join(dict.fromkeys(filter(None, (worst.note, why)))),
        )


def _are_steps_alone(tensors: Sequence[Tensor]) -> bool:
    """Whether nothing is off but what several steps of training make, the optimizer by itself being right."""
    return all(t.equal or (t.mode == "train_step" and t.kind != "update") for t in tensors)


def _plain(outputs: dict[str, np.ndarray]) -> object:
    """Named outputs as the case's `interpret` takes them: a bare array, or the mapping by name."""
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs
