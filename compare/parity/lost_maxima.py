"""Gradients of a largest element that a compiled graph loses, and the same operations one by one do not.

XLA computes cheap values anew in each of its fusions that takes them, and may round them otherwise in each: a product
and a sum are one operation in the one, and two in the other. JAX's derivative of `jnp.max` asks where `x == max(x)`,
which then holds nowhere (jaxlib 0.10 on a CPU), or at too few of the elements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..trees import is_floating
from .causes.graph import Graph

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from ..observation import Observation
    from ..report.records import Tensor
    from .examination import Examination
    from .judge import Key, Question

FAR = 100  # times as far off as operation by operation is no rounding
ASK_WHERE = ("reduce_max", "reduce_min", "scatter_max", "scatter_min")  # an element is equal to what they give


def maxima(port: PortSide, question: Question, wrong: Collection[Key]) -> list[str]:
    """The lines of those that may have lost what is wrong; none where more than gradients are.

    Args:
      port: which answers.
      question: that it answers wrongly.
      wrong: the tensors that are.
    """
    if not port.compiled or not all(kind.endswith("gradient") for kind, _ in wrong):
        return []
    return list(dict.fromkeys(_lines(port, question)))


def _lines(port: PortSide, question: Question) -> Iterator[str]:
    eqns = [(operation.source, operation.eqn) for operation in Graph(port, question).operations()]
    stopped = {id(atom) for _, eqn in eqns if eqn.primitive.name == "stop_gradient" for atom in eqn.invars}
    for source, eqn in eqns:
        asks = eqn.primitive.name in ASK_WHERE and is_floating(eqn.outvars[0].aval)
        if source and asks and id(eqn.outvars[0]) not in stopped:  # as that of a softmax is
            yield source


def told_of(lines: list[str], question: Question) -> str:
    """What to say of a port that is right on an input operation by operation."""
    return (
        f"{question.mode}: on {question.label!r} this port is right operation by operation, and as a compiled graph "
        "loses gradients, as it does when it trains: XLA computes a value anew in each fusion that takes it, and "
        f"rounds it otherwise there, so that no element is equal to the largest (at {', '.join(lines)}); take the one "
        "that jnp.argmax finds, by jnp.take_along_axis(x, jnp.argmax(x, axis, keepdims=True), axis), or write "
        "gm.masked_max, or for a pooling gm.nn.functional.adaptive_max_pool2d"
    )


def lost_digits_of_maxima(exam: Examination, variant: str, port: PortSide, tensors: Sequence[Tensor]) -> list[str]:
    """What to say of a port that is equal, and whose gradients are lost so in the dtype that people run.

    Args:
      exam: whose judge answered.
      variant: of the port.
      port: in that dtype.
      tensors: the verdicts on it.
    """
    wrong = [t for t in tensors if not t.precise]
    truth = next(
        (t for t in exam.truths if (t.question.mode, t.question.label) == (wrong[0].mode, wrong[0].input)), None
    )
    if exam.judge.is_large or truth is None:
        return []
    lines = maxima(port, truth.question, {(t.kind, t.name) for t in wrong})
    if not lines:
        return []
    whole, single = (exam.answer(each, truth, "jax", variant) for each in (port, port.by_operations()))
    wanted: dict[Key, np.ndarray] = {(kind, name): array for kind, name, array in truth.reference.tensors()}

    def error(answer: Observation, key: Key) -> float:
        found = answer.find(key)
        return np.inf if found is None else float(np.abs(found.astype(np.float64) - wanted[key]).max(initial=0))

    at = [(t.kind, t.name) for t in wrong if t.input == truth.question.label]
    is_so = all(FAR * error(single, key) < error(whole, key) for key in at)
    return [told_of(lines, truth.question)] if is_so else []
