"""What of a graph's values cannot be near zero, by the operations that make them, as an exponential.

It is what can be told without any values. An operation that has no finite derivative at zero, such as a square root,
does no harm where its argument is one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

SINGULAR = ("sqrt", "rsqrt", "cbrt", "log", "pow")
"""Operations without a finite derivative where their first argument is zero."""


class Bound(IntEnum):
    """What is known of all elements of a value."""

    NONE = 0
    NOT_NEGATIVE = 1
    AWAY = 2  # from zero, and positive


Known = Bound | Any  # a constant, where it is one
Knowns = list[Known]
POSITIVE = ("exp", "exp2", "logistic", "cosh")
SQUARES = ("square", "abs")
LEAST = ("mul", "div", "dot_general", "select_n", "concatenate", "min", "pad", "sort", "optimization_barrier")
"""What gives the least that is known of its arguments: of a selection, but for what it selects by."""
LEAVING = (
    *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice", "copy", "stop_gradient"),
    *("convert_element_type", "reduce_precision", "reduce_max", "reduce_min", "reduce_sum", "reduce_prod", "cumsum"),
    *("sqrt", "rsqrt", "cbrt", "pow", "integer_pow", "dynamic_slice", "gather", "cummax"),
)
"""What gives of each argument what is known of it, or of the first alone."""


def singular(graph: jex.ClosedJaxpr, inlined: Sequence[str] = ()) -> list[Any]:
    """The equations, also of functions that are `inlined`, that may be given a zero at which they have no derivative.

    Args:
      graph: nothing is known of what it is given.
      inlined: names of primitives that run a graph of theirs once.
    """
    found: list[Any] = []
    _results(graph, [Bound.NONE] * len(graph.jaxpr.invars), inlined, found.append)
    return found


def _results(graph: jex.ClosedJaxpr, given: Knowns, inlined: Sequence[str], found: Callable[[Any], None]) -> Knowns:
    """What is known of what a graph gives."""
    jaxpr = graph.jaxpr
    known: dict[Any, Known] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*graph.consts, *given], strict=True))

    def read(atom: Any) -> Known:
        return atom.val if isinstance(atom, jex.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        of = list(map(read, eqn.invars))
        inner = next((x for x in eqn.params.values() if isinstance(x, jex.ClosedJaxpr)), None)
        if eqn.primitive.name in inlined and inner is not None:
            results = _results(inner, of, inlined, found)
        elif _is_small(eqn) and not any(isinstance(x, Bound) for x in of):
            results = _computed(eqn, of)
        else:
            bounds = list(map(_bound, of))
            if eqn.primitive.name in SINGULAR and bounds[0] is not Bound.AWAY:
                found(eqn)
            results = [_of_results(eqn, bounds)] * len(eqn.outvars)
        known.update(zip(eqn.outvars, results, strict=True))
    return list(map(read, jaxpr.outvars))


def _is_small(eqn: Any) -> bool:
    """Whether an operation gives one number, as a count is."""
    return bool(eqn.invars) and all(getattr(var.aval, "size", 2) == 1 for var in eqn.outvars)


def _computed(eqn: Any, given: Knowns) -> Knowns:
    """Of constants."""
    results = eqn.primitive.bind(*given, **eqn.params)
    return list(results) if eqn.primitive.multiple_results else [results]


def _of_results(eqn: Any, bounds: list[Bound]) -> Bound:
    name = eqn.primitive.name
    if name in POSITIVE:
        return Bound.AWAY
    if name == "iota":
        return Bound.NOT_NEGATIVE
    if name in SQUARES or (name == "integer_pow" and eqn.params["y"] % 2 == 0):
        return max(bounds[0], Bound.NOT_NEGATIVE)
    if name == "mul" and eqn.invars[0] is eqn.invars[1]:
        return max(bounds[0], Bound.NOT_NEGATIVE)
    if name == "max":
        return max(bounds)
    if name in ("add", "add_any"):
        return max(bounds) if min(bounds) > Bound.NONE else Bound.NONE
    if name == "clamp":
        return max(bounds[0], min(bounds[1], bounds[2]))
    if name == "log1p":
        return min(bounds[0], Bound.NOT_NEGATIVE)
    if name == "rem" or (name == "convert_element_type" and jnp.issubdtype(eqn.params["new_dtype"], jnp.integer)):
        return min(bounds[0], Bound.NOT_NEGATIVE)  # of a positive number nothing may be left
    if name == "gather" and eqn.params.get("fill_value") is not None:
        return min(bounds[0], _bound(eqn.params["fill_value"]))
    if name in LEAST:
        return min(bounds[1:] if name == "select_n" else bounds, default=Bound.NONE)
    return bounds[0] if name in LEAVING and bounds else Bound.NONE


def _bound(known: Known) -> Bound:
    """Of a constant, what its elements are, of which NaN is no zero."""
    if isinstance(known, Bound):
        return known
    dtype = known.dtype if hasattr(known, "dtype") else np.asarray(known).dtype  # of int64, where JAX has int32
    if not np.size(known) or not jnp.issubdtype(dtype, jnp.number):
        return Bound.NONE
    least = np.nanmin(np.asarray(known).astype(np.float64), initial=np.inf)
    return Bound.AWAY if least > 0 else Bound.NOT_NEGATIVE if least == 0 else Bound.NONE
