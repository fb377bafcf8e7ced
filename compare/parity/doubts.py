"""What else than a port may be to blame for a difference, asked before the port is accused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .adversarial import OwnInputs
from .differences import Differences
from .judge import Key, Truth
from .lost_maxima import maxima, told_of
from .port_draws import draws_note
from .rounding import MOST_UNREST
from .scales import Scales
from .yardstick import Difference

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from .examination import Examination

SUSPECT = 1e-12  # of a tensor's scale: constants in float32 may move less than is allowed here, and more elsewhere
NEAR = 0, False


def unequal(differences: Iterable[dict[Key, Difference]]) -> int:
    """The number of tensors that are."""
    return sum(not each.equal for found in differences for each in found.values())


def _far(found: Sequence[dict[Key, Difference]]) -> tuple[int, bool]:
    """How many tensors are off, and whether one differs by more than float64's rounding mostly makes."""
    return unequal(found), any(each.error > SUSPECT for differences in found for each in differences.values())


def settled(
    exam: Examination, variant: str, port: PortSide, truths: list[Truth], differences: list[dict[Key, Difference]]
) -> tuple[PortSide, list[Truth], list[dict[Key, Difference]], list[str]]:
    """A port in float64, the judge's answers and the differences from them, as they are to be judged.

    Args:
      exam: whose judge answered; its own truths and scales change where other answers are taken.
      variant: of the port.
      port: as it was asked.
      truths: the answers.
      differences: of each tensor from each of them.

    Returns:
      The three, where something else explains a difference others than were given, and what is to be told of it.
    """
    doubts = _Doubts(exam, variant, port, truths, differences)
    doubts.settle()
    return doubts.port, doubts.truths, doubts.differences, doubts.notes


