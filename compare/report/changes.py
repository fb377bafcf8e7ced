"""What changed between two runs: verdicts and statuses that turned, and times that moved by more than their noise.

A machine runs faster or slower from one run to the next, and all rows of a case with it, since they are timed in turn.
So a row's change is what is left of it when the median change of the other rows of its group is taken out. Its noise
has two parts: the bootstrap error of both medians, and the scatter between runs, estimated robustly from what is left
of the other rows of its group, and of those that take about as long. The limit is set for all compared rows together
(Bonferroni): two runs of the same thing show, with 95 % probability, no change at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median
from typing import Literal

from .bootstrap import MIN_SAMPLES, standard_error
from .ratios import Ratio
from .records import Cell, Parity
from .results import Results
from .wording import batch_text, dtype_text, parity_verdict, plain, row_name, status_text

CONFIDENCE = 0.95
TAIL = 0.9
ENOUGH_FOR_TAIL = 20
TO_SIGMA = 1.4826  # of a normal distribution, from its median absolute deviation

Key = tuple[str, str, str, str, str, str, int | None]
Scope = tuple[str | int | None, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One row in both runs: its time after over its time before, what its group drifted by taken out, and by how much
    the noise of all rows compared may have moved that."""

    before: Cell
    after: Cell
    ratio: Ratio

    @property
    def verdict(self) -> Literal["faster", "slower", "level"]:
        return self.ratio.verdict


@dataclass(frozen=True, slots=True)
class Turn:
    """A verdict or a status that is another one now."""

    what: str
    before: str
    after: str
    is_worse: bool


@dataclass(frozen=True)
class Changes:
    """Everything that two runs can be compared in.

    Attributes:
      times: each row that is timed in both, the largest change first.
      turns: parity verdicts and statuses that differ.
      untold: rows timed in both, as they were before, of which nothing can be said: with too few samples.
      one_sided: rows and verdicts that only one of the runs has, with which one.
      circumstances: what else differs between the runs: machine, versions, flags, seed.
    """

    times: list[Change] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    untold: list[Cell] = field(default_factory=list)
    one_sided: list[str] = field(default_factory=list)
    circumstances: list[str] = field(default_factory=list)

    def resolved(self, change: float) -> int:
        """How many rows are steady enough that a change by this fraction would be beyond their noise."""
        return sum(c.ratio.high is not None and c.ratio.high / c.ratio.value < 1 + change for c in self.times)

    @property
    def moved(self) -> list[Change]:
        """Those beyond noise."""
        return [change for change in self.times if change.verdict != "level"]


def changes(before: Results, after: Results) -> Changes:
    """What is different in `after`."""
    cells = [{_key(cell): cell for cell in results.cells} for results in (before, after)]
    both = [(cell, cells[1][key]) for key, cell in cells[0].items() if key in cells[1]]
    timed = [(a, b) for a, b in both if a.median_s and b.median_s]
    steady = [(a, b) for a, b in timed if not any(map(_is_untold, (a, b)))]
    verdicts = [{(p.case, p.side, p.variant, p.dtype): p for p in results.parity} for results in (before, after)]
    judged = [(parity, verdicts[1][key]) for key, parity in verdicts[0].items() if key in verdicts[1]]
    names: list[dict[str, None]] = [
        {**{_cell_name(c): None for c in results.cells}, **{_parity_name(p): None for p in results.parity}}
        for results in (before, after)
    ]
    return Changes(
        times=sorted(_times(steady), key=lambda c: -abs(math.log(c.ratio.value))),
        turns=[*_parity_turns(judged), *_status_turns(both)],
        untold=[a for a, b in timed if any(map(_is_untold, (a, b)))],
        one_sided=[
            *(f"{name}: only before" for name in names[0] if name not in names[1]),
            *(f"{name}: only after" for name in names[1] if name not in names[0]),
        ],
        circumstances=_circumstances(before, after),
    )


def _times(pairs: Sequence[tuple[Cell, Cell]]) -> Iterable[Change]:
    logs = [math.log(_median(b) / _median(a)) for a, b in pairs]
    errors = [math.hypot(standard_error(a), standard_error(b)) for a, b in pairs]
    drifts = _drifts(pairs, logs)
    left = [log - drift for log, drift in zip(logs, drifts, strict=True)]
    scatter = {
        scope: _scatter([left[i] for i in members], [errors[i] for i in members])
        for kind in (_group, _size)
        for scope, members in _by(kind, pairs).items()
    }
    limit = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / max(1, len(pairs)))
    for (a, b), log, error in zip(pairs, left, errors, strict=True):
        reach = limit * math.hypot(error, max(scatter[_group(a)], scatter[_size(a)]))
        yield Change(a, b, Ratio(math.exp(log), math.exp(log - reach), math.exp(log + reach)))


