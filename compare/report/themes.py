"""What is told over all cases, a section each: batch sweeps, distance to the floor, cold starts, memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .cell_tables import cold_legend, numeric
from .derived import Comparison, Derived, paired
from .page import Block, Column, Entry, Legend, Paragraph, Plot, Plots, Section, Table
from .plots.curves import roofline_plot, sweep_plot
from .plots.in_tables import bytes_bar, cold_bar, cold_total
from .ratios import Group
from .records import Cell, Floors
from .results import Results
from .sweeps import Sweep
from .wording import NONE, count, duration, number, plain, rate, row_name, share, size

SIDES = Legend((("jax", "JAX's rows"), ("torch", "PyTorch's rows")))
SWEEPS = (
    Column("case"),
    Column("mode"),
    Column("row"),
    Column("fixed part", "number"),
    Column("each item", "number"),
    Column("misfit", "number"),
    Column("knee", "number"),
    Column("in words"),
)
FLOORS = (
    Column("case"),
    Column("mode"),
    Column("on"),
    Column("floor", "number"),
    Column("operations a byte", "number"),
    Column("JAX's fastest row"),
    Column("JAX to the floor", "number"),
    Column("PyTorch's fastest row"),
    Column("PyTorch to the floor", "number"),
)
COLD = (
    Column("case"),
    Column("mode"),
    Column("row"),
    Column("parts", "graphic"),
    Column("compile", "number"),
    Column("warm start", "number"),
    Column("median", "number"),
    Column("pays back after", "number"),
)
MEMORY = (Column("case"), Column("mode"), Column("row"), Column("peak", "number"), Column("bytes", "graphic"))

Pairs = Sequence[tuple[Group, Comparison]]


def theme_sections(results: Results, derived: Derived, anchors: Mapping[str, str]) -> list[Section]:
    """The sections of which this run measured anything."""
    own = [pair for pair in paired(results.cells, derived) if pair[0].batch is None]
    made = (
        _sweeps(derived.sweeps, anchors),
        _floors(results.floors, own, anchors),
        _cold(own, anchors),
        _memory(own, anchors),
    )
    return [section for section in made if section is not None]


def _sweeps(sweeps: Sequence[Sweep], anchors: Mapping[str, str]) -> Section | None:
    scopes: dict[tuple[str, str, str, str], list[Sweep]] = {}
    for s in sweeps:
        scopes.setdefault((s.case, s.mode, s.device, s.dtype), []).append(s)
    plots, lines = [], []
    for scope, rows in scopes.items():
        strongest = list(_strongest(rows))
        name = f"{plain(scope[0])}, {scope[1]} ({scope[2]}, {scope[3]})"
        plots.append(Plot(sweep_plot(rows, strongest), name))
        lines += [_sweep_row(s, anchors) for s in strongest]
    if not plots:
        return None
    lead = Paragraph(
        "Time a step over the batch size. Where a line through the medians, a fixed part and a part for each item, "
        "fits them, the knee is the batch at which both are equal: below it a call costs mostly what launching it "
        "costs. Strong lines are each framework's fastest row at the smallest and the largest batch; the dashed one is "
        "eager."
    )
    return Section(
        "What does the batch size change?", "sweep", (lead, SIDES, Plots(tuple(plots)), Table(SWEEPS, tuple(lines)))
    )


def _strongest(rows: Sequence[Sweep]) -> Iterator[Sweep]:
    """Each framework's fastest at the smallest and at the largest batch."""
    for jax in (True, False):
        side = [s for s in rows if s.row.startswith("jax.") is jax]
        first = min(side, key=lambda s: (s.batches[0], s.medians_s[0]), default=None)
        last = min(side, key=lambda s: (-s.batches[-1], s.medians_s[-1]), default=None)
        yield from {id(s): s for s in (first, last) if s is not None}.values()


def _sweep_row(s: Sweep, anchors: Mapping[str, str]) -> tuple[Entry, ...]:
    return (
        Entry(plain(s.case), code=True, link=anchors[s.case]),
        Entry(f"{s.mode}, {s.device} {s.dtype}"),
        Entry(s.row, code=True),
        numeric(duration(s.fixed_s), s.fixed_s),
        numeric(duration(s.per_item_s), s.per_item_s),
        numeric(share(s.misfit), s.misfit),
        numeric(number(s.knee), s.knee),
        Entry(_knee_text(s)),
    )


def _knee_text(s: Sweep) -> str:
    if s.fixed_s is None or s.per_item_s is None:
        return "no line fits its times"
    if s.knee is not None:
        return "mostly fixed up to the knee"
    is_flat = s.fixed_s > s.per_item_s * s.batches[-1]
    return "mostly fixed at every size" if is_flat else "grows with the batch from the start"


