"""What a suspect of the port shows, beside what the reference shows: a cause has to turn the one into the other."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..inside.calls import CallId
from ..yardstick import EQUAL_TOLERANCE, SMALLEST_GRADIENT, difference, magnitude
from .changed import Evidence, Key

if TYPE_CHECKING:
    from ..inside.borders import Seen
    from ..inside.localise import Look

FORWARD = ("output", "received", "buffer")
EXPLAINED = 1e-9  # of a tensor's scale
LITTLE = 10 * EXPLAINED  # an error up to which all that is not equal counts
SHARE = 1e-3  # of the error, that may be left
STABLE = 1e-12  # of a tensor's scale: what moves by less when a parameter moves by an ulp can be right to EXPLAINED
FEW_OFF = 8  # elements
TELLING = 0.05  # of the elements that are off: so many have to be right


@dataclass(frozen=True)
class Aim:
    """One tensor: the port's, the reference's, and what an error in it is a fraction of."""

    port: np.ndarray
    reference: np.ndarray
    scale: float

    @functools.cached_property
    def error(self) -> float:
        return difference(self.port, self.reference, self.scale).error

    @functools.cached_property
    def wrong(self) -> np.ndarray:
        """Where the port's elements are off."""
        return self.off(self.reference) > SHARE

    def off(self, found: np.ndarray | None, other: np.ndarray | None = None) -> np.ndarray:
        """How far each element is from the port's, or from another's, as a fraction of the scale."""
        beside = self.port if other is None else other
        if found is None or found.shape != beside.shape:
            return np.full(beside.shape, np.inf)
        if found.dtype.kind not in "fc":
            return np.where(found == beside, 0.0, np.inf)
        with np.errstate(invalid="ignore"):
            apart = np.where(found == beside, 0.0, np.abs(found - beside)) / (self.scale or 1.0)
        return np.where(np.isnan(found) & np.isnan(beside), 0.0, np.nan_to_num(apart, nan=np.inf))

    def residual(self, found: np.ndarray | None) -> float:
        """The error that is left where this is what the reference's changed module shows."""
        if found is None:
            return np.inf
        if found.dtype != self.port.dtype and found.dtype.kind == self.port.dtype.kind == "f":
            found = found.astype(self.port.dtype)
        return difference(self.port, found, self.scale).error


@dataclass(frozen=True)
class Target:
    """All that the suspect shows.

    Attributes:
      aims: by kind and name, as `Replay.run` names what it finds.
      before: the largest error.
    """

    aims: dict[Key, Aim]

    @property
    def before(self) -> float:
        return max((aim.error for aim in self.aims.values()), default=0.0)

    @property
    def forward(self) -> Target:
        return Target({key: aim for key, aim in self.aims.items() if key[0] in FORWARD})

    def residual(self, found: Evidence) -> float:
        """The largest error that is left."""
        return max((aim.residual(found.get(key)) for key, aim in self.aims.items()), default=0.0)

    def share_made_right(self, found: Evidence) -> float:
        """Of the elements that are off, how many are right here."""
        off = right = 0
        for key, aim in self.aims.items():
            if aim.wrong.any():
                off += int(aim.wrong.sum())
                right += int((aim.wrong & (aim.off(found.get(key)) <= EXPLAINED)).sum())
        return right / off if off else 0.0

    def residual_where_stable(self, found: Evidence, nearby: Sequence[Evidence]) -> float:
        """The largest error that is left where rounding does not grow to be seen.

        A recurrence that is wrong may be chaotic: after a hundred steps two right computations of it have nothing in
        common. What differs between this one and those nearby, an ulp or so away in the parameters, tells nothing, nor
        does the row that it is in; where too little is left that does, the answer is infinity.
        """
        off = stable_off = 0
        largest = 0.0
        for key, aim in self.aims.items():
            moved = np.maximum.reduce([aim.off(found.get(key), other.get(key)) for other in nearby])
            stable = np.broadcast_to(moved.max(axis=-1, keepdims=True) if moved.ndim else moved, moved.shape) <= STABLE
            off += int(aim.wrong.sum())
            stable_off += int((aim.wrong & stable).sum())
            largest = max(largest, float(aim.off(found.get(key))[stable].max(initial=0.0)))
        return largest if off and stable_off >= TELLING * off else np.inf

    def kinds_of_error(self, *others: Target) -> int:
        """How many different values became how many others, here and in others; two stand for more. Single numbers
        that are off by the same are one: a loss, and a sum that it is a term of."""
        pairs: set[tuple[Any, Any]] = set()
        for aim in itertools.chain(*(each.aims.values() for each in (self, *others))):
            off = aim.off(aim.reference) > EXPLAINED
            if aim.port.size == 1 and aim.port.dtype != bool and off.any():
                pairs.add(("a single number", f"{(aim.port - aim.reference).item():.6g}"))
                continue
            pairs |= set(itertools.islice(zip(aim.reference[off].tolist(), aim.port[off].tolist(), strict=True), 2))
        return len(pairs)

    def kinds_of_change(self, *others: Target) -> float:
        """Where only integers and bools are off, here and in others, how many different ones became how many others;
        else infinity."""
        pairs = set()
        for aim in itertools.chain(*(each.aims.values() for each in (self, *others))):
            off = aim.off(aim.reference) > EXPLAINED
            if off.any() and aim.port.dtype.kind not in "iub":
                return np.inf
            pairs |= set(zip(aim.reference[off].tolist(), aim.port[off].tolist(), strict=True))
        return len(pairs)

    @property
    def is_thin(self) -> bool:
        """Whether integers and bools alone are off, or so few elements that what is chosen by them may all be one."""
        off = {True: 0, False: 0}  # by whether they are integers
        for aim in self.aims.values():
            off[aim.port.dtype.kind in "iub"] += int((aim.off(aim.reference) > EXPLAINED).sum())
        return off[True] > 0 and (not off[False] or sum(off.values()) <= FEW_OFF)

    @property
    def is_boundless(self) -> bool:
        """Whether nothing is off but what is not finite in the port alone."""
        off = [aim.port[aim.off(aim.reference) > EXPLAINED] for aim in self.aims.values()]
        return not any(np.isfinite(port).any() for port in off)

    def explains(self, residual: float) -> bool:
        return self.agrees(residual) and residual <= SHARE * self.before

    def agrees(self, residual: float) -> bool:
        """Whether nothing is left, whatever there was: of a small error less than of others."""
        return residual <= (EXPLAINED if self.before > LITTLE else EQUAL_TOLERANCE)

    def vector(self, found: Evidence) -> np.ndarray | None:
        """What is left, element by element, each of its scale; None where shapes differ."""
        parts = []
        for key, aim in self.aims.items():
            value = found.get(key)
            if value is None or value.shape != aim.port.shape:
                return None
            if value.dtype.kind == "f":
                parts.append(((value.astype(np.float64) - aim.port.astype(np.float64)) / (aim.scale or 1.0)).ravel())
        whole = np.concatenate(parts) if parts else np.zeros(0)
        return whole if np.isfinite(whole).all() else None


