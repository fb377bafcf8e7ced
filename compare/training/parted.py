"""Where two scripts part: the first step whose gradients, moves of parameters or buffers differ, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..parity.yardstick import SMALLEST_GRADIENT, Difference, difference, magnitude
from .left import Left
from .result import EQUAL
from .taken import Gradients, Named

LISTED = 3
NOT_KNOWN = (
    "Which gradients the port's optimizer takes is known of gm.train_step on one device, and of an nnx.Optimizer that "
    "model_step makes for the module or a part of it: these differ, or what is made of them."
)
FURTHER = "What a transformation of optax does is not known in parts: clipping, decay and rate are among them."
DIVIDES_BY = (
    "optax.clip_by_global_norm divides by the norm, and PyTorch by the norm plus 1e-6, as gm.optim.clip_grad_norm does"
)
CLIPS_ITSELF = f"Does the port clip at all? {DIVIDES_BY}."
BY_EPSILON = 0.1  # what an epsilon beside the norm makes of a factor, at most
BY_FLOAT32 = 1e-6  # what its rounding makes of a factor, at most
NOISE = 1e-6  # of the largest gradient: what Adam makes of less is decided by rounding
ALIKE = 1e-6  # of a factor that all elements share


@dataclass
class Taken:
    """What one side's step took and left.

    Attributes:
      loss: before the step.
      gradients: that its optimizers were given.
      rates: learning rates by group; empty where they are not known.
      before, after: what the side keeps.
      settings: of the optimizer, by name, the values of all groups.
    """

    loss: float
    gradients: Gradients
    rates: tuple[float, ...]
    before: Left
    after: Left
    settings: Mapping[str, frozenset[Any]] = field(default_factory=dict)

    def of(self, names: Collection[str]) -> Taken:
        """What of it is of these parameters."""
        return replace(
            self,
            gradients=self.gradients.of(names),
            after=replace(self.after, tensors={key: a for key, a in self.after.tensors.items() if key[1] in names}),
        )


def told(number: int, port: Taken, reference: Taken) -> str:
    """What differs first in a step that both begin alike; empty where nothing does."""
    order = reference.gradients.order
    if len(order) > 1 and reference.gradients.taken is not None:  # a loss may come after the first of them has stepped
        for place, names in enumerate(order, 1):
            words = _of_optimizer(number, port.of(names), reference.of(names))
            if words:
                return f"Optimizer {place} of {len(order)} ({_names(sorted(names))}): {words}"
    if not _same_loss(port, reference):
        return _of_loss(number, steps=len(order)) + _moved_by_then(number, port, reference)
    return _of_optimizer(number, port, reference) or _of_buffers(number, port, reference)


def _of_optimizer(number: int, port: Taken, reference: Taken) -> str:
    return _of_gradients(number, port, reference) or _of_moves(number, port, reference)


def _same_loss(port: Taken, reference: Taken) -> bool:
    return abs(port.loss - reference.loss) <= EQUAL * abs(reference.loss)


def _of_loss(number: int, *, steps: int) -> str:
    if steps > 1 and not number:
        return (
            f"Both begin step 0 with the same weights, and optimizers step {steps} times in it on PyTorch's side, "
            "which the loss may come after: the model, its loss, when that is taken, or, where one optimizer steps "
            "again and again, what that does is another."
        )
    if not number:
        return (
            "Both begin step 0 with the same weights, so that no optimizer is at fault: the model, its mode (train or "
            "eval) or the loss is another. graphmode check of a Case of the two models names the module."
        )
    return (
        f"Both begin step {number} with the same parameters and buffers, and its loss is another: look for state that "
        "is neither, for an update that comes before its use on one side and after it on the other, for a factor that "
        "changes with the steps, or for a copy of parameters, the same until then, that is taken for the original or "
        "the original for it."
    )


def _of_gradients(number: int, port: Taken, reference: Taken) -> str:
    ours, theirs = port.gradients.taken, _comparable(port, reference)
    if ours is None or theirs is None:
        return ""
    if not theirs and any(array.any() for array in ours.values()):
        return f"At step {number} PyTorch's script takes no step of an optimizer, and the port does."
    least = SMALLEST_GRADIENT * _largest(theirs)
    if off := _gradients_off(ours, theirs):
        factor = _shared_factor([(ours[name], theirs[name]) for name in theirs if name in ours], least)
        of_all = f"{len(off)} of {len(theirs)} parameters"
        says = f"At step {number} the losses agree, and the gradients that the optimizer takes do not, of {of_all}"
        why = "The backward pass is another, or what is done to gradients before the step."
        if not _same_loss(port, reference):
            says = f"At step {number} the gradients that the optimizer takes are others, of {of_all}"
            why = "What they are taken of is another (the model, its loss, which optimizer steps before), or their way."
        if factor is not None:
            why = "Clipping, or how parts of a batch are accumulated, is another."
            if abs(factor - 1) < BY_EPSILON and theirs is not reference.gradients.accumulated:
                why = f"Clipping is another: {DIVIDES_BY}."
            return (
                f"{says}: all are {factor:.9g} times PyTorch's (norms {_norm(ours):.9g} and {_norm(theirs):.9g}). {why}"
            )
        return f"{says}: {_listed(off)}. {why}"
    untrained = [name for name in reference.after.parameters if name in ours and name not in theirs]
    lonely = [name for name in untrained if _moves(port, name) and not _moves(reference, name)]
    if lonely:
        return (
            f"At step {number} the port's optimizer moves {_names(lonely)}, and PyTorch's has no gradient there: it "
            "does not train them, or not in this step. Name them in train_step's frozen, stop their gradient, or give "
            "a gm.training.Loss with present."
        )
    return ""


def _comparable(port: Taken, reference: Taken) -> Named | None:
    """PyTorch's gradients that are to be the port's: before clipping, where the port's optimizer may clip itself and
    what it takes is nearer to them."""
    ours, theirs = port.gradients, reference.gradients
    if not ours.further or ours.taken is None or theirs.taken is None or theirs.accumulated is None:
        return theirs.taken
    clipped, before = (_farthest(ours.taken, each) for each in (theirs.taken, theirs.accumulated))
    return theirs.accumulated if before < clipped and clipped > EQUAL else theirs.taken


def _farthest(ours: Named, theirs: Named) -> float:
    return max((each.error for each in _gradients_off(ours, theirs).values()), default=0.0)


def _gradients_off(ours: Named, theirs: Named) -> dict[str, Difference]:
    least = SMALLEST_GRADIENT * _largest(theirs)
    return _off({n: difference(ours[n], g, max(magnitude(g), least)) for n, g in theirs.items() if n in ours})


def _of_moves(number: int, port: Taken, reference: Taken) -> str:
    moves = [(name, _moved(port, name), _moved(reference, name)) for name in reference.after.parameters]
    known = {
        name: (_judged(ours, name, port, reference), _judged(theirs, name, port, reference))
        for name, ours, theirs in moves
        if ours is not None and theirs is not None and ours.shape == theirs.shape
    }
    least = NOISE * _largest({name: theirs for name, (_, theirs) in known.items()})
    off = _off({name: difference(a, b, max(magnitude(b), least)) for name, (a, b) in known.items()})
    if not off:
        return ""
    if beside := _moved_beside(number, off, reference):
        return beside
    same = port.gradients.taken is not None and reference.gradients.taken is not None
    clipped = _comparable(port, reference) is not reference.gradients.taken
    of_all = f"{len(off)} of {len(known)} parameters"
    says = f"At step {number} {of_all} are moved otherwise"
    if same:
        which = "the same gradients, before PyTorch's script clips them," if clipped else "the same gradients"
        says = f"At step {number} the optimizer takes {which} on both sides, and moves {of_all} otherwise"
    says = f"{says}: {_listed(off)}."
    still = [name for name in off if not known[name][1].any()]
    if len(still) == len(off):
        return f"{says} PyTorch's script leaves them as they are."
    factor = _shared_factor([known[name] for name in off], 0.0)
    if factor == 0 and not any(ours.any() for ours, _ in known.values()):
        says += (
            " The port moves nothing: its rate is 0 in this step, as where a schedule counts from another step, or its "
            "step does not train the module that model_step was given, in place."
        )
        clipped = False
    elif factor is not None and abs(factor - 1) < BY_FLOAT32:
        says += f" The port moves them 1 {factor - 1:+.2g} times as far, as where a rate or a factor is of float32."
        clipped = False
    elif factor is not None:
        says += f" The port moves them {factor:.6g} times as far."
    elif (decay := _decay(off, known, reference)) is not None:
        which = "less" if decay > 0 else "more"
        says += f" It pulls them to zero by {abs(decay):.6g} times their own values {which}: weight decay."
    ours, theirs = set(port.rates), set(reference.rates)
    if len(ours) == len(theirs) == 1 and abs(port.rates[0] - reference.rates[0]) > EQUAL * abs(reference.rates[0]):
        says += f" Its learning rate is {port.rates[0]:.6g}, and PyTorch's {reference.rates[0]:.6g}."
    if port.gradients.taken is None:
        says += f" {NOT_KNOWN}"
    elif port.gradients.further:
        says += f" {FURTHER}{f' {CLIPS_ITSELF}' if clipped else ''}"
    return says + _of_settings(port, reference)


def _moved_by_then(number: int, port: Taken, reference: Taken) -> str:
    """Of a step whose loss is another: what PyTorch's script moves without an optimizer and the port moves otherwise,
    maybe before the loss."""
    taken = reference.gradients.taken
    if not number or not taken:
        return ""
    moves = {}
    for name in reference.after.parameters:
        ours, theirs = _moved(port, name), _moved(reference, name)
        if name not in taken and ours is not None and theirs is not None and ours.shape == theirs.shape:
            moves[name] = ours, theirs
    off = _off({name: difference(a, b, max(magnitude(a), magnitude(b))) for name, (a, b) in moves.items()})
    if not any(moves[name][1].any() for name in off):
        return ""
    factor = _shared_factor([moves[name] for name in off], 0.0)
    words = "" if factor is None else f", {factor:.6g} times as far"
    return (
        f" {len(off)} parameters that PyTorch's script moves without an optimizer, as an average does, are moved "
        f"otherwise in it{words}: {_listed(off)}."
    )


def _moved_beside(number: int, off: Mapping[str, Difference], reference: Taken) -> str:
    """Where all that is moved otherwise is what no optimizer of PyTorch's script steps, and what it does by itself."""
    taken = reference.gradients.taken
    if not taken or any(name in taken for name in off) or not any(_moves(reference, name) for name in off):
        return ""
    return (
        f"At step {number} the optimizer moves what it trains alike, and {len(off)} parameters that PyTorch's script "
        f"moves without one are moved otherwise: {_listed(off)}. What moves them, as an average of others does, is "
        "another (its rate, which of the two it decays, what it is taken of), or it comes before the optimizer's step "
        "on one side and after it on the other."
    )


