"""What a reader of a failed verdict had better know of the reference, whatever is found inside the port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..checkpoints import no_checkpoints
from ..report.records import Tensor
from .coverage import listed

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from .examination import Examination

MODE = "forward_backward"


def written_twice(exam: Examination, tensors: Sequence[Tensor]) -> Iterator[str]:
    """Where the reference's checkpoints, which call modules again on the way back, write buffers twice."""
    wrong = {t.input for t in tensors if t.kind == "buffer" and t.mode == MODE and not t.equal}
    for truth in exam.truths if not exam.judge.is_large else ():
        question = truth.question
        if question.mode != MODE or question.label not in wrong:
            continue
        with no_checkpoints() as met:
            once = exam.judge.exact.run(question.inputs, question.mode, question.cotangents)
        if not met:
            continue
        pairs = ((name, once.find(("buffer", name)), then) for name, then in truth.reference.buffers.items())
        if twice := [name for name, now, then in pairs if now is not None and not np.array_equal(now, then)]:
            yield (
                f"{MODE}: torch.utils.checkpoint calls modules of the reference again in the backward pass, which "
                f"writes {listed(twice)} twice; a port writes them once, as the reference does without it"
            )
            return


def at_a_kink(exam: Examination, port: PortSide, variant: str, tensors: Sequence[Tensor]) -> Iterator[str]:
    """Where gradients alone are off, and the inputs lie where either side may be right; for what nothing explains."""
    wrong = [t for t in tensors if not t.equal and t.mode == MODE]
    if exam.judge.is_large or not all(t.kind.endswith("gradient") for t in wrong):
        return
    for truth in exam.truths:
        here = [t for t in wrong if (t.mode, t.input) == (truth.question.mode, truth.question.label)]
        if not here:
            continue
        with contextlib.suppress(Exception):  # the reference does not answer beside these inputs: nothing can be told
            answer = exam.answer(port, truth, "jax", variant)
            pairs = [((t.kind, t.name), answer.find((t.kind, t.name))) for t in here]
            rounding = exam.judge.rounding
            if all(array is not None and rounding.is_at_a_kink(truth, key, array) for key, array in pairs):
                yield (
                    f"{MODE}: on {truth.question.label!r} the reference's own gradient of "
                    f"{listed([t.name for t in here])} is another one beside these inputs: they lie at a kink or a "
                    "tie, where the two may part without a fault; give inputs that keep off it"
                )
                return
