"""NaN that a port loses: on a CPU XLA's largest and smallest of many elements overlook it, and PyTorch's do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax.tree_util as jtu
import numpy as np

from ..trees import is_floating

if TYPE_CHECKING:
    from ..jax_side import PortSide
    from ..torch_side import TorchSide
    from .causes.graph import Operation
    from .judge import Question

OVERLOOK = ("reduce_max", "reduce_min")
MANY = 4096  # elements, from which jaxlib 0.10 reduces them by a library that compares without regard to NaN


def lost_nan(port: PortSide, reference: TorchSide, question: Question) -> str:
    """What to say of a port that gives a number where the reference says NaN, by such a reduction; mostly nothing.

    Args:
      port, reference: in the dtype that people run.
      question: in inference; one element of each floating input is NaN here.
    """
    from .call_limit import CountedCalls
    from .causes.graph import Graph

    try:
        operations = list(Graph(port, question).operations())
        many = _of_many(operations)
        if not many or any(operation.eqn.primitive.name == "while" for operation in operations):
            return ""  # a loop of the port's may never end on NaN, and nothing stops it
        with_nan = dataclasses.replace(question, inputs=jtu.tree_map(_one_nan, question.inputs))
        with CountedCalls() as usual:
            reference.run(question.inputs, question.mode)
        with usual.limit:
            theirs = reference.run(with_nan.inputs, with_nan.mode)
        ours = port.run(with_nan.inputs, with_nan.mode).renamed(theirs)
    except Exception:  # it refuses NaN, and says so, or a loop of the reference's never ends on it
        return ""
    lost = [name for name, wanted in theirs.outputs.items() if _loses(ours.outputs.get(name), wanted)]
    if not lost:
        return ""
    at = ", ".join(dict.fromkeys(filter(None, many))) or "a library"
    return (
        f"with a NaN in its inputs the reference gives NaN in {', '.join(lost)}, and the port a number: on a CPU "
        f"jnp.max and jnp.min of {MANY} and more elements overlook NaN (at {at}), so that a run that diverges looks "
        "sound; put it back: jnp.where(jnp.isnan(x).any(axis), jnp.nan, jnp.max(x, axis))"
    )


def _of_many(operations: Iterable[Operation]) -> list[str]:
    """The lines of such reductions of many elements."""
    return [
        operation.source
        for operation in operations
        if operation.eqn.primitive.name in OVERLOOK
        and is_floating(aval := operation.eqn.invars[0].aval)
        and aval.size >= MANY
    ]


def _one_nan(leaf: Any) -> Any:
    if not is_floating(leaf) or not np.size(leaf):
        return leaf
    array = np.array(leaf)
    array.flat[array.size // 2] = np.nan
    return array


def _loses(ours: np.ndarray | None, theirs: np.ndarray) -> bool:
    if ours is None or not is_floating(theirs) or ours.shape != theirs.shape:
        return False
    return bool((np.isnan(theirs.astype(np.float64)) & np.isfinite(ours.astype(np.float64))).any())
