"""A gradient that is NaN in the port alone, and all values right: where an operation has no finite derivative.

`jnp.where` leaves out what such an operation gives, and not its derivative: zero times infinity is NaN. PyTorch's
indexing by a mask never computes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...report.records import Cause, Divergence, Finding, Tensor
from ..inside.calls import ROOT
from .graph import Run
from .limit import LateError, Limit
from .port_way import Step
from .values import LARGEST
from .ways import way_of_port

if TYPE_CHECKING:
    from ..inside.localise import Look

LONGEST_S = 20.0
MOST_LINES = 3
SAFE = {
    "sqrt": "safe_sqrt",
    "log": "safe_log",
    "div": "safe_divide",
    "acos": "safe_arccos",
    "asin": "safe_arcsin",
    "atan2": "safe_arctan2",
}


def nan_gradients(look: Look, tensors: Sequence[Tensor], deadline: float) -> list[Divergence]:
    """The modules that make gradients NaN, or infinite, in the port alone, each with its lines; none where nothing
    does, or there is no time.

    What a look inside finds of such a port forward is what around it makes up for: all that the port gives is right.

    Args:
      look: forward and backward.
      tensors: all that is off, which are gradients.
      deadline: of `time.monotonic`.
    """
    wrong = [tensor for tensor in tensors if _is_nan_in_the_port_alone(tensor)]
    if not wrong or not look.run.forced:
        return []
    at = ROOT if ROOT in look.run.forced else look.run.forced[0]
    found: dict[str, dict[tuple[str, str], int]] = {}
    with contextlib.suppress(LateError):
        limit = Limit(LONGEST_S, deadline)
        for step in way_of_port(look, at, limit).reached(limit)[::-1]:
            if not step.operation.has_rule and (count := without_derivative(step)):
                places = found.setdefault(step.operation.module, {})
                place = step.operation.source, step.operation.eqn.primitive.name
                places[place] = max(places.get(place, 0), count)
    findings = list(map(Finding.of, wrong))
    return [replace(look.divergence(module, 0, findings), causes=[_told(places)]) for module, places in found.items()]


def _told(found: dict[tuple[str, str], int]) -> Cause:
    lines = [f"{name} at {source or 'an unknown line'}" for source, name in list(found)[:MOST_LINES]]
    more = f" and {len(found) - MOST_LINES} more" if len(found) > MOST_LINES else ""
    count = max(found.values())
    known = dict.fromkeys(f"gm.{SAFE[name]}" for _, name in found if name in SAFE)
    ready = f", or {' or '.join(known)}" if known else ""
    return Cause(
        id="nan-gradient",
        says=f"has no finite derivative in {', '.join(lines)}{more}, for {count} element{'s' * (count > 1)}: jnp.where "
        "may leave out what that gives, and zero times its derivative is NaN",
        fix="make the argument harmless before, and not the result after: f(jnp.where(kept, x, 1.0)), as gm.where_safe "
        f"does{ready}",
        residual=0.0,
    )


def _is_nan_in_the_port_alone(tensor: Tensor) -> bool:
    values = (tensor.port_value, tensor.reference_value)
    with np.errstate(all="ignore"):
        try:
            ours, theirs = map(float, values)
        except ValueError:
            return False
    return not np.isfinite(ours) and bool(np.isfinite(theirs))


def without_derivative(step: Step, run: Run | None = None) -> int:
    """For how many elements of what it gives a finite derivative is lacking, in its own dtypes, or as it is run."""
    places = [i for i, x in enumerate(step.given) if _is_floating(x)]
    if not places or not all(map(_is_floating, step.results)) or any(np.size(x) > LARGEST for x in step.results):
        return 0
    if not all(np.isfinite(np.asarray(step.given[i])).all() for i in places):
        return 0  # what comes before it has none

    def of(*floating: Any) -> list[Any]:
        given = list(step.given)
        for place, value in zip(places, floating, strict=True):
            given[place] = value
        return step.operation.as_it_is(given) if run is None else run(given)

    try:
        with jax.enable_x64(True):
            results, back = jax.vjp(of, *(step.given[i] for i in places))
            gradients = back([jnp.ones_like(x) for x in results])
    except Exception:  # what JAX has no gradient of
        return 0
    return max(int((~np.isfinite(np.asarray(x))).sum()) for x in gradients)


def _is_floating(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating)
