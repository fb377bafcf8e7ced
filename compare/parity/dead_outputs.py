"""Outputs through which the reference has no gradient, and the port has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.tree_util as jtu
import numpy as np

from ..report.records import Cause, Divergence, Finding, Tensor
from ..trees import is_floating, named_leaves
from .yardstick import difference

if TYPE_CHECKING:
    from ..case import Mode
    from ..jax_side import PortSide
    from ..torch_side import TorchSide
    from .examination import Examination
    from .judge import Question, Truth

MODE: Mode = "forward_backward"
FIX = (
    "let the reference keep it (no torch.no_grad, detach or .item() in its forward), or stop it in the port, too, "
    "where it does: other outputs may be made of what it detaches (jax.lax.stop_gradient); where nothing is to be "
    "trained: modes=('inference',)"
)


def dead_outputs(exam: Examination, port: PortSide, tensors: Sequence[Tensor]) -> Divergence | None:
    """The reference's missing gradient as what explains the port's, if nothing else is wrong with its gradients."""
    wrong = [t for t in tensors if t.mode == MODE and not t.equal and t.kind.endswith("gradient")]
    truth = next(
        (t for t in exam.truths if wrong and t.question.mode == MODE and t.question.label == wrong[0].input), None
    )
    if truth is None:
        return None
    dead, all_dead = without_gradient(exam.judge.exact, truth.question)
    loss_alone = truth.question.cotangents is None and all_dead
    if not loss_alone and not (dead and _explains(port, truth, dead)):
        return None
    where = "no gradient" if all_dead else f"no gradient through its output{'s' * (len(dead) > 1)} {', '.join(dead)}"
    finding = Finding(
        what=wrong[0].kind,  # type: ignore[arg-type]
        tensor=wrong[0].name,
        index=wrong[0].index,
        port_value=wrong[0].port_value,
        reference_value=wrong[0].reference_value,
    )
    return Divergence(
        mode=MODE,
        input=truth.question.label,
        module="",
        kind=type(port.model).__name__,
        reference_kind=type(exam.judge.exact.module).__name__,
        findings=[finding],
        causes=[Cause(id="dead-output", says=f"the reference gives {where}, and the port does", fix=FIX, residual=0.0)],
    )


def without_gradient(side: TorchSide, question: Question) -> tuple[list[str], bool]:
    """The floating outputs of a reference that no gradient flows through, and whether there is none at all."""
    from ..torch_side import Snapshot

    module = side.set_mode(MODE)
    batch = side.place(question.inputs, MODE, question.cotangents)
    with Snapshot.of_buffers(module).restored():
        outputs = module(*batch.args, **batch.kwargs)
        loss = side.loss(outputs) if side.loss is not None else None
    leaves = named_leaves(outputs)
    floating = [name for name, leaf in leaves.items() if is_floating(leaf)]
    asked = floating if question.cotangents is None else [name for name in question.cotangents if name in leaves]
    dead = [name for name in asked if not getattr(leaves[name], "requires_grad", False)]
    return dead, not loss.requires_grad if loss is not None else len(dead) == len(asked)


def _explains(port: PortSide, truth: Truth, dead: Sequence[str]) -> bool:
    """Whether the port's gradients are the reference's once none starts at these outputs."""
    question = truth.question
    stopped = None
    if question.cotangents is not None:
        stopped = {k: np.zeros_like(v) if k in dead else v for k, v in question.cotangents.items()}
    elif port.case.loss is not None:
        port = port.with_loss(_stopping(port.case.loss[1], dead))
    answer = port.run(question.inputs, MODE, stopped)
    return all(
        difference(array, theirs, truth.shared_scale((kind, name))).equal
        for kind, name, array in answer.tensors()
        if kind.endswith("gradient") and (theirs := truth.reference.find((kind, name))) is not None
    )


def _stopping(loss: Callable[[Any], Any], dead: Sequence[str]) -> Callable[[Any], Any]:
    """The loss, with no gradient by these outputs."""

    def stopped(outputs: Any) -> Any:
        held = {id(leaf) for name, leaf in named_leaves(outputs).items() if name in dead}
        return loss(jtu.tree_map(lambda x: jax.lax.stop_gradient(x) if id(x) in held else x, outputs))

    return stopped
