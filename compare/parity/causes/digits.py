"""Which line loses digits, in a module that rounds worse than PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...dtypes import HALF_ULP
from ...report.records import Cause
from ..yardstick import rms, rms_error
from .casts import CAST_FIX, Cast, cast_of, nearest
from .graph import Graph, Operation

if TYPE_CHECKING:
    from ...jax_side import PortSide
    from ..judge import Question

TRIED = 5  # operations, those that lose most first
LOST = 4.0  # half-ulps of its result, that an operation loses to be tried
EXPLAINED = 0.25  # of the module's error, that may be left without this loss
CANCELS = ("sub", "add", "reduce_sum", "add_any")


class _Loss(NamedTuple):
    """An operation, what it loses of its result when its arguments are right but for their rounding, and what is
    right."""

    operation: Operation
    lost: float
    right: list[Any]


def explain_digits(port: PortSide, question: Question, path: str, known: Sequence[str]) -> list[Cause]:
    """The line of a module that loses the digits, found by experiment; nothing where no single line does.

    The graph runs in float64, but for the operations of this module: that is the error which the module makes. The
    line explains it where the error goes away as the right result of this one operation is put in.

    Args:
      port: in the dtype that people run.
      question: on which digits are lost.
      path: of the module in the port.
      known: paths of the modules that have a counterpart.
    """
    graph = Graph(port, question)
    losses: list[_Loss] = []

    def note(operation: Operation, given: list[Any], in_float64: Callable[[list[Any]], list[Any]]) -> list[Any]:
        right = in_float64(given)
        if nearest(operation.module, known) == path:
            lost = _lost(operation.as_it_is(given), right)
            if lost > LOST * HALF_ULP[port.dtype]:
                losses.append(_Loss(operation, lost, right))
        return right

    truth = graph.evaluate(note)

    def error(but: _Loss | None) -> float:
        def visit(operation: Operation, given: list[Any], in_float64: Callable[[list[Any]], list[Any]]) -> list[Any]:
            if but is not None and operation.number == but.operation.number:
                return but.right
            return operation.as_it_is(given) if nearest(operation.module, known) == path else in_float64(given)

        return _lost(graph.evaluate(visit), truth)

    whole = error(None) if losses else 0.0
    for loss in sorted(losses, key=lambda each: -each.lost)[:TRIED]:
        left = error(loss)
        if whole > 0 and left <= EXPLAINED * whole:
            return [_cause(graph, loss, port.dtype, left / whole if np.isfinite(whole) else 0.0)]
    return []


def _lost(found: Sequence[Any], right: Sequence[Any]) -> float:
    """The largest error of several results, each of its own size."""
    worst = 0.0
    for ours, theirs in zip(found, right, strict=True):
        reference = np.asarray(theirs)
        if reference.dtype.kind == "f" and reference.size and (size := rms(reference)):
            worst = max(worst, rms_error(np.asarray(ours).astype(np.float64), reference) / size)
    return worst


def _cast_before(graph: Graph, operation: Operation) -> Cast | None:
    """The conversion to fewer digits that this operation is, or whose result it works on."""
    if operation.narrows:
        return cast_of(operation)
    narrow = {v.aval.dtype for v in operation.eqn.invars if hasattr(v.aval, "dtype")}
    made = [cast_of(each) for each in graph.operations() if each.narrows and each.eqn.outvars[0].aval.dtype in narrow]
    return next((cast for cast in made if cast.module == operation.module), None)


def _cause(graph: Graph, loss: _Loss, dtype: str, residual: float) -> Cause:
    operation = loss.operation
    at = f" at {operation.source}" if operation.source else ""
    name = operation.eqn.primitive.name
    left = f"about {max(-np.log10(loss.lost), 0):.1f} of {dtype}'s {-np.log10(HALF_ULP[dtype]):.1f} digits are left"
    if (cast := _cast_before(graph, operation)) is not None:
        return Cause(id="hidden-cast", says=cast.says, fix=CAST_FIX, residual=residual)
    if not np.isfinite(loss.lost):
        says = f"overflows {dtype} in {name}{at}"
        fix = (
            "keep the numbers small: subtract the largest before exp, take log1p, expm1, logsumexp or a library's form"
        )
        return Cause(id="overflow", says=says, fix=fix, residual=residual)
    if name in CANCELS:
        says = f"adds or subtracts numbers that nearly cancel{at}: {left}"
        fix = (
            "write it in a form that does not cancel: a variance as the mean of squared differences and not as "
            "E[x^2] - E[x]^2 (use_fast_variance=False in Flax's norms), log1p and expm1 near zero"
        )
        return Cause(id="cancellation", says=says, fix=fix, residual=residual)
    says = f"loses digits in {name}{at}: {left}"
    return Cause(
        id="lost-digits", says=says, fix="use a form that keeps them, or a wider dtype there", residual=residual
    )
