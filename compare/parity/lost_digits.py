"""Where a port that is equal in float64 loses digits in the dtype that people run, and by which line."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import describe_briefly
from ..quiet import quiet
from ..report.records import Divergence, Tensor
from .diagnosis import LOOKS, Diagnosis
from .judge import Question
from .step_diagnosis import of_optimizer

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from .examination import Examination
    from .inside.localise import Look

BUDGET_S = 60.0  # for the lines


def diagnose_precision(exam: Examination, variant: str, tensors: Sequence[Tensor]) -> Diagnosis:
    """Looks for where a port that is equal, and not precise, loses digits: random inputs together, edges by themselves.

    Args:
      exam: whose judge answered.
      variant: of the port.
      tensors: the verdicts on it.
    """
    from .inside.localise import Look

    diagnosis = Diagnosis()
    update = next((t for t in tensors if t.kind == "update" and not t.precise), None)
    if update is not None:
        diagnosis.divergences.append(of_optimizer(exam, update, dtype=exam.dtype))
    failed = {t.mode for t in tensors if not t.precise}
    looked = False
    with quiet():
        exact, usual = exam.port_side(variant, "float64"), exam.port_side(variant, exam.dtype)
        for mode in (m for m in exam.case.modes if m != "train_step" and m in failed):
            for pool in filter(None, _pools(exam, mode, tensors)):
                try:
                    looks = [Look(exact, exam.judge.exact, question, exam.case.modules) for question in pool]
                    diagnosis.modules = diagnosis.modules or looks[0].modules()
                    found = _imprecise(exam, looks, usual, diagnosis.notes)
                except Exception as error:
                    told = describe_briefly(error)
                    diagnosis.notes.append(f"{mode}: no look for lost digits on {pool[0].label!r}: {told}")
                    continue
                if found:
                    diagnosis.divergences = found + diagnosis.divergences
                    return diagnosis
                looked = True
    if looked:
        diagnosis.notes.append(f"in {exam.dtype} no module by itself is less precise than PyTorch's")
    return diagnosis


def _pools(exam: Examination, mode: str, tensors: Sequence[Tensor]) -> Iterator[list[Question]]:
    """Random inputs together, of a large model one since a look holds all that its modules give; then edges, those
    first that are known to fail."""
    asked = [t.question for t in [*exam.truths, *exam.own.truths] if t.question.mode == mode]
    draws = 1 if exam.judge.is_large else LOOKS
    yield [q for q in asked if q.is_random and not q.is_timed][:draws]
    failed = [t.input for t in tensors if t.mode == mode and not t.precise]
    edges = [q for q in asked if not q.is_random]
    yield from ([q] for q in sorted(edges, key=lambda q: q.label not in failed)[:LOOKS])


def _imprecise(exam: Examination, looks: list[Look], usual: PortSide, notes: list[str]) -> list[Divergence]:
    """The modules that lose digits, with their causes."""
    from .causes import explain_digits
    from .causes.graph import Graph
    from .inside.imprecise import PrecisionLook

    found = PrecisionLook(looks, usual, exam.judge.usual).divergences()
    if not found:
        return []
    known = [match.port for match in looks[0].matching.matches]
    graph, deadline = Graph(usual, looks[0].question), time.monotonic() + BUDGET_S
    told: list[Divergence] = []
    for each in found:
        if time.monotonic() > deadline:
            notes.append(f"the line was looked for in {len(told)} of {len(found)} modules: {BUDGET_S:.0f} s were over")
            return told + found[len(told) :]
        told.append(replace(each, causes=explain_digits(graph, each.module, known)))
    return told
