"""The divergences of a look with their causes: what is seen at once, what explains a module, and casts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..report.records import Cause, Divergence
from .yardstick import difference

if TYPE_CHECKING:
    from .causes import Elsewhere
    from .inside.calls import CallId
    from .inside.localise import Look

GRADIENTS = ("received_cotangent", "input_gradient", "parameter_gradient")
Place = tuple[str, bool]  # a module, and whether the fault is outside of all


def place_of(divergence: Divergence) -> Place:
    """By which it is found again at another input."""
    return divergence.module, divergence.outside


def is_off_forward(divergence: Divergence) -> bool:
    """Whether something is off that the module hands to others or gives."""
    return any(finding.what in ("received", "output") for finding in divergence.findings)


def is_of_gradients_alone(divergence: Divergence) -> bool:
    return all(finding.what in GRADIENTS for finding in divergence.findings)


def with_what_passes(look: Look, divergence: Divergence) -> Divergence:
    """A divergence in whose module a gradient goes on that the reference stops, as that of `critic(fake.detach())`."""
    if divergence.outside or is_off_forward(divergence):
        return divergence
    around = {at: look.run.around(at) for at, _ in look.let_through}
    inside = [f"{name} of {at}" for at, name in look.let_through if _path(around[at]) == divergence.module]
    if not inside:
        return divergence
    cause = Cause(
        id="detach",
        says=f"lets the gradient through by what it hands to {' and '.join(inside)}, where the reference detaches that",
        fix="hand it jax.lax.stop_gradient(x)",
        residual=0.0,
    )
    return replace(divergence, causes=[cause])


def with_numbers(look: Look, divergence: Divergence) -> Divergence:
    """A divergence in which nothing is off at its root but numbers that it hands to modules inside."""
    handed = [seen for seen in look.forced if seen.what == "received" and _path(seen.around) == divergence.module]
    wrong = [seen for seen in handed if not difference(seen.port, seen.reference).equal]
    numbers = [seen for seen in wrong if seen.name in look.calls[look.matches[seen.at]].numbers and not seen.port.ndim]
    if divergence.outside or divergence.causes or not numbers or numbers[0] is not wrong[0]:
        return divergence
    first = numbers[0]
    cause = Cause(
        id="number",
        says=f"hands {first.name}={first.port:.12g} to {first.at}, where the reference hands {first.reference:.12g}",
        fix=f"hand it {first.name}={first.reference:.12g}",
        residual=0.0,
    )
    return replace(divergence, causes=[cause])


def _path(at: CallId | None) -> str:
    return at.path if at is not None else ""


def explained_by(
    look: Look, divergences: list[Divergence], deadline: float, elsewhere: Elsewhere, *, is_first: bool
) -> list[Divergence]:
    """The divergences, those without a cause as this look tells of the same place: a further one where it has a cause.

    Beside the reference's constants in other digits than the port's, all that is made of them is off by a little.
    """
    without = {place_of(each) for each in divergences if not each.causes}
    seen = [each for each in look.divergences() if place_of(each) in without]
    told = {place_of(each): each for each in _explained(look, seen, deadline, elsewhere)} if seen else {}
    silent = {place_of(each) for each in seen} - told.keys()
    told = {place: each for place, each in told.items() if is_first or each.causes}
    return [told.get(place_of(each), each) for each in divergences if place_of(each) not in silent]


def _explained(
    look: Look, divergences: list[Divergence], deadline: float, elsewhere: Elsewhere
) -> Iterator[Divergence]:
    """The divergences of a look with their causes, which hold in other looks, too."""
    from .causes import explain, explain_casts

    found = [explain(look, each, deadline=deadline, elsewhere=elsewhere) for each in divergences]
    casts: dict[str, Cause] = {}
    if not all(one.causes for one in found):
        known = [match.port for match in look.matching.matches]
        casts = explain_casts(look.port, look.question, look.observed, known)
    hold = any(not own.causes and each.module in casts for each, own in zip(divergences, found, strict=True))
    for each, own in zip(divergences, found, strict=True):
        if hold and not own.causes and each.module not in casts and not each.outside and is_off_forward(each):
            continue  # without the casts all is right: it hands on what another module gives in a narrower dtype
        if each.outside and casts and look.port.case.loss is None:
            continue  # a cotangent in the dtype of an output that was cast
        causes = own.causes or [*filter(None, [None if each.outside else casts.get(each.module)])]
        yield replace(each, causes=causes, cut_short=own.cut_short and not causes, tried_s=own.tried_s)
