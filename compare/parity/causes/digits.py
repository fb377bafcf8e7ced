"""Which line loses digits, in a module that rounds worse than PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...dtypes import HALF_ULP, JAX_DTYPES
from ...report.records import Cause
from ...trees import is_floating
from ..yardstick import magnitude, rms, rms_error
from .casts import CAST_FIX, HIDDEN_CAST, Cast, cast_of, nearest
from .graph import Graph, Operation, Run, Visit

TRIED = 5  # operations, those that lose most first
LOST = 4.0  # half-ulps of its result, that an operation loses to be tried
EXPLAINED = 0.25  # of the module's error, that may be left without this loss
ROUNDING = 100.0  # half-ulps that may be left in a wider range, where the error is infinite
CANCELS = ("sub", "add", "reduce_sum", "add_any")


class _Loss(NamedTuple):
    """An operation, what it loses of its result when its arguments are right but for their rounding, and what is
    right."""

    operation: Operation
    lost: float
    right: list[Any]


def explain_digits(graph: Graph, path: str, known: Sequence[str]) -> list[Cause]:
    """The line of a module that loses the digits, found by experiment; nothing where no single line does.

    The graph runs in float64, but for the operations of this module: that is the error which the module makes. An
    operation explains it where the error goes away as its right result is put in; failing that, all those of a line.
    Where the error is infinite, the range explains it if the error goes away in a wider one, and the first operation
    that leaves the range is named.

    Args:
      graph: of the port in the dtype that people run, on a question where digits are lost.
      path: of the module in the port.
      known: paths of the modules that have a counterpart.
    """
    dtype = graph.port.dtype
    losses: list[_Loss] = []

    def is_inside(operation: Operation) -> bool:
        return nearest(operation.module, known) == path

    def note(operation: Operation, given: list[Any], in_float64: Run) -> list[Any]:
        right = in_float64(given)
        if is_inside(operation) and not _exceeds(given, dtype):
            lost = _lost(operation.as_it_is(given), right)
            if lost > LOST * HALF_ULP[dtype]:
                losses.append(_Loss(operation, lost, right))
        return right

    def error(instead: Visit) -> float:
        def visit(operation: Operation, given: list[Any], in_float64: Run) -> list[Any]:
            return (instead if is_inside(operation) else _right)(operation, given, in_float64)

        return _lost(graph.evaluate(visit), truth)

    truth = graph.evaluate(note)
    if not losses:
        return []
    whole = error(_as_it_is)
    if not np.isfinite(whole):
        beyond = [loss for loss in losses if not np.isfinite(loss.lost)]
        left = error(lambda *call: _in_range(*call, dtype=dtype))
        return [_cause(graph, beyond[0], dtype, left)] if beyond and left <= ROUNDING * HALF_ULP[dtype] else []
    losses.sort(key=lambda each: -each.lost)
    lines: dict[str, list[_Loss]] = {}
    for loss in losses:
        lines.setdefault(loss.operation.source, []).append(loss)
    several = [line for source, line in lines.items() if source and len(line) > 1]
    for group in [*([loss] for loss in losses[:TRIED]), *several[:TRIED]]:
        right = {each.operation.number: each.right for each in group}
        left = error(lambda operation, *call, right=right: right.get(operation.number) or _as_it_is(operation, *call))
        if left <= EXPLAINED * whole:
            return [_cause(graph, group[0], dtype, left / whole)]
    return []


def _right(operation: Operation, given: list[Any], in_float64: Run) -> list[Any]:
    return in_float64(given)


def _as_it_is(operation: Operation, given: list[Any], in_float64: Run) -> list[Any]:
    return operation.as_it_is(given)


def _in_range(operation: Operation, given: list[Any], in_float64: Run, *, dtype: str) -> list[Any]:
    """As it is, but where a number comes in or goes out that the dtype cannot hold."""
    right = in_float64(given)
    return right if _exceeds(given, dtype) or _exceeds(right, dtype) else operation.as_it_is(given)


def _exceeds(values: Sequence[Any], dtype: str) -> bool:
    """Whether a finite number is beyond what this dtype holds."""
    largest = float(jnp.finfo(JAX_DTYPES[dtype]).max)
    arrays = [np.asarray(x) for x in values if is_floating(x)]
    return any(bool((np.isfinite(x) & (np.abs(x) > largest)).any()) for x in arrays)


def _lost(results: Sequence[Any], right: Sequence[Any]) -> float:
    """The largest error of several results, each of its own size."""
    worst = 0.0
    for ours, theirs in zip(results, right, strict=True):
        reference = np.asarray(theirs)
        if reference.dtype.kind == "f" and (largest := magnitude(reference)):
            reference = reference / largest  # squares of the largest numbers are beyond float64, too
            found = np.asarray(ours).astype(np.float64) / largest
            worst = max(worst, rms_error(found, reference) / rms(reference))
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
        return Cause(id=HIDDEN_CAST, says=cast.says, fix=CAST_FIX, residual=residual)
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