def _of_settings(port: Taken, reference: Taken) -> str:
    """Those that are one value on each side, and another one."""
    told = []
    for name, ours in port.settings.items():
        theirs = reference.settings.get(name, ours)
        if len(ours) == len(theirs) == 1 and ours != theirs:
            told.append(f"{name} is {next(iter(ours))}, and PyTorch's {next(iter(theirs))}")
    return f" The port's {'; '.join(told)}." if told else ""


def _of_buffers(number: int, port: Taken, reference: Taken) -> str:
    found = {}
    for name in reference.after.buffers:
        wanted, got = reference.after.find("buffer", name), port.after.find("buffer", name)
        if wanted is not None and got is not None:
            found[name] = difference(got, wanted)
    off = _off(found)
    if not off:
        return ""
    return f"Step {number} leaves {len(off)} of {len(found)} buffers otherwise, first of all: {_listed(off)}."


def _off(found: Mapping[str, Difference]) -> dict[str, Difference]:
    return {name: each for name, each in found.items() if each.error > EQUAL}


def _moved(side: Taken, name: str) -> np.ndarray | None:
    before, after = side.before.find("parameter", name), side.after.find("parameter", name)
    if before is None or after is None or after.dtype.kind != "f":
        return None
    return after - before


def _moves(side: Taken, name: str) -> bool:
    moved = _moved(side, name)
    return moved is not None and bool(moved.any())


