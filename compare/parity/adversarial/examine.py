"""A port on inputs of the check's own making: what fails there, and what is only worth saying."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax.tree_util as jtu
import numpy as np
import torch

from ...draw import edge_inputs
from ...dtypes import HALF_ULP
from ...errors import describe_briefly
from ...observation import Observation
from ...quiet import quiet
from ...report.records import Tensor
from ...trees import is_floating
from ..coverage import listed
from ..differences import as_tensor
from ..scales import allowed_unrest
from ..yardstick import EQUAL_TOLERANCE, PRECISE_RATIO, Difference, difference, error_ratio, filled, magnitude
from .inputs import BATCH_OF_ONE, FEW_VALUES, HOLES, KINDS, LARGEST, LEAST, adversarial_inputs
from .ties import ORDERS, Reordered, TiesNoted

if TYPE_CHECKING:
    from ...jax_side import PortSide
    from ...torch_side import TorchSide
    from ..call_limit import CountedCalls
    from ..examination import Examination
    from ..judge import Key, Truth

SMALLEST = 1e-3  # of a tensor's scale on random inputs: below, these inputs make it the rounding of a cancellation
DECIDED = 0.1  # of a tensor's scale, by which rounding moves what has no digit of its own
SEVERAL = 8  # of the roundings that float32 shows: in float64 they fall otherwise
PRECISION = "a large mean"  # where a variance by E[x^2] - E[x]^2 loses its digits
MOST_HELD = 64  # distinct numbers in a buffer; more are a table
RESIZING = (BATCH_OF_ONE, FEW_VALUES, LEAST, LARGEST)  # which may change what is as long as values say


@dataclass
class Found:
    """What a port makes of these inputs.

    Attributes:
      tensors: those that are not equal, or not finite where the reference's are.
      warnings: what differs and is no fault by itself: a gradient at a kink, where either side's is one; a loss of
        precision; a shape that the port does not take.
      labels: of the inputs that were asked.
      apart: the answers from which something differs, gradients at kinks among it, by mode and label.
    """

    tensors: list[Tensor] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    apart: dict[tuple[str, str], Truth] = field(default_factory=dict)


class OwnInputs:
    """The judge's answers on inputs of the check's own making, and the ports' beside them.

    What the reference refuses, or answers with what is not finite, is outside its domain and left out; so is what it
    answers otherwise where its sorts put ties in another order, or where another of several elements is kept that it
    writes to one place, since PyTorch promises neither.

    Args:
      exam: whose judge answers.

    Attributes:
      left_out: the kinds that were, and why.
    """

    def __init__(self, exam: Examination):
        self.exam = exam
        self.left_out: dict[str, str] = {}
        self._unrests: dict[tuple[str, str, bool, bool], dict[Key, float]] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Those that are asked."""
        if self.exam.case.adversarial is not None:
            return tuple(self.exam.case.adversarial)
        return () if self.exam.judge.is_large else KINDS

    @functools.cached_property
    def truths(self) -> list[Truth]:
        exam = self.exam
        if not self.kinds:
            return []
        draws = [t.question.inputs for t in exam.truths if t.question.is_random and not t.question.is_timed]
        modes = [mode for mode in exam.case.modes if mode != "train_step"]
        found: list[Truth] = []
        edges = [inputs for _, inputs in edge_inputs(exam.case, exam.seed)]
        with quiet():
            for kind, inputs in adversarial_inputs(draws, self.kinds, but=edges, held=self._held()):
                found += self._answers(kind, inputs, modes)
        return found

    @property
    def asked(self) -> list[Truth]:
        """Those truths that were asked for, and are still kept."""
        return self.__dict__.get("truths", [])

    def _held(self) -> list[float]:
        """The numbers in small buffers of the reference's own modules, such as knots and ends of bins, sorted."""
        found: set[float] = set()
        for module in self.exam.judge.exact.module.modules():
            if type(module).__module__.startswith("torch.nn."):
                continue
            for buffer in module._buffers.values():
                if buffer is None or not buffer.is_floating_point() or buffer.layout != torch.strided:
                    continue
                values = set(buffer.double().unique().tolist())
                if 1 < len(values) <= MOST_HELD and not values <= {-1.0, 0.0, 1.0}:
                    found |= values
        return sorted(found)

    def forget(self) -> None:
        """Lets go of the answers, gradients of every parameter among them; they are found again when asked for."""
        self.__dict__.pop("truths", None)

    def _answers(self, kind: str, inputs: Any, modes: Iterable[Any]) -> Iterator[Truth]:
        from ..call_limit import NeverEnds

        judge = self.exam.judge
        label = f"{kind}, derived" if kind in self.exam.case.edge_inputs else kind
        asked: list[str] = []

        def leave_out(mode: Any, why: str) -> None:
            self.left_out[kind] = f"in {mode}, not in {' and '.join(asked)}: {why}" if asked else why

        for mode in modes:
            try:
                with TiesNoted() as ties, self._calls[mode].limit:
                    (question,) = judge.questions([(label, inputs, False)], [mode])
                    truth = judge.own_truth(question)
            except NeverEnds:
                leave_out(mode, "a loop of the reference's does not end there")
                return
            except Exception as error:
                leave_out(mode, f"the reference raises {type(error).__name__}")
                return
            if not self._is_finite(truth.reference):
                leave_out(mode, "the reference's answer is not finite")
                return
            if ties.why and self._hangs_on_order(truth):
                leave_out(mode, f"the reference's {ties.why[0]}")
                return
            if kind in RESIZING and (why := self._is_sized_by_values(truth, kind)):
                leave_out(mode, why)
                return
            asked.append(mode)
            yield truth

    def _hangs_on_order(self, truth: Truth) -> bool:
        """Whether the reference, with another order of what has none, answers otherwise."""
        question = truth.question
        for order in ORDERS:
            try:
                with Reordered(order):
                    other = self.exam.judge.exact.run(question.inputs, question.mode, question.cotangents)
            except Exception:
                return True
            for kind, name, array in truth.reference.tensors():
                key = kind, name
                again = other.find(key)
                if again is None or not difference(again, array, self._scale(truth, key, array)).equal:
                    return True
        return False

    def _is_finite(self, answer: Observation) -> bool:
        """Whether all of it is, but what a buffer has held from the start: a mask may be of infinities."""
        held = self.exam.judge.state_dict
        for kind, name, array in answer.tensors():
            if not is_floating(array):
                continue
            finite = _is_finite(array)
            if kind == "buffer" and name in held and held[name].shape == array.shape:
                finite |= ~_is_finite(held[name])
            if not finite.all():
                return False
        return True

    def _is_sized_by_values(self, truth: Truth, kind: str) -> str:
        """What of the reference's outputs has a length that the shapes do not tell, such as one row a graph of nodes,
        or as many steps as the longest has: a port of fixed size has another one there."""
        asked = [t for t in self.exam.truths if t.question.is_random and t.question.mode == truth.question.mode]
        batch = next(len(x) for x in jtu.tree_leaves(asked[0].question.inputs) if np.ndim(x))
        told, fewer = ("a batch of {} gives", batch) if kind == BATCH_OF_ONE else ("random inputs give", 1)
        for name, output in truth.reference.outputs.items():
            before, *others = (np.shape(t.reference.outputs.get(name, np.zeros(()))) for t in asked)
            if kind == FEW_VALUES and any(other != before for other in others):
                continue  # of which the case makes the same on both sides
            pairs = zip(before, output.shape, strict=True) if len(before) == output.ndim else ()
            if any(now not in (then, then / fewer) for then, now in pairs):
                which = name if name == "output" else f"output {name}"
                return f"the reference's {which} has shape {output.shape} where {told.format(batch)} {before}"
        return ""

    @functools.cached_property
    def _calls(self) -> dict[str, CountedCalls]:
        """What the reference makes of its own input, by the mode."""
        from ..call_limit import CountedCalls

        exam = self.exam
        counted: dict[str, CountedCalls] = {}
        for truth in exam.truths:
            question = truth.question
            if question.is_random and question.mode not in counted:
                with CountedCalls() as counted[question.mode]:
                    exam.judge.own_truth(question)
        return counted

    @property
    def notes(self) -> Iterator[str]:
        case = self.exam.case
        if case.adversarial is not None:
            kinds = ", ".join(case.adversarial) or "none"
            yield f"of the inputs that the check derives by itself, {kinds} were tried: the case's adversarial says so"
        elif self.exam.judge.is_large:
            yield "the check asked none of its own inputs, since the model is large; adversarial= in the case asks them"
        if self.left_out:
            alike: dict[str, list[str]] = {}
            for kind, why in self.left_out.items():
                alike.setdefault(why, []).append(repr(kind))
            told = "; ".join(f"{', '.join(kinds)} ({why})" for why, kinds in alike.items())
            yield f"of the check's own inputs some are outside of the reference's domain and were left out: {told}"

    def examine(
        self, exact: PortSide | TorchSide, usual: PortSide | TorchSide, truths: Iterable[Truth] | None = None
    ) -> Found:
        """A candidate on each of them, or on these alone, in float64 and in the dtype that people run."""
        found = Found()
        for truth in self.truths if truths is None else truths:
            question = truth.question
            found.labels.append(question.label)
            try:
                ours, rough = (
                    side.run(question.inputs, question.mode, question.cotangents).renamed(truth.reference)
                    for side in (exact, usual)
                )
            except Exception as error:
                found.warnings.append(
                    f"on {question.label!r}, an input of the check's own, it fails where the reference does not: "
                    f"{describe_briefly(error)}"
                )
                continue
            self._compare(truth, ours, rough, found)
        found.labels = list(dict.fromkeys(found.labels))
        found.warnings = list(dict.fromkeys(found.warnings))
        return found

    def _compare(self, truth: Truth, ours: Observation, usual: Observation, found: Found) -> None:
        mode, label = truth.question.mode, truth.question.label
        kinks, beside_holes, parted = [], [], []
        for kind, name, reference in truth.reference.tensors():
            key = kind, name
            array, rough = ours.find(key), usual.find(key)
            if array is None or rough is None:
                continue  # told on the random inputs
            scale = max(self._scale(truth, key, reference), self._rounding(array, rough) / EQUAL_TOLERANCE)
            apart = difference(array, reference, scale)
            unrest = 0.0 if apart.equal else self._unrest(truth).get(key, 0.0)
            if unrest and self._is_at_alike(truth, key, array, scale):
                parted.append(f"{name} ({apart.port} for {apart.reference})")
            if apart.error == unrest == np.inf:
                continue  # the last digit of a number decides an integer, or whether there is a number at all
            if unrest == np.inf and is_floating(reference):  # of what is left where it makes some no numbers
                left = self._unrest(truth, finite=True).get(key, 0.0)
                unrest = left if self._decides(truth, key, left) else unrest
            if self._decides(truth, key, unrest):
                continue  # likewise all digits, as where norm after norm divides what rounding left by an epsilon
            if 0 < unrest < np.inf:
                apart = difference(array, reference, max(scale, allowed_unrest(unrest)))
            if label == HOLES:
                beside_holes += [] if apart.equal else [name]
                continue
            if not apart.equal:
                found.apart[mode, label] = truth
            same_shape = array.shape == reference.shape
            is_gradient = kind.endswith("gradient") and same_shape and _is_finite(array).all()
            if not apart.equal and is_gradient and self._is_at_a_kink(truth, key, array):
                kinks.append(f"{name} by {apart.error:.2g} of its scale")
            elif not apart.equal:
                found.tensors.append(as_tensor(mode, label, key, apart, precise=True))
            elif (blame := _not_finite(rough, truth.torch.find(key))) and not self._is_excused(truth, key, rough):
                found.tensors.append(as_tensor(mode, label, key, Difference(0.0, note=blame), precise=False))
            elif (
                label.startswith(PRECISION)
                and kind == "output"
                and (ratio := self._ratio(key, rough, truth)) > PRECISE_RATIO
            ):
                found.warnings.append(
                    f"on {label!r} (100 standard deviations), the output {name} has {ratio:.3g} times PyTorch's error "
                    f"in {self.exam.dtype}: digits are lost there, as by a variance as E[x^2] - E[x]^2"
                )
        if beside_holes and not any(each.startswith(f"on {label!r}") for each in found.warnings):
            found.warnings.append(
                f"on {label!r}, an input of the check's own, it gives another {listed(beside_holes)}: it takes what a "
                "mask leaves for one stretch, and the reference looks at each place; if such masks occur, add one to "
                "edge_inputs, where it counts"
            )
        if parted and not beside_holes and not found.apart.get((mode, label)):
            found.warnings.append(
                f"on {label!r}, an input of the check's own, it gives another {listed(parted)}: values are equal there "
                "in the reference, which another rounding would part, so that nothing is held against it; if such "
                "inputs occur, add one to edge_inputs, where it counts"
            )
        if kinks:
            told = ", ".join(kinks[:2]) + (f" and {len(kinks) - 2} more" if len(kinks) > 2 else "")
            found.warnings.append(
                f"on {label!r}, an input of the check's own, gradients differ ({told}): at a kink or a tie either side "
                "takes another one; if such inputs occur, add one to edge_inputs, where it counts"
            )

    def _scale(self, truth: Truth, key: Key, reference: np.ndarray, share: float = SMALLEST) -> float:
        """That of the tensor there, at least this share of what it is elsewhere."""
        exam, mode = self.exam, truth.question.mode
        if key[0].endswith("gradient"):
            overall = max((t.shared_scale(key) for t in exam.truths if t.question.mode == mode), default=0.0)
            return max(truth.shared_scale(key), share * overall)
        return max(magnitude(reference), share * exam.scales.magnitude(mode, key))

    def _unrest(self, truth: Truth, *, alike: bool = False, finite: bool = False) -> dict[Key, float]:
        """How far rounding alone moves what the reference gives there; nothing is known where it moves it out of its
        domain."""
        key = truth.question.mode, truth.question.label, alike, finite
        if key not in self._unrests:
            self._unrests[key] = {}
            with contextlib.suppress(Exception), self._calls[truth.question.mode].limit:
                self._unrests[key] = self.exam.judge.rounding.unrest(truth, alike=alike, finite=finite)
        return self._unrests[key]

    def _decides(self, truth: Truth, key: Key, unrest: float) -> bool:
        """Whether rounding moves a tensor there by so much that no digit of it is its own."""
        return 0 < unrest < np.inf and unrest >= DECIDED * self._scale(truth, key, truth.reference.get(key), share=1.0)

    def _is_at_alike(self, truth: Truth, key: Key, array: np.ndarray, scale: float) -> bool:
        """Whether a tensor that is off, and that rounding moves, is off by more than rounding moves it that leaves
        equal what is."""
        if key[0].endswith("gradient"):
            return False  # at a tie either side takes another one
        unrest = self._unrest(truth, alike=True).get(key, np.inf)
        reference = truth.reference.get(key)
        return unrest < np.inf and not difference(array, reference, max(scale, allowed_unrest(unrest))).equal

    def _is_at_a_kink(self, truth: Truth, key: Key, array: np.ndarray) -> bool:
        with contextlib.suppress(Exception), self._calls[truth.question.mode].limit:
            return self.exam.judge.rounding.is_at_a_kink(truth, key, array)
        return True  # nothing can be told

    def _is_excused(self, truth: Truth, key: Key, rough: np.ndarray) -> bool:
        """Whether what is not finite is not in PyTorch either, without subnormal numbers."""
        with contextlib.suppress(Exception), self._calls[truth.question.mode].limit:
            return self.exam.subnormal.excused(truth, key, rough) is not None
        return False

    def _rounding(self, array: np.ndarray, rough: np.ndarray) -> float:
        """What the candidate's own roundings make of this tensor in float64, by what they make of it in the run's:
        on an input of zeros, an epsilon may be all that the rounding of a mean is divided by."""
        if array.shape != rough.shape or array.dtype.kind != "f":
            return 0.0
        finite = _is_finite(array) & _is_finite(rough)
        fills = filled(array)
        if fills is not None:
            finite &= ~fills
        apart = np.abs(array - rough.astype(np.float64), where=finite, out=np.zeros(array.shape))
        return SEVERAL * float(apart.max(initial=0.0)) * HALF_ULP["float64"] / HALF_ULP[self.exam.dtype]

    def _ratio(self, key: Key, ours: np.ndarray, truth: Truth) -> float:
        """Of the error at a large mean, where it is judged."""
        if not truth.question.label.startswith(PRECISION):
            return 0.0
        ratio = error_ratio([ours], [truth.torch.get(key)], [truth.reference.get(key)], dtype=self.exam.dtype)
        return ratio if ratio is not None else 0.0


def _is_finite(array: np.ndarray) -> np.ndarray:
    return np.isfinite(array.astype(np.float32) if array.dtype.kind == "V" else array)


def _not_finite(ours: np.ndarray, theirs: np.ndarray | None) -> str:
    if theirs is None or not is_floating(ours) or ours.shape != theirs.shape:
        return ""
    new = ~_is_finite(ours) & _is_finite(theirs)
    return f"{int(new.sum())} of {ours.size} elements are not finite, and PyTorch's are" if new.any() else ""
