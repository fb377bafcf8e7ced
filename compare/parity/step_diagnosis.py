"""What is wrong with the steps of a port whose forward and backward passes are right."""

from __future__ import annotations

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
    parameters move otherwise: it treats some gradients otherwise, such as those that are not there."""
    moved = sorted(moved, key=lambda t: t.name not in exam.judge.frozen)  # what follows from those comes after them
    findings = [
        Finding(
            what="update",
            tensor=f"{t.name} after steps of training",
            error=t.error,
            index=t.index,
            port_value=t.port_value,
            reference_value=t.reference_value,
        )
        for t in moved
    ]
    steps = [truth.reference.parameters for truth in exam.truths if truth.question.mode == "train_step"]
    stays = all(t.name in each and not each[t.name].any() for t in moved for each in steps)
    causes = []
    if trained := [t.name for t in moved if t.name in exam.judge.frozen]:
        says = f"trains {', '.join(trained)}, which the reference freezes (requires_grad=False)"
        fix = (
            "leave them out of what the optimizer updates (optax.partition, wrt=), or stop their gradient and have no "
            "weight decay, which moves what has a gradient of zero, too"
        )
        causes.append(Cause(id="frozen", says=says, fix=fix, residual=0.0))
    elif steps and stays:
        names = ", ".join(t.name for t in moved)
        says = f"moves {names}, which the reference leaves where they are: they have no gradient there"
        fix = (
            "a zero gradient still decays and moves: leave out what has none, as gm.train_step does by itself "
            "(gm.optim's update takes None, or present=)"
        )
        causes.append(Cause(id="absent-gradient", says=says, fix=fix, residual=0.0))
    return Divergence(mode="train_step", input=moved[0].input, module=OPTIMIZER, findings=findings, causes=causes)
