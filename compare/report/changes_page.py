"""What changed between two runs, as a page."""

from __future__ import annotations

from collections.abc import Iterator

from .changes import Change, Changes, changes
from .drift import Together
from .page import Block, Bullets, Column, Entry, Headline, Page, Section, Table, Tone
from .results import Results
from .wording import batch_text, bounds, count, dtype_text, duration, number, plain, row_name

TIMES = (
    Column("case"),
    Column("mode"),
    Column("row"),
    Column("before", "number"),
    Column("after", "number"),
    Column("after / before", "number"),
    Column("beyond its like", "number"),
    Column("interval", "number"),
)
TOGETHER = (
    Column("case"),
    Column("mode"),
    Column("rows"),
    Column("after / before", "number"),
    Column("interval", "number"),
)
SHOWN = 0.1
NAMED = 2  # of those that moved together, in the verdict
FACTS = 4  # of those that differ, above the changes
UNTIMED = "No verdict and no status turned, and no row could be compared in time"
TURNS = (Column("what"), Column("before"), Column("after"))


def changes_page(before: Results, after: Results, names: tuple[str, str]) -> Page:
    """The page of two runs; `names` are what a reader knows them by, such as their paths."""
    found = changes(before, after)
    verdict, tone = _verdict(found)
    return Page(
        title="graphmode: what changed",
        source="; ".join(
            f"{word}: {plain(name)} ({plain(results.created)})"
            for word, name, results in zip(("before", "after"), names, (before, after), strict=True)
        ),
        headline=Headline(verdict, tone, tuple(_lines(found)), ()),
        sections=tuple(_sections(found)),
    )


def _verdict(found: Changes) -> tuple[str, Tone]:
    if not found.in_common:
        return "Nothing could be compared: no row or verdict is in both runs.", "warn"
    slower = sum(change.verdict == "slower" for change in found.moved)
    faster = len(found.moved) - slower
    worse = sum(turn.is_worse for turn in found.turns)
    moved = found.moved_together
    few = moved if len(moved) <= NAMED else []
    parts = [
        f"{count(slower, 'row')} got slower" if slower else "",
        f"{count(faster, 'row')} got faster" if faster else "",
        *(f"{_framework(one)} rows of {plain(one.cells[0].case)} all got {one.ratio.verdict}" for one in few),
        f"one framework's rows all got faster or slower in {count(len(moved), 'place')}" if moved and not few else "",
        f"{count(len(found.perhaps), 'row')} of one process may have moved" if found.perhaps else "",
    ]
    if found.turns:
        parts.append(
            f"{count(len(found.turns), 'verdict or status', 'verdicts or statuses')} turned, {worse} for the worse"
        )
    text = "; ".join(filter(None, parts)) or ("Nothing changed beyond noise" if found.times else UNTIMED)
    is_worse = slower or worse or any(one.ratio.verdict == "slower" for one in moved)
    return f"{text[0].upper()}{text[1:]}.", "bad" if is_worse else "good"


def _lines(found: Changes) -> Iterator[str]:
    if found.is_one_run:
        yield "Both files hold the same run: it is compared with itself."
    if found.is_backwards:
        yield (
            'The run that is called "before" is the later one: give the two files in the other order, or read what got '
            "faster as slower."
        )
    if found.facts:
        more = f" and {count(len(found.facts) - FACTS, 'further fact')}" if len(found.facts) > FACTS else ""
        yield f"The runs differ in {', '.join(map(plain, found.facts[:FACTS]))}{more}: what moved may be due to that."
    if not found.times:
        return
    yield (
        f"{count(len(found.times), 'row')} could be compared in time, {found.resolved(SHOWN)} of them steady enough to "
        f"show a change of {SHOWN:.0%}."
    )
    yield (
        "What the rows of both frameworks moved by in a case is taken for the machine's, and taken out. What those of "
        "one moved by beyond that is told of them together. The intervals hold for all rows at once (95 %)."
    )
    if found.perhaps:
        yield (
            "A row that ran in one process shows no scatter between processes: what it moved by may be what the two "
            "drew at their start. 'graphmode compare CASE --row ROW --processes 4', before and after, tells."
        )
    if found.untold:
        yield f"Of {count(len(found.untold), 'row')} nothing can be said: they have too few samples in one of the runs."


def _sections(found: Changes) -> Iterator[Section]:
    blocks: list[tuple[str, str, Block]] = []
    tones: dict[str, Tone] = {"slower": "bad", "faster": "good"}
    for verdict, tone in tones.items():
        rows = tuple(_time(change, tone) for change in found.moved if change.verdict == verdict)
        if rows:
            blocks.append((f"What got {verdict}", verdict, Table(TIMES, rows)))
    if found.moved_together:
        shifts = tuple(map(_together, found.moved_together))
        blocks.append(("Where one framework's rows moved together", "together", Table(TOGETHER, shifts)))
    if found.perhaps:
        rows = tuple(_time(change, tones[change.verdict]) for change in found.perhaps)
        blocks.append(("What may have moved, timed in one process", "perhaps", Table(TIMES, rows)))
    if found.turns:
        turned = tuple(
            (Entry(turn.what), Entry(turn.before), Entry(turn.after, "bad" if turn.is_worse else ""))
            for turn in found.turns
        )
        blocks.append(("Verdicts and statuses that turned", "turned", Table(TURNS, turned)))
    for title, anchor, items in (
        ("What else differs between the runs", "circumstances", found.circumstances),
        ("What only one of the runs has", "one-sided", found.one_sided),
        ("Too noisy to tell", "untold", list(_untold(found))),
    ):
        if items:
            blocks.append((title, anchor, Bullets(tuple(map(plain, items)))))
    for title, anchor, block in blocks:
        yield Section(title, anchor, (block,))


def _untold(found: Changes) -> Iterator[str]:
    """A line for each case and mode."""
    rows: dict[tuple[str, str], list[str]] = {}
    for cell in found.untold:
        rows.setdefault((cell.case, cell.mode), []).append(row_name(cell))
    for (case, mode), names in rows.items():
        yield f"{case}, {mode}: {', '.join(names)}"


def _together(one: Together) -> tuple[Entry, ...]:
    cell = one.cells[0]
    tone: Tone = "bad" if one.ratio.verdict == "slower" else "good"
    return (
        Entry(plain(cell.case), code=True),
        Entry(f"{cell.mode}{batch_text(cell.batch)}{dtype_text(cell.dtype)}"),
        Entry(f"{_framework(one)} {len(one.cells)}"),
        Entry(number(one.ratio.value), tone, strong=True),
        Entry(bounds(one.ratio)),
    )


def _framework(one: Together) -> str:
    return {"jax": "JAX's", "torch": "PyTorch's"}[one.cells[0].framework]


def _time(change: Change, tone: Tone) -> tuple[Entry, ...]:
    before, after = change.before, change.after
    return (
        Entry(plain(before.case), code=True),
        Entry(before.mode),
        Entry(row_name(before), code=True),
        Entry(duration(before.median_s)),
        Entry(duration(after.median_s)),
        Entry(number(change.plain), tone, strong=True),
        Entry(number(change.ratio.value)),
        Entry(bounds(change.ratio)),
    )
