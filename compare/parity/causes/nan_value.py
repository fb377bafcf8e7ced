"""A value that is NaN in the port alone: the operation that makes it of numbers, and what makes the infinity in them.

So it is where `jnp.where` leaves out what has no number, and something behind it multiplies that by zero, such as a
gradient that the model takes in its own forward.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...report.records import Cause, Divergence
from ..inside.calls import CallId
from .limit import LateError, Limit, check
from .port_way import Step
from .values import as_array
from .ways import ways

if TYPE_CHECKING:
    from ..inside.localise import Look

LONGEST_S = 20.0


def nan_value(look: Look, divergence: Divergence, deadline: float) -> Cause | None:
    """What makes NaN in a module that gives it where the reference has a number; None where it does not, or nothing
    can be seen of it.

    Args:
      look: in which the divergence was found.
      divergence: of a module that goes wrong forward.
      deadline: of `time.monotonic`.
    """
    at = CallId(divergence.module, divergence.call)
    if divergence.outside or at not in look.run.forced:
        return None
    with contextlib.suppress(LateError):
        return _nan_value(look, at, Limit(LONGEST_S, deadline))
    return None


def _nan_value(look: Look, at: CallId, limit: Limit) -> Cause | None:
    both = ways(look, at, limit)
    maker = both.maker
    wrong = next((x for x in both.wrong if id(x) in maker and _where(np.isnan, x).any()), None)
    if wrong is None:
        return None
    first, given = _first(np.isnan, wrong, maker, limit)
    says = f"makes NaN in {_place(first, given)}"
    infinite = next((x for x in first.given if id(x) in maker and _where(np.isinf, x).any()), None)
    if infinite is not None:
        says += f"; the infinity is from {_place(*_first(np.isinf, infinite, maker, limit))}"
    return Cause(
        id="nan",
        says=says,
        fix="make what is given to it harmless before, as gm.where_safe, gm.safe_divide and gm.safe_sqrt do: jnp.where "
        "after it leaves out the value, and not its derivative",
        residual=0.0,
    )


def _first(kind: Callable[[Any], Any], value: Any, maker: dict[int, Step], limit: Limit) -> tuple[Step, list[float]]:
    """The operation that makes such a number of others, and the elements that it makes it of, where it works on single
    ones."""
    places = _where(kind, value)
    while True:
        check(limit)
        step = maker[id(value)]
        before = [x for x in step.given if id(x) in maker and _where(kind, x).any()]
        same = [x for x in before if np.shape(x) == places.shape and (_where(kind, x) & places).any()]
        if not before:
            at = np.unravel_index(int(places.argmax()), places.shape)
            alike = (x for x in map(as_array, step.given) if x.shape in (places.shape, ()) and x.dtype.kind in "fiu")
            return step, [float(x[at if x.ndim else ()]) for x in alike]
        value = (same or before)[0]
        places = _where(kind, value) & places if same else _where(kind, value)


def _where(kind: Callable[[Any], Any], value: Any) -> np.ndarray:
    array = as_array(value)
    return np.asarray(kind(array)) if array.dtype.kind in "fc" else np.zeros(array.shape, bool)


def _place(step: Step, given: list[float]) -> str:
    of = f", of {', '.join(f'{number:.4g}' for number in given)}" if given else ""
    return f"{step.operation.eqn.primitive.name} at {step.operation.source or 'an unknown line'}{of}"
