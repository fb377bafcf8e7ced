"""What is wrong with the steps of a port whose forward and backward passes are right."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..report.divergence_text import OPTIMIZER
from ..report.records import Cause, Divergence, Finding, Tensor

if TYPE_CHECKING:
    from .examination import Examination


def of_optimizer(exam: Examination, update: Tensor, dtype: str = "") -> Divergence:
    """The optimizer as the place of the error: given the same gradients it steps otherwise; with a dtype, in that."""
    from .causes import explain_optimizer, explain_optimizer_digits
    from .optimizer import worst_in

    tensor = "the step on given gradients"
    if dtype:
        worst, label = worst_in(exam.case, seed=exam.seed, dtype=dtype, device=exam.device)
        note = "" if update.ratio is None else f"{update.ratio:.3g} times PyTorch's error in {dtype}"
        finding = Finding(
            what="update",
            tensor=tensor,
            error=worst.error,
            index=worst.index,
            port_value=worst.port,
            reference_value=worst.reference,
            note=note,
        )
        causes = explain_optimizer_digits(exam.case, seed=exam.seed, dtype=dtype, device=exam.device)
    else:
        label, finding = update.input, replace(Finding.of(update, tensor), note="")
        causes = explain_optimizer(exam.case, seed=exam.seed, device=exam.device)
    return Divergence(mode="train_step", input=label, module=OPTIMIZER, findings=[finding], causes=causes, dtype=dtype)


def of_steps(exam: Examination, moved: Sequence[Tensor]) -> Divergence:
    """The optimizer as the place where forward and backward are right, it is right on given gradients, and yet
    parameters move otherwise: it treats some gradients otherwise, such as those that are not there, or vectors."""
    from .causes import explain_optimizer_of_vectors

    alone = left_alone(exam, moved)
    names = ", ".join(t.name for t in alone)
    causes = []
    if any(t.name in exam.judge.frozen for t in alone):
        says = f"trains {names}, which the reference freezes (requires_grad=False)"
        fix = (
            "leave them out of what the optimizer updates (optax.partition, wrt=), or stop their gradient and have no "
            "weight decay, which moves what has a gradient of zero, too"
        )
        causes.append(Cause(id="frozen", says=says, fix=fix, residual=0.0))
    elif alone:
        says = f"moves {names}, which the reference leaves where they are: they have no gradient there"
        fix = (
            "a zero gradient still decays and moves: leave out what has none, as gm.train_step does by itself "
            "(gm.optim's update takes None, or present=)"
        )
        causes.append(Cause(id="absent-gradient", says=says, fix=fix, residual=0.0))
    elif not exam.judge.is_large:
        with contextlib.suppress(Exception):  # it takes matrices alone
            causes += explain_optimizer_of_vectors(exam.case, seed=exam.seed, device=exam.device)
    moved = [*alone, *(t for t in moved if t not in alone)]  # what follows from those comes after them
    findings = [Finding.of(t, f"{t.name} after steps of training") for t in moved]
    findings = [replace(each, what="update", note="") for each in findings]
    return Divergence(mode="train_step", input=moved[0].input, module=OPTIMIZER, findings=findings, causes=causes)


def left_alone(exam: Examination, moved: Sequence[Tensor]) -> list[Tensor]:
    """Those of these parameters that the reference freezes; or else those that have no gradient there, and that its
    optimizer does not move."""
    if trained := [t for t in moved if t.name in exam.judge.frozen]:
        return trained
    steps = [truth for truth in exam.truths if truth.question.mode == "train_step"]
    stay = [t for t in moved if all(t.name in s.reference.parameters for s in steps)]
    stay = [t for t in stay if not any(s.reference.parameters[t.name].any() for s in steps)]
    if not stay or not steps:
        return []
    asked = [truth.question for truth in steps]
    absent = set.intersection(*(exam.judge.exact.without_gradient(q.inputs, q.cotangents) for q in asked))
    return [t for t in stay if t.name in absent]
