"""Why a module goes wrong: known differences are tried on the reference until one gives what the port gives."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ...report.records import Cause, Divergence
from ..inside.calls import CallId
from ..yardstick import difference
from . import known  # noqa: F401  (registers the variants)
from .fit import plain, solve
from .origins import origins
from .parameters import parameter_variants
from .replay import Change, Replay, Site
from .target import EXPLAINED, Target, target_of
from .variants import Fit, Variant, variants

if TYPE_CHECKING:
    from ..inside.localise import Look

BUDGET_S = 20.0  # for one suspect
MOST = 3  # causes that are told, where an input cannot tell them apart


def explain(look: Look, divergence: Divergence, *, budget_s: float = BUDGET_S) -> list[Cause]:
    """The known differences that make the reference's module give exactly what the port's gives.

    Each is tried by itself, on the reference, in float64: it explains a divergence only where all that is off becomes
    right, outputs, gradients and buffers. Where none does, the list is empty.

    Args:
      look: in which the divergence was found.
      divergence: of a module that has a counterpart.
      budget_s: seconds.
    """
    if divergence.outside or look.matching.to_reference(divergence.module) is None:
        return []
    port = CallId(divergence.module, divergence.call)
    at = look.matches.get(port)
    if at is None:
        return []
    aim = target_of(look, divergence.module, divergence.call)
    forced = {look.matches[call] for call in look.run.forced}
    replay = Replay(look.judge.module, look.calls, at, forced, look.question.mode == "forward_backward")
    return _Trial(replay, aim, time.monotonic() + budget_s).causes()


class _Trial:
    def __init__(self, replay: Replay, target: Target, deadline: float):
        self.replay, self.target, self.deadline = replay, target, deadline
        self.forward = target.forward
        self.found: list[Cause] = []

    def causes(self) -> list[Cause]:
        base = self.replay.run(Change())
        missing = [key for key in self.target.aims if key not in base]
        for key in missing:
            del self.target.aims[key]
        aims = self.target.aims
        if not aims or any(
            difference(base[key], aim.reference, aim.scale).error > EXPLAINED for key, aim in aims.items()
        ):
            return []  # nothing to explain, or a module that keeps something from call to call
        self.forward = self.target.forward
        sites = self.replay.sites()
        for stage in (self._origins, self._single, self._together, self._parameters, self._fits):
            stage(sites)
            if self.found or time.monotonic() > self.deadline:
                break
        return self.found[:MOST]

    def _origins(self, sites: list[Site]) -> None:
        for cause in origins(self.replay, self.target, sites):
            self._add(cause)

    def _single(self, sites: list[Site]) -> None:
        for site in sites:
            for variant in self._of(site):
                if isinstance(variant, Variant):
                    self._try(variant.id, variant.says, variant.fix, Change(variant.apply, frozenset([site.number])))

    def _together(self, sites: list[Site]) -> None:
        """One variant at all calls of a function: a port that is wrong once is often wrong alike elsewhere."""
        for same in _groups(sites):
            numbers = frozenset(site.number for site in same)
            for variant in self._of(same[0]):
                if isinstance(variant, Variant):
                    self._try(variant.id, variant.says, variant.fix, Change(variant.apply, numbers))

    def _parameters(self, sites: list[Site]) -> None:
        for variant in parameter_variants(self.replay):
            self._try(variant.id, variant.says, variant.fix, Change(parameters=variant.parameters))

    def _fits(self, sites: list[Site]) -> None:
        groups = [[site] for site in sites] + _groups(sites)
        for same in groups:
            for fit in self._of(same[0]):
                if isinstance(fit, Fit):
                    self._fit(fit, frozenset(site.number for site in same))

    def _of(self, site: Site) -> Iterator[Variant | Fit]:
        with contextlib.suppress(StopIteration):
            for each in variants(site):
                if time.monotonic() > self.deadline:
                    return
                yield each

    def _residual(self, change: Change) -> float:
        """What is left with this change; the forward pass alone where that settles it."""
        with contextlib.suppress(Exception):  # a variant that the shapes do not admit
            if self.forward.aims:
                left = self.forward.residual(self.replay.run(change, forward_only=True))
                if not self.forward.agrees(left) or len(self.forward.aims) == len(self.target.aims):
                    return left
            return self.target.residual(self.replay.run(change))
        return np.inf

    def _try(self, id: str, says: str, fix: str, change: Change) -> None:
        left = self._residual(change)
        if self.target.explains(left):
            self._add(Cause(id=id, says=says, fix=fix, residual=left))

    def _add(self, cause: Cause) -> None:
        if all(cause.id != other.id for other in self.found):
            self.found.append(cause)

    def _fit(self, fit: Fit, numbers: frozenset[int]) -> None:
        def change(value: float) -> Change:
            return Change(fit.apply(value), numbers)

        which = self.forward if self.forward.aims and self.forward.before > 0 else self.target

        def left(value: float) -> np.ndarray | None:
            with contextlib.suppress(Exception):  # a number that the function refuses
                return which.vector(self.replay.run(change(value), forward_only=which is self.forward))
            return None

        value = solve(left, fit.known, fit.likely, self.deadline)
        if value is None:
            return
        value = plain(value, lambda v: self.target.explains(self._residual(change(v))))
        residual = self._residual(change(value))
        if self.target.explains(residual):
            words = {"value": f"{value:.12g}", "known": f"{fit.known:.12g}"}
            self._add(Cause(id=fit.id, says=fit.says.format(**words), fix=fit.fix.format(**words), residual=residual))


def _groups(sites: list[Site]) -> list[list[Site]]:
    """Calls of one function, where there are several."""
    by_name: dict[str, list[Site]] = {}
    for site in sites:
        by_name.setdefault(site.name, []).append(site)
    return [same for same in by_name.values() if len(same) > 1]