def _floors(floors: Floors | None, pairs: Pairs, anchors: Mapping[str, str]) -> Section | None:
    if floors is None:
        return None
    measured = [
        ("copy, read and written", rate(floors.bytes_per_s, "B"), floors.bytes_per_s),
        *_cache(floors),
        *((f"matrix product, {plain(d)}", rate(f, "FLOP"), f) for d, f in floors.flops_per_s.items()),
        *((f"one launch: {plain(name)}", duration(s), s) for name, s in floors.launch_s.items()),
    ]
    blocks: list[Block] = [
        Paragraph(
            "What this machine can do at best, measured in this run. The floor of a case is the larger of its least "
            "bytes over the bandwidth (the cache's, where they fit into it) and its least operations over the peak. "
            "Operations are counted by the textbook, and bytes in training with what eager PyTorch keeps for the "
            "backward pass: a better algorithm, or one that computes again, may come out below."
        ),
        Table(
            (Column("measured"), Column("at best", "number")),
            tuple((Entry(name), numeric(text, value)) for name, text, value in measured),
        ),
    ]
    known = [(g, c) for g, c in pairs if c.floor_s is not None]
    plots = []
    for device, dtype in dict.fromkeys(g.scope for g, _ in known):
        members = [c for g, c in known if g.scope == (device, dtype) and c.flops_per_byte and _attains(c)]
        if members:
            plots.append(Plot(roofline_plot(members, floors, dtype), f"{device}, {dtype}"))
    if plots:
        blocks += [SIDES, Plots(tuple(plots))]
    if known:
        blocks.append(Table(FLOORS, tuple(_floor_row(g, c, anchors) for g, c in known)))
    return Section("How far from the floor?", "floors", tuple(blocks))


def _cache(floors: Floors) -> Iterator[tuple[str, str, float]]:
    if floors.cache_bytes_per_s:
        within = f"the same within the last cache, of {size(floors.cache_bytes)}"
        yield within, rate(floors.cache_bytes_per_s, "B"), floors.cache_bytes_per_s


def _attains(one: Comparison) -> bool:
    return any(r.flops_per_s for r in one.rows)


def _floor_row(group: Group, figures: Comparison, anchors: Mapping[str, str]) -> tuple[Entry, ...]:
    sides = []
    for cell in (group.fastest_jax, group.fastest_torch):
        row = figures.of(cell)
        distance = row.to_floor if row else None
        sides += [Entry(row_name(cell), code=True) if cell else Entry(NONE), numeric(number(distance), distance)]
    return (
        _case(group, anchors),
        Entry(group.mode),
        Entry(f"{group.device} {group.dtype}"),
        numeric(duration(figures.floor_s), figures.floor_s),
        numeric(number(figures.flops_per_byte), figures.flops_per_byte),
        *sides,
    )


def _cold(pairs: Pairs, anchors: Mapping[str, str]) -> Section | None:
    told = [(g, figures, cell) for g, figures in pairs for cell in _fastest_and_eager(g) if cell.compile_s is not None]
    if not told:
        return None
    rows = []
    for group, figures, cell in told:
        longest = max(cold_total(other.cold) for g, _, other in told if g is group)
        rows.append(_cold_row(group, figures, cell, longest, anchors))
    lead = Paragraph(
        "What comes before the first timed call, of JAX's fastest row and PyTorch's, and of eager PyTorch; each bar is "
        "a share of the longest of its case and mode. A warm start is the same in a fresh process that finds the "
        "compiler's cache on disk."
    )
    blocks: tuple[Block, ...] = (
        lead,
        *cold_legend(cell for *_, cell in told),
        _without_empty(Table(COLD, tuple(rows))),
    )
    return Section("What does the start cost, and when is it paid back?", "cold", blocks)


def _fastest_and_eager(group: Group) -> list[Cell]:
    cells = (group.fastest_jax, group.fastest_torch, group.eager)
    return list({id(c): c for c in cells if c is not None}.values())


def _cold_row(
    group: Group, figures: Comparison, cell: Cell, longest: float, anchors: Mapping[str, str]
) -> tuple[Entry, ...]:
    calls = figures.break_even_calls if cell is group.fastest_jax else None
    pays_back = NONE if calls is None else "at once" if calls == 0 else count(calls, "call")
    warm = cell.cold.warm_start_s if cell.cold else None
    return (
        _case(group, anchors),
        Entry(f"{group.mode}, {group.device} {group.dtype}"),
        Entry(row_name(cell), code=True),
        Entry("", graphic=cold_bar(cell.cold, longest) if longest else ""),
        numeric(duration(cell.compile_s), cell.compile_s),
        numeric(duration(warm), warm),
        numeric(duration(cell.median_s), cell.median_s),
        numeric(pays_back, calls),
    )


def _memory(pairs: Pairs, anchors: Mapping[str, str]) -> Section | None:
    told = [
        (g, cell, cell.memory.peak_bytes)
        for g, _ in pairs
        for cell in _fastest_and_eager(g)
        if cell.memory is not None and cell.memory.peak_bytes is not None
    ]
    if not told:
        return None
    rows = []
    for group, cell, peak in told:
        most = max(other for g, _, other in told if g is group)
        rows.append(
            (
                _case(group, anchors),
                Entry(f"{group.mode}, {group.device} {group.dtype}"),
                Entry(row_name(cell), code=True),
                numeric(size(peak), peak),
                Entry("", graphic=bytes_bar(peak, most, cell.framework)),
            )
        )
    lead = Paragraph(
        "The most that each row's own process held, of JAX's fastest row and PyTorch's, and of eager PyTorch; each bar "
        "is a share of the largest of its case and mode."
    )
    return Section("How much memory does it take?", "memory", (lead, SIDES, Table(MEMORY, tuple(rows))))


def _case(group: Group, anchors: Mapping[str, str]) -> Entry:
    return Entry(plain(group.case), code=True, link=anchors[group.case])


def _without_empty(table: Table) -> Table:
    """Columns of which no row knows anything are left out."""
    columns = list(zip(*table.rows, strict=True))
    kept = [i for i, column in enumerate(columns) if any(e.graphic or e.text not in ("", NONE) for e in column)]
    return Table(
        tuple(table.columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in table.rows), table.caption
    )
