"""Integers that do not fit in the dtype that people run: without x64 JAX's have 32 bits where PyTorch's have 64."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...report.records import Cause
from .graph import DTYPES, Graph, Operation, Run
from .limit import LateError, Limit, check
from .values import as_array

if TYPE_CHECKING:
    from ...jax_side import PortSide
    from ..judge import Question

LONGEST_S = 10.0
MOST_LINES = 3
GROWING = (
    *("add", "sub", "mul", "neg", "integer_pow", "pow", "dot_general", "convert_element_type", "shift_left"),
    *("reduce_sum", "reduce_prod", "cumsum", "cumprod", "scatter-add", "scatter-mul"),
)
FIX = (
    "without x64 JAX's integers have 32 bits where PyTorch's have 64: keep them small, say by a remainder before a "
    "product as well as after it, compute what is fixed with numpy before, or set jax_enable_x64"
)


class Wrapped(NamedTuple):
    """The module of the port in which integers overflow, and where."""

    module: str
    cause: Cause


def wrapped_integers(port: PortSide, question: Question, deadline: float) -> list[Wrapped]:
    """The first lines of the port that give other integers than the same operations in 64 bits; none mostly.

    Args:
      port: in the dtype that people run.
      question: an input.
      deadline: of `time.monotonic`.
    """
    found: dict[tuple[str, str], Wrapped] = {}
    limit = Limit(LONGEST_S, deadline)

    def visit(operation: Operation, given: list[Any], run: Run) -> list[Any]:
        check(limit)
        results = operation.as_it_is(given)
        place = operation.module, operation.source
        if operation.source and place not in found and (says := _says(operation, given, results)):
            cause = Cause(id="integer-overflow", says=f"{says} at {operation.source}", fix=FIX, residual=0.0)
            found[place] = Wrapped(operation.module, cause)
        return results

    with contextlib.suppress(LateError):
        Graph(port, question).evaluate(visit, opened=True)
    return list(found.values())[:MOST_LINES]


def _says(operation: Operation, given: list[Any], results: list[Any]) -> str:
    """How an operation overflows; empty where it does not, or is none by which signed integers grow."""
    name, ours = operation.eqn.primitive.name, as_array(results[0]) if results else np.empty(0)
    if name not in GROWING or ours.dtype.kind != "i" or ours.dtype.itemsize >= 8 or not ours.size:
        return ""
    wide = [jnp.asarray(x, jnp.int64) if as_array(x).dtype.kind == "i" else x for x in given]
    params = {k: jnp.dtype(jnp.int64) if k in DTYPES and v is not None else v for k, v in operation.eqn.params.items()}
    try:
        with jax.enable_x64(True):
            exact = as_array(operation.eqn.primitive.bind(*wide, **params))
    except Exception:  # one that is made for its dtypes alone
        return ""
    off = exact != ours
    if exact.shape != ours.shape or not off.any():
        return ""
    at = np.unravel_index(int(off.argmax()), off.shape)
    return f"overflows {ours.dtype} in {name}: {exact[at]} became {ours[at]},"
