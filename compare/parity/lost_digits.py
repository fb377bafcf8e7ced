"""Where a port that is equal in float64 loses digits in the dtype that people run, and by which line."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import describe_briefly
from ..quiet import quiet
from ..report.records import Cause, Divergence, Finding, Tensor
from .diagnosis import LOOKS, Diagnosis
from .judge import Question
from .lost_maxima import lost_digits_of_maxima
from .precision import gross_fault
from .step_diagnosis import of_optimizer

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from .causes.not_finite import NotFinite
    from .causes.wrapped import Wrapped
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
            found: list[Divergence] = []
            for pool in filter(None, _pools(exam, mode, tensors)):
                try:
                    looks = [Look(exact, exam.judge.exact, question, exam.case.modules) for question in pool]
                    diagnosis.modules = diagnosis.modules or looks[0].modules()
                    found = _imprecise(exam, looks, usual, diagnosis.notes)
                except Exception as error:
                    told = describe_briefly(error)
                    diagnosis.notes.append(f"{mode}: no look for lost digits on {pool[0].label!r}: {told}")
                    continue
                looked = True
                if found:
                    break
            if not any(each.causes for each in found):
                found = _of_operations(exam, variant, mode, tensors, diagnosis.notes) or found
            if found:
                diagnosis.divergences = found + diagnosis.divergences
                return diagnosis
    if looked:
        none = f"in {exam.dtype} no module by itself is less precise than PyTorch's"
        diagnosis.notes += lost_digits_of_maxima(exam, variant, usual, tensors) or [none]
    return diagnosis


def _of_operations(
    exam: Examination, variant: str, mode: str, tensors: Sequence[Tensor], notes: list[str]
) -> list[Divergence]:
    """The modules in which something is not finite in the dtype that people run alone, on the first input on which
    something is, or in which integers overflow."""
    from .causes import not_finite, wrapped_integers

    usual = exam.port_side(variant, exam.dtype)
    off = [
        Finding(what=t.kind, tensor=t.name, note=f"{t.ratio:.3g} times PyTorch's error in {exam.dtype}")  # type: ignore[arg-type]
        for t in tensors
        if t.mode == mode and not t.precise and t.ratio is not None
    ]
    for truth in [*exam.truths, *exam.own.truths]:
        question = truth.question
        if question.mode != mode or question.is_timed or exam.judge.is_large:
            continue
        try:
            answer = exam.answer(usual, truth, "jax", variant)
            findings = [
                Finding(what=kind, tensor=name, note=fault)  # type: ignore[arg-type]
                for kind, name, reference in truth.reference.tensors()
                if (fault := _fault(answer.find((kind, name)), truth.torch.find((kind, name)), reference))
            ]
            deadline = time.monotonic() + BUDGET_S
            if findings and (lost := not_finite(usual, question, deadline)):
                return list(_by_module(exam, variant, question, findings, lost))
            if question.is_random and (wrapped := wrapped_integers(usual, question, deadline)):
                return list(_by_module(exam, variant, question, off, wrapped))
        except Exception as error:
            told = describe_briefly(error)
            notes.append(f"{mode}: no look for what is not finite, or overflows, on {question.label!r}: {told}")
            return []
    return []


def _by_module(
    exam: Examination,
    variant: str,
    question: Question,
    findings: Sequence[Finding],
    found: Sequence[NotFinite | Wrapped],
) -> Iterator[Divergence]:
    from .inside.localise import Look

    look = Look(exam.port_side(variant, "float64"), exam.judge.exact, question, exam.case.modules)
    causes: dict[str, list[Cause]] = {}
    for each in found:
        causes.setdefault(each.module, []).append(each.cause)
    for module, own in causes.items():
        yield replace(look.divergence(module, 0, list(findings), dtype=exam.dtype), causes=own)


def _fault(ours: np.ndarray | None, torch: np.ndarray | None, reference: np.ndarray) -> str:
    if ours is None or torch is None or reference.dtype.kind not in "fc":
        return ""
    return gross_fault(ours, torch, reference)


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
