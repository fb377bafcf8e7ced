"""Further random inputs of a port that is equal so far: what few draws miss, such as a branch that one in ten takes.

An integer that is wrong is not off by a little on all inputs, but by all on some.
"""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING

from ..quiet import quiet
from .adversarial.ties import ORDERS, Reordered, TiesNoted
from .further import Further, further
from .yardstick import SMALLEST_SCALE, difference, magnitude

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ..case import Inputs
    from ..jax_side import PortSide
    from .examination import Examination
    from .judge import Question

MOST = 40  # draws
LONGEST_S = 1.0  # for all of them
LONGER_S = 4.0  # where outputs are integers, which a rare branch makes others


def on_more_draws(exam: Examination, variant: str, port: PortSide, before: Further | None = None) -> Further:
    """Asks a port that is equal on all that it was asked for its outputs on further random inputs of the same shapes,
    as many as there is time for, and judges it on the first of them where they differ.

    Args:
      exam: whose judge answered.
      variant: of the port.
      port: in float64.
      before: what was found, which is given where nothing else is.
    """
    nothing = before or Further()
    asked = [t.question for t in exam.truths if t.question.is_random and not t.question.is_timed]
    modes = dict.fromkeys(question.mode for question in asked)
    first = next(
        (q for mode in ("inference", "forward_backward") if mode in modes for q in asked if q.mode == mode), None
    )
    if first is None:
        return nothing
    with quiet():
        question = _where_they_differ(exam, port, first)
    if question is None:
        return nothing
    try:
        truths = [exam.judge.own_truth(question)]
    except Exception:  # the reference does not answer with gradients there
        return nothing
    other = copy.copy(exam)
    other.truths, other.scales = truths, exam.scales.beside(truths)
    found = further(other, variant, port)
    return found if found.tensors else nothing


def _where_they_differ(exam: Examination, port: PortSide, first: Question) -> Question | None:
    known = next(t.reference.outputs for t in exam.truths if t.question is first)
    end = time.monotonic() + (LONGER_S if any(x.dtype.kind in "iub" for x in known.values()) else LONGEST_S)
    for number in range(MOST):
        inputs = exam.judge.other_inputs(first, number)
        if inputs is None or time.monotonic() > end:
            return None
        try:
            theirs = exam.judge.exact.outputs(inputs, first.mode)
            ours = port.run(inputs, first.mode, first.cotangents).outputs
        except Exception:  # outside of what one side is defined for, as a random input may be
            continue
        if not _agree(exam, first, ours, theirs) and not _hang_on_order(exam, inputs, first, theirs):
            label = f"{first.label}, draw {number + 1} of more"
            return next(iter(exam.judge.questions([(label, inputs, True)], [first.mode])))
    return None


def _agree(
    exam: Examination, first: Question, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> bool:
    """Whether outputs are equal, those that cancel there beside what they are elsewhere."""
    for name, wanted in theirs.items():
        scale = max(magnitude(wanted), SMALLEST_SCALE * exam.scales.magnitude(first.mode, ("output", name)))
        if name in ours and not difference(ours[name], wanted, scale).equal:
            return False
    return True


def _hang_on_order(exam: Examination, inputs: Inputs, first: Question, theirs: Mapping[str, np.ndarray]) -> bool:
    """Whether the reference answers otherwise with another order of what is equal, of which PyTorch promises none."""
    with TiesNoted() as ties:
        exam.judge.exact.outputs(inputs, first.mode)
    for order in ORDERS if ties.why else ():
        with Reordered(order):
            if not _agree(exam, first, exam.judge.exact.outputs(inputs, first.mode), theirs):
                return True
    return False
