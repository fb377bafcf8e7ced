"""The line of a port whose gradient is not the reference's, where its values are, and no known difference explains it.

Every value of the port's that the reference has, too, has a gradient on both sides. Back from what is wrong, towards
the model's outputs, this comes to a value whose gradient is wrong while that of all which is made of it is right: the
lines that use it there give it another gradient than the reference's do.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from ...report.records import Astray, Cause, Divergence
from ..inside.calls import CallId
from .limit import LateError, Limit, check
from .port_gradients import Key, PortGradients, Spot, Use, Wrong, spot_of, stops
from .reference_gradients import Theirs, reference_gradients
from .values import Laid, Pairs

if TYPE_CHECKING:
    from ..inside.localise import Look

MOST_LINES = 3
WITHIN = 1e-9  # of itself and of the largest of the model, in which a gradient is the reference's
GRADIENTS = ("received_cotangent", "input_gradient", "parameter_gradient")
MOST_ENDS = 8  # values, the last ones, whose uses are looked into
MOST_STOPS = 12  # of the gradient, that are tried one by one
HOW = ("stops", "through", "differs")
SAYS = {
    "stops": "stops the gradient where the reference's goes on",
    "through": "lets the gradient through where the reference's does not go",
}
FIXES = {
    "stops": "leave jax.lax.stop_gradient out there",
    "through": "write jax.lax.stop_gradient(x) of what is used there",
}


class _Told(NamedTuple):
    """What the port does to a gradient: it `stops` it, lets it `through`, or it `differs` otherwise; where, and the
    line of the reference that makes the value, if it is known."""

    how: Literal["stops", "through", "differs"]
    spots: tuple[Spot, ...]
    reference: str


def astray_backward(
    look: Look, divergence: Divergence, deadline: float, *, seconds: float
) -> tuple[Astray | None, Cause | None]:
    """Where a port that is right forward gives another gradient, and why, if a gradient is stopped there, or is not;
    None where that cannot be told. All that is off in the module is right, or less of it wrong, when the gradient is
    made right there, and a cause is told where all is.

    Args:
      look: in which the divergence was found.
      divergence: of a module that has a counterpart, and whose gradients alone are off.
      deadline: of `time.monotonic`, by when it is over in any case.
      seconds: that it may take, as `Limit` counts them.
    """
    at = CallId(divergence.module, divergence.call)
    alone = all(finding.what in GRADIENTS for finding in divergence.findings)
    if divergence.outside or not alone or at not in look.run.forced or look.question.mode != "forward_backward":
        return None, None
    with contextlib.suppress(LateError):
        return _Search(look, at, Limit(seconds, deadline)).found()
    return None, None


class _Search:
    def __init__(self, look: Look, at: CallId, limit: Limit):
        self.look, self.at, self.limit = look, at, limit
        self.theirs = [each._replace(place=i) for i, each in enumerate(reference_gradients(look, at))]
        self.port = PortGradients(look, at, limit)
        self.pairs = Pairs([each.value for each in self.theirs])
        sizes = [np.abs(x).max(initial=0.0) for x in self.port.gradients.values()]
        self.within = WITHIN * max(filter(math.isfinite, sizes), default=0.0)
        self._off_by: dict[Key, list[np.ndarray]] = {}
        self._matches: dict[Key, list[tuple[Theirs, Laid]]] = {}

    def found(self) -> tuple[Astray | None, Cause | None]:
        told, left = self._mended()
        kinds = {each.how for each in told}
        if not told:
            return None, None
        how = told[0].how if len(kinds) == 1 else "differs"
        lines = list(dict.fromkeys(str(spot) for each in told for spot in each.spots))[:MOST_LINES]
        reference = list(dict.fromkeys(each.reference for each in told if each.reference))[:MOST_LINES]
        found = Astray(port=lines, reference=reference, gradient=how)
        if left or how == "differs":
            return found, None
        line = reference[0] if reference else ""
        return found, Cause(id="stop-gradient", says=SAYS[how], fix=FIXES[how], residual=0.0, reference=line)

    def _mended(self) -> tuple[list[_Told], Wrong]:
        """What the port does at the ends of what is wrong, as far as less is wrong without it, and what still is."""
        wrong = self.port.wrong
        if not wrong:
            return [], wrong
        told, left = self._mended_at_ends(wrong)
        if told and all(each.how != "differs" for each in told):
            return told, left
        stopping = {spot_of(use): None for uses in self.port.uses.values() for use in uses if stops(use.operation)}
        for spot in list(stopping)[:MOST_STOPS]:  # of what the reference does not have
            stopped = [_Told("stops", (spot,), "")]
            without = self._wrong_without(stopped)
            if without < wrong and without <= left:
                return stopped, without
        return told, left

    def _mended_at_ends(self, wrong: Wrong) -> tuple[list[_Told], Wrong]:
        ends = sorted(filter(self._is_last, self.port.inside), reverse=True)[:MOST_ENDS]
        if not ends:
            return [], wrong
        by_use = self.port.of_uses([each for key in ends for each in self._laid_otherwise(key)], self.limit)
        told = [each for key in ends if (each := self._told(key, by_use)).spots]
        told = list(dict.fromkeys(told))
        left = self._wrong_without(told)
        if not left < wrong:  # some are none: values that are like others by chance
            told = [each for each in told if self._wrong_without([each]) <= wrong]
            left = self._wrong_without(told) if told else wrong
        if not left < wrong:
            return [], wrong
        for each in sorted(told, key=lambda each: each.how != "differs"):
            others = [other for other in told if other is not each]
            if others and self._wrong_without(others) <= left:
                told = others
        return told, left

    def _wrong_without(self, told: Sequence[_Told]) -> Wrong:
        """What is wrong of the gradients where the port does none of this, wherever it runs these lines."""
        spots = {how: {spot for each in told if each.how == how for spot in each.spots} for how in HOW}

        def right(key: Key) -> np.ndarray | None:
            if not any(spot_of(use) in spots["differs"] for use in self.port.uses[key]):
                return None
            wanted = self._wanted(key)
            return wanted[0] if wanted else None

        return self.port.wrong_with(right, spots["through"], spots["stops"], self.limit)

    def _is_last(self, key: Key) -> bool:
        """Whether the gradient of a value is wrong, and of nothing that is made of it."""
        return self._is_wrong(key) and not any(self._is_wrong(each) for each in self._after(key))

    def _is_wrong(self, key: Key) -> bool:
        return bool(self._off(key))

    def _after(self, key: Key) -> Iterator[Key]:
        """What is made of a value, through what the reference does not have."""
        waiting, seen = [key], {key}
        while waiting:
            check(self.limit)
            for made in self.port.made_of(waiting.pop()):
                if made not in seen:
                    seen.add(made)
                    yield made
                    if not self._wanted(made):
                        waiting.append(made)

    def _known(self, key: Key) -> list[tuple[Theirs, Laid]] | None:
        """The reference's values that are this one, and how their gradients lie in it; None where there are none."""
        if key not in self._matches:
            check(self.limit)
            value = self.port.values.get(key)
            pairs = [] if value is None else self.pairs.of(value)
            self._matches[key] = [(self.theirs[i], laid) for i, laid in pairs]
        return self._matches[key] or None

    def _off(self, key: Key) -> list[np.ndarray]:
        """By how much the gradient of a value is another one than that of each value that is it in the reference; by
        nothing where it is one of these, or where the reference does not have the value."""
        if key not in self._off_by:
            self._off_by[key] = self._differences(key)
        return self._off_by[key]

    def _differences(self, key: Key) -> list[np.ndarray]:
        own = self.port.gradient(key)
        off = [own - wanted for wanted in self._wanted(key)]
        return [] if any(self._are_alike(x, np.zeros_like(x)) for x in off) else off

    def _wanted(self, key: Key) -> list[np.ndarray]:
        """The gradients that a value may have, the likeliest first; none where the reference does not have it, or it is
        one laid otherwise, which has a part of that one's."""
        known = self._known(key)
        if known is None or key not in self._roots.get(self._places(key), ()):
            return []
        taken = [(each, laid(each.gradient)) for each, laid in known if each.gradient is not None]
        if len(self._roots[self._places(key)]) == 1:  # it stands for all of them
            once = [gradient for each, gradient in taken if not each.is_again]
            taken = taken if not once else [(known[0][0], sum(once[1:], once[0]))]
        return _sums([gradient for _, gradient in taken]) or [np.zeros_like(self.port.values[key])]

    @functools.cached_property
    def _roots(self) -> dict[tuple[int, ...], list[Key]]:
        """By the places of the values that they are in the reference, values of the port's that it makes of others."""
        found: dict[tuple[int, ...], list[Key]] = {}
        for key in self.port.inside:
            places = self._places(key)
            if places and places not in map(self._places, self.port.made_from(key)):
                found.setdefault(places, []).append(key)
        return found

    def _places(self, key: Key) -> tuple[int, ...]:
        """Those of the reference's values that a value is."""
        return tuple(each.place for each, _ in self._known(key) or ())

    def _is_all(self, part: np.ndarray, off: list[np.ndarray]) -> bool:
        """Whether a part of a gradient is all that is off; of the same elements in another shape."""
        return any(x.size == part.size and self._are_alike(x, part.reshape(x.shape)) for x in off)

    def _are_alike(self, a: np.ndarray, b: np.ndarray) -> bool:
        with np.errstate(invalid="ignore"):
            return bool((np.abs(a - b) <= self.within + WITHIN * np.abs(b)).all())

    def _laid_otherwise(self, key: Key) -> list[Key]:
        """A value, and what is made of it that is the same one: another shape of it, say."""
        found = [key]
        for each in found:
            made = (one for one in self.port.made_of(each) if self._places(one) == self._places(key))
            found += [one for one in made if one not in found]
        return found

    def _told(self, key: Key, by_use: Mapping[Use, np.ndarray]) -> _Told:
        off, known = self._off(key), self._known(key) or []
        every = [use for one in self._laid_otherwise(key) for use in self.port.uses[one]]
        uses = [use for use in every if use.operation.source and self.port.is_of_use(use)]
        stopping = [use for use in uses if stops(use.operation) and use in by_use]
        taken = {each.gradient is not None: each.source for each, _ in reversed(known)}
        for use in stopping:
            if self._is_all(-by_use[use], off):
                return _Told("stops", (spot_of(use),), taken.get(True, ""))
        for use in uses:
            if use in by_use and use not in stopping and self._is_all(by_use[use], off):
                return _Told("through", (spot_of(use),), taken.get(False, ""))
        own = [use for use in self.port.uses[key] if use in uses and use not in stopping]
        others = [spot_of(use) for use in own if self.port.is_own(use.operation)]
        return _Told("differs", tuple(dict.fromkeys(others)), taken.get(True, ""))


def _sums(gradients: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Of the gradients of values that are one value in a port: each, of any two, and of all."""
    different: list[np.ndarray] = []
    for each in gradients:
        if not any(np.allclose(each, other, rtol=WITHIN, atol=0) for other in different):
            different.append(each)
    pairs = [a + b for i, a in enumerate(different) for b in different[:i]]
    return [*different, *pairs, *([sum(different[1:], different[0])] if len(different) > 2 else [])]