class _Doubts:
    def __init__(
        self,
        exam: Examination,
        variant: str,
        port: PortSide,
        truths: list[Truth],
        differences: list[dict[Key, Difference]],
    ):
        self.exam, self.variant = exam, variant
        self.port, self.truths, self.differences = port, truths, differences
        self.notes: list[str] = []

    def settle(self) -> None:
        """Takes what explains a difference away, the likeliest first."""
        for explain in (self._compiled_soundly, self._with_finer_constants, self._beside_unrest, self._by_rounding):
            if unequal(self.differences):
                explain()
        if unequal(self.differences):
            self._draws()
            self._lost_maxima()
        elif _far(self.differences) > NEAR:
            self._with_finer_constants()

    def _apart(self) -> Differences:
        return Differences(self.exam.case, self.exam.judge, self.exam.scales)

    def _of(self, apart: Differences, port: PortSide, truth: Truth) -> dict[Key, Difference]:
        return apart.of(truth, self.exam.answer(port, truth, "jax", self.variant))

    def _compiled_soundly(self) -> None:
        """Where how the port's graphs were compiled decides: asked of the worst answer."""
        sound = self.port.soundly()
        if sound is None:
            return
        worst = max(range(len(self.truths)), key=lambda i: unequal([self.differences[i]]))
        again = self._of(self._apart(), sound, self.truths[worst])
        if all(again[key].equal == each.equal for key, each in self.differences[worst].items()):
            return
        self.port, apart = self.exam.keep(sound, self.variant), self._apart()
        self.differences = [self._of(apart, self.port, truth) for truth in self.truths]
        self.notes += apart.notes

    def _with_finer_constants(self) -> None:
        """With the reference's constants in float64, if the port is nearer to these: it computes them where it runs,
        and the reference did as it was built, in float32."""
        exam, judge = self.exam, self.exam.judge
        if judge.finer is None:
            return
        judge.exact, judge.finer = judge.finer, judge.exact
        finer = [
            dataclasses.replace(t, reference=judge.exact.run(q.inputs, q.mode, q.cotangents))
            for t in self.truths
            for q in [t.question]
        ]
        apart, port = self._apart(), self.port
        again = [self._of(apart, port, t) for t in finer]
        if _far(again) > NEAR and not judge.is_large:  # it asks for float32 as it is built, as the reference does
            port, least = exam.finely(self.variant, built=True), again
            again = [self._of(apart, port, t) for t in finer]
            if _far(again) >= _far(least):
                port, again = exam.finely(self.variant, built=False), least
        if _far(again) >= _far(self.differences):
            judge.exact, judge.finer = judge.finer, judge.exact
            return
        self.port = port
        self.notes += apart.notes
        self.notes.append(
            "constants that the reference has in float32, as it is built or in PyTorch's own kernels, are taken in "
            "float64 here"
        )
        exam.truths = finer + [t for t in exam.truths if t.question.is_timed]
        exam.own, exam.scales = OwnInputs(exam), Scales(exam.truths)
        self.truths, self.differences = finer, again

    def _beside_unrest(self) -> None:
        """Beside the judge's own rounding, if nothing is off by more: a gradient by what is divided by an epsilon has
        few digits left in float64."""
        exam, found = self.exam, self.differences
        off = [unequal([differences]) > 0 for differences in found]
        if not all(each.error <= MOST_UNREST for differences in found for each in differences.values()):
            return
        shaken = [self._shaken(t) if bad else t for t, bad in zip(self.truths, off, strict=True)]
        timed = [t for t in exam.truths if t.question.is_timed]
        apart = Differences(exam.case, exam.judge, Scales(shaken + timed))
        pairs = zip(shaken, found, off, strict=True)
        again = [self._of(apart, self.port, t) if bad else kept for t, kept, bad in pairs]
        if unequal(again):
            return
        self.notes += [
            f"{truth.question.mode}: the {kind.replace('_', ' ')} {name} was judged beside what rounding alone makes "
            "of it in the reference, in float64 too"
            for truth, differences in zip(self.truths, found, strict=True)
            for (kind, name), each in differences.items()
            if not each.equal
        ]
        exam.truths = shaken + timed
        exam.scales = Scales(exam.truths)
        self.truths, self.differences = shaken, again

    def _shaken(self, truth: Truth) -> Truth:
        """The answer, and what rounding alone makes of it: of gradients that are zero on this input alone beside their
        size on others."""
        scales = self.exam.scales
        return self.exam.judge.rounding.with_unrest(truth, lambda key: scales.of(truth, key))

    def _by_rounding(self) -> None:
        """Where each tensor that is off is moved by rounding alone in the reference, too, what that means."""
        told = []
        for truth, found in zip(self.truths, self.differences, strict=True):
            off = [key for key, each in found.items() if not each.equal]
            if off:
                answer = self.exam.answer(self.port, truth, "jax", self.variant)
                if not self.exam.judge.rounding.is_decided_by_rounding(truth, off, answer):
                    return
            told += [
                f"{truth.question.mode}: on {truth.question.label!r} the {kind.replace('_', ' ')} {name} is off, and "
                "rounding alone moves it in the reference, too, in float64: it decides something there, such as the "
                "sign of a sum that is zero but for rounding, or which way a number halfway between two is rounded, so "
                "that two right ports part; compute that exactly on both sides (signs are summed first, and scaled "
                "afterwards), or give inputs or weights on which nothing hangs on it"
                for kind, name in off[:1]
            ]
        self.notes += told[:1]

    def _draws(self) -> None:
        """What random numbers a port that is not equal draws, in the first mode in which it does."""
        for mode in self.exam.case.modes[:2]:
            pairs = zip(self.truths, self.differences, strict=True)
            wrong = [t for t, found in pairs if t.question.mode == mode and unequal([found])]
            if wrong and (note := draws_note(self.port, wrong[0].question)):
                self.notes.append(note)
                return

    def _lost_maxima(self) -> None:
        """What becomes right operation by operation, where the gradient of a largest element may be lost in a graph."""
        worst = max(range(len(self.truths)), key=lambda i: unequal([self.differences[i]]))
        question = self.truths[worst].question
        wrong = {key for found in self.differences for key, each in found.items() if not each.equal}
        if self.exam.judge.is_large or not (lines := maxima(self.port, question, wrong)):
            return
        if not unequal([self._of(self._apart(), self.port.by_operations(), self.truths[worst])]):
            self.notes.append(told_of(lines, question))
