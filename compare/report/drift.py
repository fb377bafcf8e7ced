"""How far rows moved between two runs, and how much of it is their own.

A machine runs faster or slower from one run to the next. What the rows of both frameworks moved by in one case and mode
is taken for that, and taken out. What the other rows of a row's own framework moved by beyond it is told of them
together: a port that became faster moves all its rows. The rest is the row's own.

Each is held against its noise: the bootstrap error of both medians, and the scatter between runs. That is estimated
robustly from the rows that are of a kind: as long to a factor of ten, flagged noisy or not, timed in one process or in
several. Limits are set for all that is compared together (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import TypeVar

from .bootstrap import standard_error
from .ratios import Ratio
from .records import Cell

CONFIDENCE = 0.95
TAIL = 0.9
ENOUGH_FOR_TAIL = 20
TO_SIGMA = 1.4826  # of a normal distribution, from its median absolute deviation
FEWEST = 3  # rows that tell a scatter
LEAST_TOGETHER = 3  # rows of a framework that can have moved together
USUAL = {False: 0.02, True: 0.1}  # scatter of steady and of noisy rows where few of a kind were seen, and
WEIGHT = 4  # as many rows as that counts for

Pair = tuple[Cell, Cell]
Key = TypeVar("Key", bound=Hashable)
Place = tuple[str | int | None, ...]


@dataclass(frozen=True, slots=True)
class Together:
    """The rows of one framework in one case, mode, device, dtype and batch: their time after over their time before, in
    the middle, without what the other framework's rows moved by too."""

    cells: tuple[Cell, ...]
    ratio: Ratio


def own(pairs: Sequence[Pair]) -> list[Ratio]:
    """What each row moved by beyond the machine and its like, with the interval that holds for all of them at once."""
    logs, errors = _logs(pairs), _errors(pairs)
    groups, devices = _members(place(a) for a, _ in pairs), _members(a.device for a, _ in pairs)
    left, apart = [], []
    for i, (cell, _) in enumerate(pairs):
        others = [j for j in groups[place(cell)] if j != i]
        mine = [logs[j] for j in others if pairs[j][0].framework == cell.framework]
        theirs = [logs[j] for j in others if pairs[j][0].framework != cell.framework]
        far = [logs[j] for j in devices[cell.device] if j != i]
        beyond = logs[i] - _shared(mine or far, theirs or far)
        apart.append(beyond if len(mine) < LEAST_TOGETHER - 1 else logs[i] - median(mine))
        left.append(_common(beyond, apart[-1]))
    kinds = _scatters([_kind(a, b) for a, b in pairs], apart, errors)
    near = _scatters([(place(a), _is_noisy(a, b)) for a, b in pairs], apart, errors)
    limit = _limit(len(pairs))
    ratios = []
    for (a, b), log, error in zip(pairs, left, errors, strict=True):
        reach = limit * math.hypot(error, max(kinds[_kind(a, b)], near[place(a), _is_noisy(a, b)]))
        ratios.append(_ratio(log, reach))
    return ratios


def together(pairs: Sequence[Pair]) -> list[Together]:
    """What the rows of a framework moved by in each place, beyond the other framework's."""
    logs, errors = _logs(pairs), _errors(pairs)
    devices = _members(a.device for a, _ in pairs)
    found: list[tuple[list[int], float]] = []
    for at in _members(place(a) for a, _ in pairs).values():
        far = [logs[i] for i in devices[pairs[at[0]][0].device]]
        sides = {name: [i for i in at if pairs[i][0].framework == name] for name in ("jax", "torch")}
        shared = _shared(*([logs[i] for i in members] or far for members in sides.values()))
        for members in sides.values():
            if len(members) >= LEAST_TOGETHER:
                found.append((members, median(logs[i] for i in members) - shared))
    apart = [log for _, log in found if log]  # the framework that moved less has moved by nothing
    middle = [median(errors[i] for i in members) for members, log in found if log]
    scatter = _scatter(apart, middle, False) if apart else 0.0
    limit = _limit(len(found))
    return [
        Together(
            tuple(pairs[i][0] for i in members),
            _ratio(log, limit * math.hypot(scatter, median(errors[i] for i in members))),
        )
        for members, log in found
    ]


def place(cell: Cell) -> Place:
    """What rows have in common that are timed in turn."""
    return cell.case, cell.mode, cell.device, cell.dtype, cell.batch


def _shared(one: Sequence[float], other: Sequence[float]) -> float:
    """What both have moved by: the smaller of their medians, nothing where they went apart."""
    if not one or not other:
        return 0.0
    return _common(median(one), median(other))


def _common(one: float, other: float) -> float:
    return min(one, other, key=abs) if one * other > 0 else 0.0


def _scatters(
    kinds: Sequence[tuple[Hashable, bool]], left: Sequence[float], errors: Sequence[float]
) -> dict[tuple[Hashable, bool], float]:
    """Of the rows of each kind; its second part says whether they are noisy."""
    return {
        kind: _scatter([left[i] for i in at], [errors[i] for i in at], kind[1]) for kind, at in _members(kinds).items()
    }


def _scatter(left: Sequence[float], errors: Sequence[float], is_noisy: bool) -> float:
    """The standard deviation between runs beyond the errors of the medians; robust against the rows that did change.

    By the middle of what is left, or by its tail where that is longer than a normal distribution's; with few, drawn
    towards what is usual.
    """
    if len(left) < FEWEST:
        return USUAL[is_noisy]
    sizes = sorted(map(abs, left))
    seen = TO_SIGMA * median(sizes)
    if len(sizes) >= ENOUGH_FOR_TAIL:
        seen = max(seen, sizes[int(TAIL * len(sizes))] / NormalDist().inv_cdf((1 + TAIL) / 2))
    beyond = max(0.0, seen**2 - median(errors) ** 2)
    return math.sqrt((len(sizes) * beyond + WEIGHT * USUAL[is_noisy] ** 2) / (len(sizes) + WEIGHT))


def _kind(a: Cell, b: Cell) -> tuple[tuple[str, int, bool], bool]:
    """What scatters alike, and whether it is noisy."""
    several = bool(a.process_of) and bool(b.process_of)
    return (a.device, math.floor(math.log10(_median(a))), several), _is_noisy(a, b)


def _is_noisy(a: Cell, b: Cell) -> bool:
    return a.noisy or b.noisy


def _limit(count: int) -> float:
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / max(1, count))


def _ratio(log: float, reach: float) -> Ratio:
    return Ratio(math.exp(log), math.exp(log - reach), math.exp(log + reach))


def _logs(pairs: Sequence[Pair]) -> list[float]:
    return [math.log(_median(b) / _median(a)) for a, b in pairs]


def _errors(pairs: Sequence[Pair]) -> list[float]:
    return [math.hypot(standard_error(a), standard_error(b)) for a, b in pairs]


def _members(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """The positions of each key."""
    found: dict[Key, list[int]] = {}
    for i, key in enumerate(keys):
        found.setdefault(key, []).append(i)
    return found


def _median(cell: Cell) -> float:
    assert cell.median_s is not None
    return cell.median_s
