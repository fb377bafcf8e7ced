"""The gate: no way of running is timed before its own answers are as precise as the reference's."""

from __future__ import annotations

from collections.abc import Mapping

from ..case import Mode
from ..draw import signature
from ..observation import Observation
from ..parity.examination import Examination
from ..parity.yardstick import JUDGED_ELEMENTS, PRECISE_RATIO, difference

GROSS_ERROR = 1e-3  # of the scale, in any one draw: for outputs, and gradients too small for an error ratio


class Wrong(Exception):
    """A row whose answers are not the reference's."""

    def __init__(self, message: str, ratio: float | None = None):
        super().__init__(message)
        self.ratio = ratio


class Gate:
    """Judges the answers of one row by the answers of the judge."""

    def __init__(self, exam: Examination):
        self.exam = exam

    def questions(self, mode: Mode) -> list[int]:
        """Which of the examination's truths one graph can answer: those with the first one's shapes, random first."""
        exam = self.exam
        timed = exam.case.check_inputs is not None
        rows = [i for i, t in enumerate(exam.truths) if (t.question.mode, t.question.is_timed) == (mode, timed)]
        shapes = signature(exam.truths[rows[0]].question.inputs)
        return [i for i in rows if signature(exam.truths[i].question.inputs) == shapes]

    def judge(self, mode: Mode, rows: list[int], answers: Mapping[int, Observation]) -> float | None:
        """The worst error ratio of the row's own answers.

        Raises:
          Wrong: where they are not as precise as the reference's, with the first tensor and input that tell.
        """
        usual = [answers.get(i, truth.torch) for i, truth in enumerate(self.exam.truths)]
        worst: float | None = None
        for kind, name, _ in self.exam.truths[rows[0]].reference.tensors():
            key = (kind, name)
            if kind == "buffer" or any(answers[i].find(key) is None for i in rows):
                if kind == "output":
                    raise Wrong(f"it does not give the output {name}")
                continue
            faults = [fault for i in rows if (fault := self._gross_fault(key, i, answers[i]))]
            # one draw of a gradient may pass a kink on one side alone, and what steps of training make of it with it; a
            # wrong gradient is wrong in every draw
            if faults and ((kind == "output" and mode != "train_step") or len(faults) == len(rows)):
                raise Wrong(faults[0])
            ratio, precise, why = self.exam.precision.verdict(mode, key, rows, usual)
            if not precise:
                told = why or f"error ratio {ratio:.3g}, at most {PRECISE_RATIO:g} was wanted"
                raise Wrong(f"{kind} {name}: {told}", ratio)
            if ratio is not None and (worst is None or ratio > worst):
                worst = ratio
        return worst

    def _gross_fault(self, key: tuple[str, str], row: int, answer: Observation) -> str:
        """How one answer to one input is further off than any rounding, where PyTorch's own is not; else empty."""
        truth = self.exam.truths[row]
        theirs, ours = truth.reference.get(key), answer.get(key)
        if key[0] != "output" and theirs.size >= JUDGED_ELEMENTS and ours.shape == theirs.shape:
            return ""  # its error ratio tells more
        found = difference(ours, theirs, self.exam.scales.of(truth, key))
        if found.error <= GROSS_ERROR or not self._reference_holds(key, row):
            return ""
        values = f": {found.port} for {found.reference} at {list(found.index)}" if found.port else ""
        return f"{key[0]} {key[1]} on the input {truth.question.label!r}{values} {found.note}".rstrip()

    def _reference_holds(self, key: tuple[str, str], row: int) -> bool:
        """Whether PyTorch itself, in the dtype in use, is no further off on this input."""
        truth = self.exam.truths[row]
        return (
            difference(truth.torch.get(key), truth.reference.get(key), self.exam.scales.of(truth, key)).error
            <= GROSS_ERROR
        )
