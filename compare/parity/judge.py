"""The judge: the reference's first variant, and its answers to every question about a case."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jax.tree_util as jtu
import numpy as np

from graphmode.weights import Drop, as_numpy

from ..case import Case, CaseError, Inputs, Mode
from ..draw import check_inputs, edge_input, edge_inputs, generator, random_inputs, signature
from ..dtypes import allow_tf32, check_dtype
from ..errors import describe_with_line
from ..observation import Observation
from ..quiet import quiet
from ..release import trim
from ..trees import is_floating
from . import yardstick
from .coverage import Sides
from .yardstick import largest

if TYPE_CHECKING:
    import torch

    from ..report.records import Work
    from ..torch_side import TorchSide
    from .rounding import Rounding

TIMED_DRAWS = 2
JITTERS = 2
AGAIN = 30  # runs of a reference that draws random numbers, which may come to nothing
AGAIN_S = 10.0
FURTHER = 1000  # a draw that nobody has asked about
MOST_PARAMETERS = 30_000_000  # of a model that is not large: a look at one takes seconds, and no gigabytes

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
    moves each tensor. `unrest` has the same of float64, with the parameters moved, for steps of training, where Adam
    makes steps of a gradient that is nothing but rounding, and for inputs of the check's own. `printed` is the number
    of lines that the reference prints as it answers.
    """

    question: Question
    reference: Observation
    torch: Observation
    jitter: tuple[Mapping[Key, float], ...] = ()
    unrest: Mapping[Key, float] = field(default_factory=dict)
    printed: int = 0

    def shared_scale(self, key: Key, *, rms: bool = False) -> float:
        """What a gradient, or a parameter's change, is small or large beside, by its magnitude, or root mean square.

        Of a parameter's it is the largest of all parameters, since some gradients are nothing but rounding; of an
        input's that, or its own where it is larger. Another input counts for none of them: by a mask of which -1e38 is
        added to scores, the gradient is 1e38, beside which all others are nothing.
        """
        kind, name = key
        sizes = self._rms if rms else self._magnitudes
        if kind != "input_gradient":
            return max(sizes.get(kind, {}).values(), default=0.0)
        inputs = sizes.get(kind, {})
        return max(inputs.get(name, 0.0), largest_beside_inputs(sizes.get("parameter_gradient", {}), inputs))

    @functools.cached_property
    def _magnitudes(self) -> Mapping[str, Mapping[str, float]]:
        return self._sizes(largest)

    @functools.cached_property
    def _rms(self) -> Mapping[str, Mapping[str, float]]:
        return self._sizes(yardstick.rms)

    def _sizes(self, size: Callable[[np.ndarray], float]) -> Mapping[str, Mapping[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for kind, name, array in self.reference.tensors():
            if shares_scale(kind):
                found.setdefault(kind, {})[name] = size(array)
        return found


def largest_beside_inputs(parameters: Mapping[str, float], inputs: Mapping[str, float]) -> float:
    """The largest gradient by a parameter; where there is none, by an input, at most that of a cotangent."""
    return max(parameters.values(), default=0.0) or min(max(inputs.values(), default=0.0), 1.0)


def shares_scale(kind: str) -> bool:
    """Whether tensors of this kind are small or large beside each other, not each by itself."""
    return kind.endswith("gradient") or kind == "parameter"


def count_parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def is_large(module: torch.nn.Module) -> bool:
    """Whether a look at a model takes long, and gigabytes."""
    return count_parameters(module) > MOST_PARAMETERS


class Judge:
    """Answers in float64, and in the dtype that people run.

    Args:
      case: whose references it builds, all with the weights of the first.
      seed: of weights, inputs and cotangents.
      dtype: that people run, one of `RUN_DTYPES`.
      device: `"cpu"` or `"gpu"`.

    Attributes:
      references: every variant as a `torch.nn.Module`, the judge's own first.
      name: of the variant that judges.
      state_dict: its weights, as numpy arrays.
      parameters: how many numbers it learns.
      is_large: whether what takes its whole weight in time or memory is done once, or left out.
      missing_weights: what to install for the case's own weights, where they are random instead; otherwise empty.
      torch_device: where it runs, in PyTorch's words.
      sides: what its activations were seen to do while it answered.

    Raises:
      CaseError: where a reference cannot be built.
      DtypeError: where a comparison cannot be made in the dtype.
      ImportError: where PyTorch is not installed.
    """

    def __init__(self, case: Case, *, seed: int, dtype: str, device: str):
        from ..torch_side import build_references, pretrained_weights

        check_dtype(dtype, device)
        self.case, self.seed, self.dtype = case, seed, dtype
        allow_tf32(dtype)
        self.torch_device = "cuda" if device == "gpu" else "cpu"
        weights, self.missing_weights = pretrained_weights(case)
        self.references = build_references(case, seed, weights)
        self.name, module = next(iter(self.references.items()))
        self.state_dict = {name: as_numpy(value) for name, value in module.state_dict().items()}
        self.parameters = count_parameters(module)
        self.is_large = is_large(module)
        self.sides = Sides()

    @functools.cached_property
    def frozen(self) -> tuple[str, ...]:
        """The names of the parameters that the reference does not train."""
        named = self.references[self.name].named_parameters(remove_duplicate=False)
        return tuple(name for name, parameter in named if not parameter.requires_grad)

    @functools.cached_property
    def exact(self) -> TorchSide:
        return self.side("float64")

    @property
    def asked(self) -> set[str]:
        """The names of the dtypes that the reference has been seen to cast to by itself in float64."""
        return self.exact.asked if "exact" in self.__dict__ else set()

    @functools.cached_property
    def finer(self) -> TorchSide | None:
        """`exact` with the constants in float64 that the reference makes as it is built and no port is given, such as
        frequencies, and without functions that have float32's digits in float64; None where there are none."""
        import torch

        from ..widened import refine, take_constants

        dropped = [rule for rule in self.case.weights if isinstance(rule, Drop)]
        carried = {name for name in self.state_dict if not any(rule.matches(name) for rule in dropped)}
        side, make = self.side("float64"), next(iter(self.case.references.values()))
        try:
            with torch.random.fork_rng(devices=[]):
                changed = [] if self.is_large else take_constants(side.module, make, carried)
        except Exception:  # it cannot be built in float64: then its constants stay as they are
            changed = []
        if self.exact.is_coarse:
            refine(side.module)
        return side if changed or self.exact.is_coarse else None

    @functools.cached_property
    def usual(self) -> TorchSide:
        return self.side(self.dtype)

    @functools.cached_property
    def rounding(self) -> Rounding:
        """What it does to the answers."""
        from .rounding import Rounding

        return Rounding(self)

    def side(self, dtype: str) -> TorchSide:
        from ..torch_side import TorchSide

        return TorchSide(self.references[self.name], self.case, dtype=dtype, device=self.torch_device)

    def hold(self, state: Mapping[str, np.ndarray]) -> None:
        """Puts these values in the reference's state, by name, before it has answered anything."""
        import torch

        module = self.references[self.name]
        held = {name: torch.tensor(value) for name, value in state.items()}
        module.load_state_dict({**module.state_dict(), **held})
        self.state_dict = {name: as_numpy(value) for name, value in module.state_dict().items()}

    def truths(self, draws: int) -> list[Truth]:
        """Its answers on random inputs and every edge input, in every mode of the case.

        Raises:
          CaseError: where the reference fails, is not deterministic, changes its inputs or parameters, gives what
            cannot be compared, or no output on any random input has a finite element.
        """
        drawn = [(f"random {i}", check_inputs(self.case, self.seed, i), True) for i in range(draws)]
        drawn += [(name, inputs, False) for name, inputs in edge_inputs(self.case, self.seed)]
        with self.sides.watched(self.exact.module):
            truths = self._answers(drawn, self.case.modes)
        outputs = [array for t in truths if t.question.is_random for array in t.reference.outputs.values()]
        if not any(np.isfinite(array).any() for array in outputs):
            shapes = ", ".join(dict.fromkeys(str(array.shape) for array in outputs)) or "none at all"
            raise CaseError(
                f"case {self.case.name!r}: the reference's outputs on the random inputs have no finite element "
                f"(their shapes: {shapes}), so that a verdict would say nothing; let inputs give arrays with elements, "
                "for which the reference is defined, and let its forward return its outputs"
            )
        return truths

    def timed_truths(self, modes: Sequence[Mode]) -> list[Truth]:
        """Its answers in these modes on what is timed, where that is not what the verdicts are found on."""
        drawn = [(f"timed {i}", random_inputs(self.case, self.seed, i), True) for i in range(TIMED_DRAWS)]
        return self._answers(drawn, modes, is_timed=True)

    def redrawn(self, question: Question, count: int) -> list[Truth]:
        """Its answers on further draws of an input; of a random one, on those of the same shapes."""
        if question.is_random:
            drawn = [self.other_inputs(question, number) for number in range(count)]
            label = f"{question.label}, drawn again"
        else:
            drawn = [edge_input(self.case, self.seed, question.label, i) for i in range(1, count + 1)]
            label = question.label
        others = [(label, inputs, question.is_random) for inputs in drawn if inputs is not None]
        return self._answers(others, [question.mode])

    def another(self, question: Question, number: int = 0) -> Question | None:
        """A further draw of the same kind of input, in the same mode, of several the one of this number; None where
        there is none."""
        inputs = self.other_inputs(question, number)
        if inputs is None:
            return None
        drawn = [(f"{question.label}, drawn again", inputs, question.is_random)]
        return next(iter(self.questions(drawn, [question.mode])), None)

    def other_inputs(self, question: Question, number: int = 0) -> Inputs | None:
        """A further draw of its inputs, of several the one of this number; None where every draw is the same, is of
        other shapes, or where the input is of the check's own."""
        if question.is_random and not question.is_timed:
            inputs = check_inputs(self.case, self.seed, FURTHER + number)
        elif question.label in self.case.edge_inputs:
            inputs = edge_input(self.case, self.seed, question.label, FURTHER + number)
        else:
            return None
        if signature(inputs) != signature(question.inputs) or _are_same(inputs, question.inputs):
            return None
        return inputs

    def least_work(self, mode: Mode, question: Question, size: int | None = None) -> Work:
        """Of one step on this question's inputs, in the dtype that people run; `size` is the batch's, in a sweep."""
        from ..speed.work import least_work, optimizer_state_bytes

        side = self.usual
        with quiet():
            batch = side.place(question.inputs, mode, question.cotangents)
            state = optimizer_state_bytes(self.case, side) if mode == "train_step" else 0
            return least_work(side, mode, batch, size=size, optimizer_bytes=state)

    def _answers(
        self, drawn: list[tuple[str, Inputs, bool]], modes: Sequence[Mode], *, is_timed: bool = False
    ) -> list[Truth]:
        with quiet():
            answers = [self._truth(question) for question in self.questions(drawn, modes, is_timed=is_timed)]
        trim()
        return answers

    def questions(
        self, drawn: list[tuple[str, Inputs, bool]], modes: Sequence[Mode], *, is_timed: bool = False
    ) -> Iterable[Question]:
        """What is asked about named inputs, of which some are random, in each mode."""
        for mode in modes:
            for label, inputs, is_random in drawn:
                if mode != "inference" and label in self.case.interpret:
                    continue  # what is there to be read has no gradient to be read
                if mode == "train_step" and not is_random:
                    continue  # forward and backward agree on it, and the update does not see it
                cotangents = None
                if mode != "inference" and self.case.loss is None:
                    rng = generator(self.case, self.seed, f"cotangents {label}")
                    cotangents = {
                        name: np.asarray(rng.standard_normal(shape), np.float32)
                        for name, shape in self._output_shapes(inputs, mode).items()
                    }
                yield Question(label, mode, inputs, cotangents, is_random, is_timed)

    def _output_shapes(self, inputs: Inputs, mode: Mode) -> dict[str, tuple[int, ...]]:
        """Of the floating outputs, by name: some models give others in training, as auxiliary heads."""
        try:
            outputs = self.usual.outputs(inputs, mode)
        except Exception:  # it comes again, and is told by name, when the question is asked
            return {}
        return {name: value.shape for name, value in outputs.items() if is_floating(value)}

    def _truth(self, question: Question) -> Truth:
        try:
            reference = self._reference(question)
            jitters = JITTERS if question.is_random and question.mode != "inference" else 0
            jittered = (self.rounding.jittered_answer(question, i) for i in range(jitters))
            jitter = tuple(_errors(answer, reference) for answer in jittered if answer is not None)
            with quiet() as printed:
                usual = self.usual.run(question.inputs, question.mode, question.cotangents)
            trains = question.mode == "train_step" and not question.is_timed
            unrest = self.rounding.of_parameters(question, reference) if trains else {}
            floating = {key: error for key, error in unrest.items() if is_floating(reference.get(key))}
            return Truth(question, reference, usual, jitter, floating, printed.lines)
        except CaseError:
            raise
        except Exception as error:
            from .reference_faults import without_which_gradient

            raise CaseError(
                f"case {self.case.name!r}: the reference {self.name!r} fails on the input {question.label!r} in "
                f"{question.mode}: {describe_with_line(error)}{without_which_gradient(self.exact, question)}"
            ) from error

    def own_truth(self, question: Question) -> Truth:
        """The answer on an input of the check's own. Raises what the reference raises."""
        reference = self.exact.run(question.inputs, question.mode, question.cotangents)
        return Truth(question, reference, self.usual.run(question.inputs, question.mode, question.cotangents))

    def _reference(self, question: Question) -> Observation:
        """The answer in float64; the first of each mode is given twice, watched, to see whether it can judge."""
        if question.label != "random 0" or question.mode == "train_step":
            return self.exact.run(question.inputs, question.mode, question.cotangents)
        from ..training.draws import torch_streams
        from .reference_faults import check_repeats, witnessed

        streams = torch_streams()
        once = witnessed(self.case, self.name, self.exact, question)
        draws, until = torch_streams() != streams, time.monotonic() + AGAIN_S
        for number in range(AGAIN if draws else 1):  # what is drawn is often the same, as which of few paths is kept
            answer = self.exact.run(question.inputs, question.mode, question.cotangents)
            check_repeats(self.case, self.name, self.exact, question, once, answer)
            if number and time.monotonic() > until:
                break
        return answer


def _are_same(a: Inputs, b: Inputs) -> bool:
    return all(map(np.array_equal, jtu.tree_leaves(a), jtu.tree_leaves(b)))


def _errors(answer: Observation, reference: Observation) -> dict[Key, float]:
    """The root mean square error of each floating tensor."""
    pairs = (((kind, name), array, reference.find((kind, name))) for kind, name, array in answer.tensors())
    return {
        key: yardstick.rms_error(ours, theirs)
        for key, ours, theirs in pairs
        if theirs is not None and ours.shape == theirs.shape and is_floating(ours)
    }
