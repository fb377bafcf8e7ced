"""Why a module goes wrong: known differences are tried on the reference until one gives what the port gives."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import numpy as np

from ...report.records import Cause, Divergence
from ..inside.calls import CallId
from . import known  # noqa: F401  (registers the variants)
from .composite import composites
from .dropout import dropout_on
from .extra import extra_activations, extra_factors
from .fit import plain, solve
from .origins import origins
from .parameters import own_parameters, parameter_variants
from .replay import Change, Site
from .sites import constructs, groups, numbers
from .target import EXPLAINED
from .variants import Fit, Variant, variants
from .wiring import exchanged, multiplied, rewired, stopped, unused
from .wrong_call import Again, WrongCall, elsewhere

if TYPE_CHECKING:
    from ..inside.localise import Look

SUSPECT_S = 25.0  # for one suspect
IN_PART = " (judged before rounding grows: what follows is chaotic)"
NOTHING = 1e-9  # a number that was found to be smaller may as well be zero
ROUNDED = 3e-7  # of a number: as near lies what float32 makes of it
PLAIN_DIGITS = 3  # of a number that somebody may have written
FEW = 4  # kinds of change in integers, that arithmetic is not told from
ARITHMETIC = frozenset(
    {
        "activation",
        "constant",
        "exponent",
        "factor",
        "function",
        "limits",
        "residual",
        "scale",
        "summand",
        "tensors",
        "wiring",
    }
)  # families of causes
MOST = 3  # causes that are told, where an input cannot tell them apart


class Explanation(NamedTuple):
    """The causes that were found, and whether time was over before all had been tried."""

    causes: list[Cause]
    cut_short: bool = False


def explain(
    look: Look,
    divergence: Divergence,
    *,
    deadline: float = np.inf,
    second: Callable[[], Look | None] = lambda: None,
) -> Explanation:
    """The known differences that make the reference's module give exactly what the port's gives.

    Each is tried by itself, on the reference, in float64: it explains a divergence only where all that is off becomes
    right, outputs, gradients and buffers, on a second input, too, where the module goes wrong there. Where none does,
    there are none.

    Args:
      look: in which the divergence was found.
      divergence: of a module that has a counterpart.
      deadline: of `time.monotonic`; 25 s are given at most.
      second: gives a look at another input of the same kind, or None; it is called where a cause was found, and not
        before.
    """
    if divergence.outside or look.matching.to_reference(divergence.module) is None:
        return Explanation([])
    port = CallId(divergence.module, divergence.call)
    if port not in look.matches:
        return Explanation([])
    now = time.monotonic()
    if now > deadline:
        return Explanation([], cut_short=True)
    call = WrongCall(look, port)
    again = Again(call, divergence.module, second)
    trial = _Trial(call, min(deadline, now + SUSPECT_S), look.calls_beyond, elsewhere(look, divergence), again)
    causes = trial.causes()
    return Explanation(causes, cut_short=not causes and trial.is_over)


class _Trial:
    def __init__(
        self,
        call: WrongCall,
        deadline: float,
        calls_beyond: Callable[[str], int | None],
        elsewhere: WrongCall | None,
        again: Again,
    ):
        self.call, self.deadline, self.calls_beyond = call, deadline, calls_beyond
        self.elsewhere, self.again = elsewhere, again
        self.replay, self.target, self.forward = call.replay, call.target, call.forward
        self.found: list[Cause] = []

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.deadline

    def causes(self) -> list[Cause]:
        if not self.call.settle():
            return []
        self.forward = self.call.forward
        sites = self.replay.sites()
        stages = (
            self._dropout,
            self._origins,
            self._called,
            self._single,
            self._composites,
            self._modes,
            self._together,
            self._fits,
            self._borders,
            self._rewired,
            self._extra,
            self._exchanged,
            self._parameters,
            self._perhaps_called,
            self._turns,
        )
        for stage in stages:
            stage(sites)
            if self.found or self.is_over:
                break
        return self.found[:MOST]

    def _dropout(self, sites: list[Site]) -> None:
        cause = dropout_on(self.target)
        again = self.again.call if cause is not None else None
        if cause is not None and (not _is_off_forward(again) or dropout_on(again.target) is not None):
            self._add(cause)

    def _origins(self, sites: list[Site]) -> None:
        causes = list(origins(self.replay, self.target, sites))
        if causes and self.elsewhere is not None:
            causes = _also_of(self.elsewhere, causes)
        if causes and _is_off_forward(again := self.again.call):
            causes = _also_of(again, causes)
        for cause in causes:
            self._add(cause)

    def _called(self, sites: list[Site]) -> None:
        """A module inside called in place of its like beside it, as where a loop is over the same one twice."""
        for left_out, instead in self._siblings():
            fewer, more = self.calls_beyond(left_out), self.calls_beyond(instead)
            if (fewer is None or fewer < 0) and more is not None and more > 0:
                self._try_called(left_out, instead)

    def _perhaps_called(self, sites: list[Site]) -> None:
        """Likewise in a port that has no modules to count the calls of."""
        for left_out, instead in self._siblings():
            if self.calls_beyond(left_out) is None is self.calls_beyond(instead):
                self._try_called(left_out, instead)

    def _siblings(self) -> Iterator[tuple[str, str]]:
        for path, other in itertools.permutations(self.replay.inside, 2):
            if self.is_over:
                return
            if path.rpartition(".")[0] == other.rpartition(".")[0] and self.replay.are_alike(path, other):
                yield path, other

    def _try_called(self, left_out: str, instead: str) -> None:
        says = f"calls {instead} where the reference calls {left_out}"
        self._try("layer-repeated", says, f"call {left_out} there", Change(called=(left_out, instead)))

    def _single(self, sites: list[Site]) -> None:
        """A call in another form, in all turns of the loop that it is in, if any.

        Where one explains it, another number in it may do so as well, and is told too.
        """
        for guesses in (False, True):
            for same in constructs(sites):
                self._varied(same, guesses=guesses)
                if any(cause.id.endswith("-missing") for cause in self.found):
                    return  # a number there would say no more
                if self.found:
                    rest, self.found = self.found[MOST - 1 :], self.found[: MOST - 1]
                    self._fits_of([same])
                    self.found += rest
                    return

    def _together(self, sites: list[Site]) -> None:
        """One variant at all calls of a function: a port that is wrong once is often wrong alike elsewhere."""
        tried = [numbers(same) for same in constructs(sites)]
        for same in groups(sites):
            if numbers(same) not in tried:
                self._varied(same)

    def _turns(self, sites: list[Site]) -> None:
        """A single turn of a loop."""
        for same in constructs(sites):
            for site in same if len(same) > 1 else ():
                self._varied([site])
                if self.found:
                    return

    def _varied(self, same: list[Site], *, guesses: bool | None = None) -> None:
        for variant in self._of(same[0]):
            if isinstance(variant, Variant) and guesses in (None, variant.is_guess):
                self._try(variant.id, variant.says, variant.fix, Change(variant.apply, numbers(same)))

    def _modes(self, sites: list[Site]) -> None:
        """The module's own switch between training and evaluation, the other way."""
        training, other = ("training", "evaluation") if self.replay.module.training else ("evaluation", "training")
        says = f"does in {training} what the reference does in {other}"
        fix = (
            "let it follow self.training or use_running_average, which train() and eval() switch; deterministic is the "
            "switch of dropout alone, which is off in both here"
        )
        self._try("mode", says, fix, Change(other_mode=True))

    def _composites(self, sites: list[Site]) -> None:
        self._each(composites(sites))

    def _parameters(self, sites: list[Site]) -> None:
        for variant in parameter_variants(self.replay):
            if self.is_over:
                return
            self._try(variant.id, variant.says, variant.fix, Change(parameters=variant.parameters))
        for name, parameter in () if self.found else own_parameters(self.replay).items():
            says = f"has {{value}} in all of {name}, which holds other numbers"
            self._fit_change(
                Fit("parameter-constant", says, f"load {name}", parameter.detach().mean().item(), unused, (0.25,)),
                functools.partial(_constant, name),
            )

    def _fits(self, sites: list[Site]) -> None:
        single = constructs(sites)
        self._fits_of(single + [same for same in groups(sites) if same not in single])

    def _fits_of(self, groups: list[list[Site]]) -> None:
        for same in groups:
            for fit in self._of(same[0]):
                if isinstance(fit, Fit):
                    self._fit(fit, numbers(same))

    def _rewired(self, sites: list[Site]) -> None:
        self._each(rewired(self.replay, sites))

    def _exchanged(self, sites: list[Site]) -> None:
        self._each(exchanged(self.replay))

    def _borders(self, sites: list[Site]) -> None:
        self._each(stopped(self.replay))
        for fit, change in multiplied():
            self._fit_change(fit, change)

    def _extra(self, sites: list[Site]) -> None:
        for variant, change in extra_activations(self.replay, sites):
            if self.found or self.is_over:
                return
            self._try(variant.id, variant.says, variant.fix, change)
        for fit, scaled_by in extra_factors(self.replay):
            if self.found or self.is_over:
                return
            self._fit_change(fit, scaled_by)

    def _each(self, tried: Iterable[tuple[Variant, Change]]) -> None:
        for variant, change in tried:
            if self.is_over:
                return
            self._try(variant.id, variant.says, variant.fix, change)

    def _of(self, site: Site) -> Iterator[Variant | Fit]:
        with contextlib.suppress(StopIteration):
            for each in variants(site):
                if self.is_over:
                    return
                yield each

    def _residual(self, change: Change) -> float:
        """What is left with this change; the forward pass alone where that settles it."""
        with contextlib.suppress(Exception):  # a variant that the shapes do not admit
            if self.forward.aims:
                left = self.call.left(self.forward, change, forward_only=True)
                if not self.forward.agrees(left) or len(self.forward.aims) == len(self.target.aims):
                    return left
            return self.call.left(self.target, change)
        return np.inf

    @property
    def _part(self) -> str:
        return IN_PART if self.call.in_part else ""

    def _try(self, id: str, says: str, fix: str, change: Change) -> None:
        left = self._residual(change)
        if self.target.explains(left) and not self._is_by_chance(id) and self._holds_elsewhere(change):
            self._add(Cause(id=id, says=says + self._part, fix=fix, residual=left))

    def _is_by_chance(self, id: str) -> bool:
        """Whether a few integers are all the evidence, and so much arithmetic is tried that some gives them."""
        if id.partition("-")[0] not in ARITHMETIC or self.target.kinds_of_change() >= FEW:
            return False
        again = self.again.call
        return again is None or self.target.kinds_of_change(again.target) < FEW

    def _holds_elsewhere(self, change: Change) -> bool:
        """Whether it explains another call of the module that goes wrong, too, and another input."""
        if self.elsewhere is not None and not self.call.in_part and not self.elsewhere.holds(change):
            return False
        return self.again.holds(change)

    def _add(self, cause: Cause) -> None:
        if all(cause.id != other.id for other in self.found):
            self.found.append(cause)

    def _fit(self, fit: Fit, numbers: frozenset[int]) -> None:
        self._fit_change(fit, lambda value: Change(fit.apply(value), numbers))

    def _fit_change(self, fit: Fit, change: Callable[[float], Change]) -> None:
        which = self.forward if self.forward.aims and self.forward.before > 0 else self.target

        def left(value: float) -> np.ndarray | None:
            with contextlib.suppress(Exception):  # a number that the function refuses
                return which.vector(self.replay.run(change(value), forward_only=which is self.forward))
            return None

        value = solve(left, fit.known, fit.likely, self.deadline)
        if value is None:
            return
        if abs(value) < NOTHING and self.target.explains(self._residual(change(0.0))):
            value = 0.0
        value = plain(value, lambda v: self.target.explains(self._residual(change(v))))
        residual = self._residual(change(value))
        if abs(value - fit.known) <= ROUNDED * abs(fit.known) or (self.found and abs(value) < ROUNDED):
            return  # the rounding of a constant; or nothing, and that it is left out has been told
        if not self.target.explains(residual) or self._is_by_chance(fit.id):
            return
        if self.target.wrong_elements() < 2 and float(f"{value:.{PLAIN_DIGITS}g}") != value and not self.again.call:
            return  # one number makes any one number right
        if self._holds_elsewhere(change(value)):
            words = {"value": f"{value:.12g}", "known": f"{fit.known:.12g}"}
            self._add(
                Cause(
                    id=fit.id,
                    says=fit.says.format(**words) + self._part,
                    fix=fit.fix.format(**words),
                    residual=residual,
                )
            )


def _is_off_forward(call: WrongCall | None) -> TypeGuard[WrongCall]:
    return call is not None and call.forward.before > EXPLAINED


def _also_of(call: WrongCall, causes: list[Cause]) -> list[Cause]:
    """Those of the causes that a tensor in place of another is there, too."""
    ids = {cause.id for cause in origins(call.replay, call.target, call.replay.sites())}
    return [cause for cause in causes if cause.id in ids]


def _constant(name: str, value: float) -> Change:
    # the gradient goes on to the parameter as if it held that number
    return Change(parameters={name: lambda parameter: parameter - parameter.detach() + value})