def target_of(look: Look, path: str, call: int) -> Target:
    """What this suspect of the port hands to modules inside, and gives, forward and backward."""
    aims: dict[Key, Aim] = {}

    def add(key: Key, seen: Seen, scale: float | None) -> None:
        aims[key] = Aim(seen.port, seen.reference, magnitude(seen.reference) if scale is None else scale)

    largest = look.largest_gradient
    for seen in [*look.forced, *(look.backward.seen if look.backward else ())]:
        small = SMALLEST_GRADIENT * largest if seen.what in ("received_cotangent", "input_gradient") else 0.0
        scale = max(magnitude(seen.reference), small)
        if seen.what in ("output", "input_gradient") and seen.at == (path, call):
            add((seen.what, seen.name), seen, scale)
        if seen.what in ("received", "received_cotangent") and seen.around == (path, call) and not seen.is_beyond:
            add((seen.what, f"{seen.name} of {look.matches[seen.at]}"), seen, scale)
    aims.update(_totals(look, [CallId(path, call)]))
    for name in (name for name, at in look.read_from.items() if at == (path, call)):
        aims["parameter_gradient", name] = _gradient_aim(look, name)
    return Target(aims)


def totals_of(look: Look, calls: list[CallId]) -> Target:
    """What all calls of one module leave in its buffers, and the gradients of its parameters by all of them."""
    return Target(_totals(look, calls))


def _totals(look: Look, calls: list[CallId]) -> dict[Key, Aim]:
    aims: dict[Key, Aim] = {}
    if look.backward is not None:
        for name in look.observed.parameter_gradients:
            if name in look.backward.by_parameters and look.holders.calls(name) == calls:
                aims["parameter_gradient", name] = _gradient_aim(look, name)
    if look.question.mode == "forward_backward":
        for name, wanted in look.observed.buffers.items():
            counts = name.endswith("num_batches_tracked")  # whatever the statistics are, the module itself counts
            if name in look.buffers and _is_written_by(look, calls, name) and not counts:
                aims["buffer", name] = Aim(look.buffers[name], wanted, magnitude(wanted))
    return aims


def _is_written_by(look: Look, calls: list[CallId], name: str) -> bool:
    """Whether these are the calls of the module that holds a buffer, or of the one that writes it from elsewhere."""
    writer = look.holders.writer_elsewhere(name)
    return look.holders.calls(name) == calls if writer is None else [each.path for each in calls] == [writer]


def _gradient_aim(look: Look, name: str) -> Aim:
    assert look.backward is not None
    wanted = look.observed.parameter_gradients[name]
    scale = max(magnitude(wanted), SMALLEST_GRADIENT * look.largest_gradient)
    return Aim(look.backward.by_parameters[name], wanted, scale)
