"""What changed between two runs: verdicts and statuses that turned, and times that moved by more than their noise."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from .bootstrap import MIN_SAMPLES
from .drift import Together, own, place, together
from .ratios import Ratio, Verdict
from .records import Cell, Parity
from .results import Results
from .wording import batch_text, count, dtype_text, parity_verdict, plain, row_name, status_text

Key = tuple[str, str, str, str, str, str, int | None]


@dataclass(frozen=True, slots=True)
class Change:
    """One row in both runs. `ratio` is its time after over its time before, without what its like moved by, and with
    what the noise of all rows compared may have moved that by."""

    before: Cell
    after: Cell
    ratio: Ratio

    @property
    def plain(self) -> float:
        """Its time after over its time before."""
        assert self.before.median_s is not None
        assert self.after.median_s is not None
        return self.after.median_s / self.before.median_s

    @property
    def verdict(self) -> Verdict:
        return self.ratio.verdict

    @property
    def ran_in_several(self) -> bool:
        """Processes, in both runs. The repeats of one share what it drew at its start: of that they tell no scatter."""
        return bool(self.before.process_of) and bool(self.after.process_of)


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
      together: how the rows of a framework moved in one case and mode, beyond those of the other, the most first.
      turns: parity verdicts and statuses that differ.
      untold: rows timed in both, as they were before, of which nothing can be said: with too few samples.
      one_sided: rows and verdicts that only one of the runs has, with which one; a whole mode or case in a line.
      circumstances: what else differs between the runs: machine, versions, flags, seed.
      facts: the names of those that are facts of the environment or the seed.
      in_common: how many rows and verdicts both runs have.
      is_one_run: both are the same run.
      is_backwards: the run that is taken for the earlier one began after the other.
    """

    times: list[Change] = field(default_factory=list)
    together: list[Together] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    untold: list[Cell] = field(default_factory=list)
    one_sided: list[str] = field(default_factory=list)
    circumstances: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    in_common: int = 0
    is_one_run: bool = False
    is_backwards: bool = False

    def resolved(self, change: float) -> int:
        """How many rows are steady enough that a change by this fraction would be beyond their noise."""
        return sum(c.ratio.high is not None and c.ratio.high / c.ratio.value < 1 + change for c in self.times)

    @property
    def moved(self) -> list[Change]:
        """Rows beyond noise."""
        return [change for change in self.times if change.ratio.differs and change.ran_in_several]

    @property
    def perhaps(self) -> list[Change]:
        """Rows beyond the noise of their repeats, which ran in one process before or after: another may differ."""
        return [change for change in self.times if change.ratio.differs and not change.ran_in_several]

    @property
    def moved_together(self) -> list[Together]:
        """Frameworks' rows beyond noise."""
        return [one for one in self.together if one.ratio.differs]


def changes(before: Results, after: Results) -> Changes:
    """What is different in `after`."""
    cells = [{_key(cell): cell for cell in results.cells} for results in (before, after)]
    both = [(cell, cells[1][key]) for key, cell in cells[0].items() if key in cells[1]]
    timed = [(a, b) for a, b in both if a.median_s and b.median_s]
    steady = [(a, b) for a, b in timed if not any(map(_is_untold, (a, b)))]
    verdicts = [{(p.case, p.side, p.variant, p.dtype): p for p in results.parity} for results in (before, after)]
    judged = [(parity, verdicts[1][key]) for key, parity in verdicts[0].items() if key in verdicts[1]]
    facts = _facts(before, after)
    return Changes(
        times=sorted(
            (Change(a, b, ratio) for (a, b), ratio in zip(steady, own(steady), strict=True)),
            key=lambda change: -abs(math.log(change.ratio.value)),
        ),
        together=sorted(together(steady), key=lambda one: -abs(math.log(one.ratio.value))),
        turns=[*_parity_turns(judged), *_status_turns(both)],
        untold=[a for a, b in timed if any(map(_is_untold, (a, b)))],
        one_sided=[
            *(f"{name}: only before" for name in _lacking(before, after)),
            *(f"{name}: only after" for name in _lacking(after, before)),
        ],
        circumstances=[
            *(f"{name}: {a} before, {b} after" for name, (a, b) in facts.items()),
            *_ways(before, after),
        ],
        facts=list(facts),
        in_common=len(both) + len(judged),
        is_one_run=before == after,
        is_backwards=_began_later(before, after),
    )


def _began_later(one: Results, other: Results) -> bool:
    """Unknown is no; a time without a zone is UTC's."""
    try:
        times = [datetime.datetime.fromisoformat(results.created) for results in (one, other)]
    except ValueError:
        return False
    first, second = (time if time.tzinfo else time.replace(tzinfo=datetime.UTC) for time in times)
    return first > second


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


def _lacking(here: Results, there: Results) -> Iterable[str]:
    """What of `here` has no counterpart: a case, else a mode of it, else a row or a verdict."""
    cases = {c.case for c in there.cells} | {p.case for p in there.parity}
    places = {place(c) for c in there.cells}
    keys = {_key(c) for c in there.cells}
    verdicts = {_parity_name(p) for p in there.parity}
    rows: Counter[str] = Counter()
    for cell in here.cells:
        if cell.case not in cases:
            rows[plain(cell.case)] += 1
        elif place(cell) not in places:
            rows[f"{_mode_name(cell)} ({cell.device}, {cell.dtype})"] += 1
        elif _key(cell) not in keys:
            rows[_cell_name(cell)] = 0
    for parity in here.parity:
        if parity.case not in cases:
            rows[plain(parity.case)] += 0
        elif _parity_name(parity) not in verdicts:
            rows[_parity_name(parity)] = 0
    yield from (f"{name}, {count(number, 'row')}" if number else name for name, number in rows.items())


def _facts(before: Results, after: Results) -> dict[str, tuple[str, str]]:
    """By name, what differs of the environments and the seed, before and after."""
    sides = [results.environment.facts | {"seed": str(results.seed)} for results in (before, after)]
    names = dict.fromkeys((*sides[0], *sides[1]))
    pairs = {name: (sides[0].get(name) or "not known", sides[1].get(name) or "not known") for name in names}
    return {name: (a, b) for name, (a, b) in pairs.items() if a != b}


def _ways(before: Results, after: Results) -> list[str]:
    lines = []
    for word, results in (("before", before), ("after", after)):
        if not results.complete:
            lines.append(f"the run {word} was interrupted")
        if results.environment.is_busy:
            lines.append(f"other programs were busy on the machine when the run {word} began")
        if results.quick:
            lines.append(f"the run {word} was a quick one, with few repeats")
    return lines


def _key(cell: Cell) -> Key:
    return cell.case, cell.variant, cell.row, cell.mode, cell.device, cell.dtype, cell.batch


def _cell_name(cell: Cell) -> str:
    return f"{_mode_name(cell)}: {row_name(cell)} ({cell.device}, {cell.dtype})"


def _mode_name(cell: Cell) -> str:
    return f"{plain(cell.case)}, {cell.mode}{batch_text(cell.batch)}"


def _parity_name(parity: Parity) -> str:
    whose = "port" if parity.side == "jax" else "reference"
    return f"{plain(parity.case)}: parity of the {whose} {plain(parity.variant)}{dtype_text(parity.dtype)}"
