"""Where two scripts part: the first step whose gradients, moves of parameters or buffers differ, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..parity.yardstick import SMALLEST_GRADIENT, Difference, difference, magnitude
from .left import Left
from .result import EQUAL

LISTED = 3
NOT_KNOWN = (
    "Which gradients the port's optimizer takes is known of those of gm.optim alone: these differ, or what is made of "
    "them."
)
NOISE = 1e-6  # of the largest gradient: what Adam makes of less is decided by rounding
ALIKE = 1e-6  # of a factor that all elements share

Named = Mapping[str, np.ndarray]


@dataclass
class Taken:
    """What one side's step took and left.

    Attributes:
      loss: before the step.
      gradients: that the optimizer was given, after clipping, by PyTorch's names; None where they are not known, as
        where an optimizer steps twice in one step of the script.
      rates: learning rates by group; empty where they are not known.
      before, after: what the side keeps.
      settings: of the optimizer, by name, the values of all groups.
    """

    loss: float
    gradients: Named | None
    rates: tuple[float, ...]
    before: Left
    after: Left
    settings: Mapping[str, frozenset[Any]] = field(default_factory=dict)


def told(number: int, port: Taken, reference: Taken) -> str:
    """What differs first in a step that both begin alike; empty where nothing does."""
    if not _same_loss(port, reference):
        return _of_loss(number)
    parts = (_of_gradients, _of_moves, _of_buffers)
    return next((words for part in parts if (words := part(number, port, reference))), "")


def _same_loss(port: Taken, reference: Taken) -> bool:
    return abs(port.loss - reference.loss) <= EQUAL * abs(reference.loss)


def _of_loss(number: int) -> str:
    if not number:
        return (
            "Both begin step 0 with the same weights, so that no optimizer is at fault: the model, its mode (train or "
            "eval) or the loss is another. graphmode check of a Case of the two models names the module."
        )
    return (
        f"Both begin step {number} with the same parameters and buffers, and its loss is another: look for state that "
        "is neither, for an update that comes before its use on one side and after it on the other, or for a factor "
        "that changes with the steps."
    )


def _of_gradients(number: int, port: Taken, reference: Taken) -> str:
    ours, theirs = port.gradients, reference.gradients
    if ours is None or theirs is None:
        return ""
    if not theirs and ours:
        return f"At step {number} PyTorch's script takes no step of an optimizer, and the port does."
    least = SMALLEST_GRADIENT * _largest(theirs)
    off = _off({n: difference(ours[n], g, max(magnitude(g), least)) for n, g in theirs.items() if n in ours})
    if off:
        factor = _shared_factor([(ours[name], theirs[name]) for name in theirs if name in ours], least)
        of_all = f"{len(off)} of {len(theirs)} parameters"
        says = f"At step {number} the losses agree, and the gradients that the optimizer takes do not, of {of_all}"
        if factor is not None:
            return (
                f"{says}: all are {factor:.6g} times PyTorch's (norms {_norm(ours):.6g} and {_norm(theirs):.6g}). "
                "Clipping, or how parts of a batch are accumulated, is another."
            )
        return f"{says}: {_listed(off)}. The backward pass is another, or what is done to gradients before the step."
    untrained = [name for name in reference.after.parameters if name in ours and name not in theirs]
    lonely = [name for name in untrained if _moves(port, name) and not _moves(reference, name)]
    if lonely:
        return (
            f"At step {number} the port's optimizer moves {_names(lonely)}, and PyTorch's has no gradient there: it "
            "does not train them, or not in this step. Name them in train_step's frozen, stop their gradient, or give "
            "a gm.training.Loss with present."
        )
    return ""


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
    same = port.gradients is not None and reference.gradients is not None
    of_all = f"{len(off)} of {len(known)} parameters"
    says = f"At step {number} the optimizer takes the same gradients on both sides, and moves {of_all} otherwise"
    if not same:
        says = f"At step {number} {of_all} are moved otherwise"
    says = f"{says}: {_listed(off)}."
    still = [name for name in off if not known[name][1].any()]
    if len(still) == len(off):
        return f"{says} PyTorch's script leaves them as they are."
    factor = _shared_factor([known[name] for name in off], 0.0)
    if factor is not None:
        says += f" The port moves them {factor:.6g} times as far."
    elif (decay := _decay(off, known, reference)) is not None:
        which = "less" if decay > 0 else "more"
        says += f" It pulls them to zero by {abs(decay):.6g} times their own values {which}: weight decay."
    ours, theirs = set(port.rates), set(reference.rates)
    if len(ours) == len(theirs) == 1 and abs(port.rates[0] - reference.rates[0]) > EQUAL * abs(reference.rates[0]):
        says += f" Its learning rate is {port.rates[0]:.6g}, and PyTorch's {reference.rates[0]:.6g}."
    if port.gradients is None:
        says += f" {NOT_KNOWN}"
    return says + _of_settings(port, reference)


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
    ours, theirs = (side.gradients or {} for side in (port, reference))
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