def _judged(move: np.ndarray, name: str, port: Taken, reference: Taken) -> np.ndarray:
    """Without elements whose gradient is of rounding alone."""
    ours, theirs = port.gradients.taken or {}, _comparable(port, reference) or {}
    if name not in ours or name not in theirs:
        return move
    least = NOISE * _largest(theirs)
    return np.where((ours[name] == theirs[name]) | (np.abs(theirs[name]) > least), move, 0.0)


def _shared_factor(pairs: Iterable[tuple[np.ndarray, np.ndarray]], least: float) -> float | None:
    """Of all elements that are not next to nothing; None where they share none."""
    flat = [(ours.ravel(), theirs.ravel()) for ours, theirs in pairs]
    ours, theirs = (np.concatenate(each) for each in zip(*flat, strict=True))
    counted = np.abs(theirs) > max(least, NOISE * np.abs(theirs).max())
    if not counted.any():
        return None
    factors = ours[counted] / theirs[counted]
    factor = float(np.median(factors))
    return factor if np.abs(factors - factor).max() <= ALIKE * abs(factor) else None


def _decay(off: Iterable[str], known: Mapping[str, tuple[np.ndarray, np.ndarray]], reference: Taken) -> float | None:
    """What the port moves more, over the parameter itself, where that is one number."""
    pairs = []
    for name in off:
        ours, theirs = known[name]
        judged = (ours != 0) | (theirs != 0)
        pairs.append(((ours - theirs)[judged], reference.before.tensors["parameter", name][judged]))
    return _shared_factor(pairs, 0.0)


def _listed(off: Mapping[str, Difference]) -> str:
    first, each = next(iter(off.items()))
    values = f" ({each.port} for {each.reference})" if each.port else ""
    more = list(off)[1:]
    return f"{first}{list(each.index) if each.index else ''}{values}" + (f", {_names(more)}" if more else "")


def _names(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _largest(arrays: Named) -> float:
    return max(map(magnitude, arrays.values()), default=0.0)


def _norm(arrays: Named) -> float:
    return float(np.sqrt(sum(float((a * a).sum()) for a in arrays.values())))
