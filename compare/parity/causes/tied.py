"""A parameter that the reference uses in several places, and the port has in each an array of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...report.records import Cause
from ..inside.calls import CallId
from ..yardstick import difference
from .target import EXPLAINED
from .wrong_call import WrongCall

if TYPE_CHECKING:
    from ..inside.localise import Look


def other_uses_missing(look: Look, call: WrongCall) -> Cause | None:
    """The cause where all that is off is gradients of the module's parameters, of which the port has just the part that
    this call adds, and the reference more, or less, where it freezes them for one call; or, of a parameter that is read
    from outside, the part that the module which holds it adds. None otherwise.

    Args:
      look: in which the call was seen.
      call: settled.
    """
    wrong = {key: aim for key, aim in call.target.aims.items() if aim.error > EXPLAINED}
    if look.backward is None or not wrong or any(kind != "parameter_gradient" for kind, _ in wrong):
        return None
    residual = 0.0
    for (_, name), aim in wrong.items():
        own = look.holders.gradient_by_calls(name) if name in look.read_from else aim.reference  # what the call adds
        residual = max(residual, difference(look.backward.by_parameters[name], own, aim.scale).error)
        if difference(look.observed.parameter_gradients[name], own, aim.scale).equal:
            return None
    if residual > EXPLAINED:
        return None
    names = ", ".join(name for _, name in wrong)
    if (frozen := _frozen_in(look, [name for _, name in wrong])) is not None:
        says = f"adds to the gradient by {names} that of a call ({frozen}) in which the reference freezes them"
        fix = "call a copy of the module there whose parameters have gone through jax.lax.stop_gradient"
        return Cause(id="stop-gradient", says=says, fix=fix, residual=residual)
    holder = "the module that holds it" if look.read_from.keys() & {name for _, name in wrong} else "this module"
    says = f"has of the gradient by {names} what {holder} adds alone: what the reference's other uses of it add is "
    if _is_off_forward(look) or any(_has_a_copy(look, name) for _, name in wrong):
        fix = "use one nnx.Param in all places: no copy of its value where it is used again"
        return Cause(id="untied", says=says + "missing", fix=fix, residual=residual)
    says = f"has of the gradient by {names} what {holder} adds alone: none comes from where it is used again"
    fix = "let it through where it is used again: no jax.lax.stop_gradient, and no copy of its value"
    return Cause(id="stop-gradient", says=says, fix=fix, residual=residual)


def _frozen_in(look: Look, names: list[str]) -> CallId | None:
    """The first call in which the reference does not train these parameters, of several of which it does in one."""
    for name in names:
        calls = [look.calls[look.matches[at]] for at in look.holders.calls(name)]
        frozen = [each for each in calls if name.removeprefix(f"{each.id.path}.") in each.frozen]
        if frozen and len(frozen) < len(calls):
            return frozen[0].id
    return None


def _is_off_forward(look: Look) -> bool:
    """Whether something is off forward, too: a copy may hold other numbers, and a stopped gradient changes none."""
    return any(f.what in ("received", "output") for suspect in look.suspects.values() for f in suspect.findings)


def _has_a_copy(look: Look, name: str) -> bool:
    """Whether the port has an array of its own for another name of the parameter."""
    assert look.backward is not None
    gradients = look.backward.by_parameters
    others = (gradients[alias] for alias in look.holders.aliases(name) if alias != name and alias in gradients)
    return any(not np.array_equal(other, gradients[name], equal_nan=True) for other in others)