def _drifts(pairs: Sequence[tuple[Cell, Cell]], logs: Sequence[float]) -> list[float]:
    """For each pair, the median change of the others: of its group, of its device where that has fewer than two."""
    near, far = _by(_group, pairs), _by(lambda cell: (cell.device,), pairs)
    drifts = []
    for i, (cell, _) in enumerate(pairs):
        others: list[float] = []
        for members in (near[_group(cell)], far[cell.device,]):
            if len(others) < 2:
                others = [logs[j] for j in members if j != i]
        drifts.append(median(others) if others else 0.0)
    return drifts


def _scatter(left: Sequence[float], errors: Sequence[float]) -> float:
    """The standard deviation between runs beyond the errors of the medians; robust against the rows that did change.

    By the middle of what is left, or by its tail where that is longer than a normal distribution's.
    """
    if len(left) < 3:
        return 0.0
    sizes = sorted(map(abs, left))
    tail = sizes[int(TAIL * len(sizes))] / NormalDist().inv_cdf((1 + TAIL) / 2)
    seen = max(TO_SIGMA * median(sizes), tail if len(sizes) >= ENOUGH_FOR_TAIL else 0.0)
    return math.sqrt(max(0.0, seen**2 - median(errors) ** 2))


def _size(cell: Cell) -> Scope:
    """Rows that take as long to a factor of ten: short ones differ most from run to run."""
    return cell.device, math.floor(math.log10(_median(cell)))


def _by(scope: Callable[[Cell], Scope], pairs: Sequence[tuple[Cell, Cell]]) -> dict[Scope, list[int]]:
    found: dict[Scope, list[int]] = {}
    for i, (cell, _) in enumerate(pairs):
        found.setdefault(scope(cell), []).append(i)
    return found


def _group(cell: Cell) -> Scope:
    return cell.case, cell.mode, cell.device, cell.dtype, cell.batch


def _is_untold(cell: Cell) -> bool:
    return len(cell.samples_s) < MIN_SAMPLES


def _parity_turns(pairs: Iterable[tuple[Parity, Parity]]) -> Iterable[Turn]:
    for a, b in pairs:
        if (a.equal, a.precise, bool(a.error)) != (b.equal, b.precise, bool(b.error)):
            yield Turn(_parity_name(a), parity_verdict(a), parity_verdict(b), is_worse=a.passed and not b.passed)


def _status_turns(pairs: Iterable[tuple[Cell, Cell]]) -> Iterable[Turn]:
    for a, b in pairs:
        if a.status != b.status:
            yield Turn(_cell_name(a), status_text(a), status_text(b), is_worse=a.status == "ok")


def _circumstances(before: Results, after: Results) -> list[str]:
    sides = [results.environment.facts | {"seed": str(results.seed)} for results in (before, after)]
    lines = []
    for name in dict.fromkeys((*sides[0], *sides[1])):
        a, b = (side.get(name, "") or "not known" for side in sides)
        if a != b:
            lines.append(f"{name}: {a} before, {b} after")
    for word, results in (("before", before), ("after", after)):
        if not results.complete:
            lines.append(f"the run {word} was interrupted")
        if results.quick:
            lines.append(f"the run {word} was a quick one, with few repeats")
    return lines


def _key(cell: Cell) -> Key:
    return cell.case, cell.variant, cell.row, cell.mode, cell.device, cell.dtype, cell.batch


def _cell_name(cell: Cell) -> str:
    where = f"{plain(cell.case)}, {cell.mode}{batch_text(cell.batch)}"
    return f"{where}: {row_name(cell)} ({cell.device}, {cell.dtype})"


def _parity_name(parity: Parity) -> str:
    whose = "port" if parity.side == "jax" else "reference"
    return f"{plain(parity.case)}: parity of the {whose} {plain(parity.variant)}{dtype_text(parity.dtype)}"


def _median(cell: Cell) -> float:
    assert cell.median_s is not None
    return cell.median_s
