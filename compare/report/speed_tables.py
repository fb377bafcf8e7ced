"""The speed part of a page: JAX's fastest row against PyTorch's, then every cell with its status and reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from .cell_tables import batch_table, cell_tables, cold_legend, error_ratio, numeric, status_tone
from .derived import Comparison, Derived, paired
from .page import Block, Bullets, Column, Entry, Heading, Legend, Paragraph, Plot, Plots, Section, Table, Tone
from .plots.curves import break_even_plot
from .ratios import Group, by_time
from .records import CaseInfo, Cell
from .results import Results
from .themes import theme_sections
from .wording import NONE, count, duration, interval_text, number, plain, reason_text, row_name, status_text

OVERVIEW = (
    Column("case"),
    Column("mode"),
    Column("ratio", "number"),
    Column("95% interval", "number"),
    Column("JAX's fastest row"),
    Column("median", "number"),
    Column("PyTorch's fastest row"),
    Column("median", "number"),
    Column("to eager", "number"),
    Column("pays back after", "number"),
    Column("on"),
)
REASONS = (
    Column("row"),
    Column("variant"),
    Column("status"),
    Column("error ratio", "number"),
    Column("reason", "prose"),
)


MOST_PICTURED = 2500  # cells: of more, a page would have megabytes of pictures of what its tables tell in numbers


def case_anchors(cases: Iterable[str]) -> dict[str, str]:
    """Where each case is told at length."""
    return {case: f"case-{n}" for n, case in enumerate(dict.fromkeys(cases), start=1)}


def speed_sections(results: Results, derived: Derived) -> list[Section]:
    """The overview, the themes, and a section for each case: by mode, device, dtype and batch size the times, then what
    has none and why."""
    compared = paired(results.cells, derived)
    if not compared:
        return []
    own = [(g, figures) for g, figures in compared if g.batch is None]
    known = {c.name: c for c in results.cases}
    anchors = case_anchors(g.case for g, _ in compared)
    rows = tuple(_overview(g, figures, anchors) for g, figures in own)
    overview = [Section("Is it faster?", "speed", (Table(OVERVIEW, rows),))] if rows else []
    words = "Every way of running each case, with its status and, where it has no time, the reason."
    themes = theme_sections(results, derived, anchors)
    cases = [
        Section(f"Every row of {plain(case)}", anchor, tuple(_case(known.get(case), members)), 3)
        for case, anchor in anchors.items()
        if (members := [pair for pair in compared if pair[0].case == case])
    ]
    if len(results.cells) > MOST_PICTURED:
        words += f" Of {len(results.cells):,} of them there are numbers alone, and no pictures beside them."
        themes = [_in_numbers(section, drop=(Legend,)) for section in themes]
        cases = [_in_numbers(section, drop=(Legend, Plots)) for section in cases]
    return [*overview, *themes, Section("Every row, case by case", "cases", (Paragraph(words),)), *cases]


def _in_numbers(section: Section, drop: tuple[type[Block], ...]) -> Section:
    """Without the pictures in its tables."""
    blocks = (b.without("graphic") if isinstance(b, Table) else b for b in section.blocks if not isinstance(b, drop))
    return replace(section, blocks=tuple(blocks))


def _case(info: CaseInfo | None, members: Sequence[tuple[Group, Comparison]]) -> Iterator[Block]:
    if info is not None and info.summary:
        yield Paragraph(_about(info), "muted")
    yield from cold_legend(cell for group, _ in members for cell in group.cells)
    swept = [group for group, _ in members if group.batch is not None]
    for group, figures in members:
        if group.batch is not None:
            continue
        yield Heading(f"{group.mode}, {group.device}, {group.dtype}")
        if figures.causes:
            yield Bullets(tuple(map(plain, figures.causes)))
        yield from cell_tables(group, figures)
        curve = break_even_plot(group, figures.break_even_calls)
        if curve:
            pair = " against ".join(row_name(c) for c in (group.fastest_jax, group.fastest_torch) if c is not None)
            yield Plots((Plot(curve, f"When compiling is paid back: {pair}"),))
        yield from _explained(group.cells)
    for scope in dict.fromkeys((g.mode, *g.scope) for g in swept):
        yield Heading(f"{', '.join(scope)}, over the batch size")
        sizes = [g for g in swept if (g.mode, *g.scope) == scope]
        yield batch_table(sizes)
        yield from _explained([c for g in sizes for c in g.cells])


def _explained(cells: Sequence[Cell]) -> Iterator[Table]:
    """What has no time, or a remark beside it; cells that differ in their batch size alone share a line."""
    rows = dict.fromkeys(_reason(c) for c in by_time(cells) if c.median_s is None or c.reason)
    if rows:
        yield Table(REASONS, tuple(rows), "Without a time, or with a remark")


def _about(info: CaseInfo) -> str:
    parts = [plain(info.summary).rstrip(".")]
    if info.inputs:
        parts.append(f"inputs {plain(info.inputs)}")
    if info.parameters:
        parts.append(f"{info.parameters:,} parameters")
    return "; ".join(parts) + "."


def _overview(group: Group, figures: Comparison, anchors: Mapping[str, str]) -> tuple[Entry, ...]:
    best, to_eager, calls = figures.best, figures.best_to_eager, figures.break_even_calls
    pays_back = NONE if calls is None else "at once" if calls == 0 else count(calls, "call")
    return (
        Entry(plain(group.case), code=True, link=anchors[group.case]),
        Entry(group.mode),
        Entry(number(best.value) if best else NONE, _tone(figures), strong=True, value=best.value if best else None),
        numeric(interval_text(best), best.low if best else None),
        *_fastest(group.fastest_jax, "no JAX row is ok"),
        *_fastest(group.fastest_torch, "no PyTorch row is ok"),
        numeric(number(to_eager.value) if to_eager else NONE, to_eager.value if to_eager else None),
        numeric(pays_back, calls),
        Entry(f"{group.device} {group.dtype}"),
    )


def _fastest(cell: Cell | None, none: str) -> tuple[Entry, Entry]:
    if cell is None:
        return Entry(none, "bad"), Entry(NONE)
    return Entry(row_name(cell), code=True), numeric(duration(cell.median_s), cell.median_s)


def _tone(figures: Comparison) -> Tone:
    tones: dict[str | None, Tone] = {"faster": "good", "slower": "bad"}
    return tones.get(figures.verdict, "")


def _reason(cell: Cell) -> tuple[Entry, ...]:
    return (
        Entry(cell.row, code=True),
        Entry(plain(cell.variant)),
        Entry(status_text(cell), status_tone(cell)),
        error_ratio(cell),
        Entry(reason_text(cell) or "it was not timed"),
    )
