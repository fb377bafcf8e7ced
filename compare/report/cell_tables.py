"""The tables of one comparison, by theme: times, cold start, memory and launches. A column of which no row knows
anything is left out, and a table that has none left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .derived import Comparison, RowFigures
from .page import Column, Entry, Legend, Table, Tone
from .plots.in_tables import COLD_PARTS, bytes_bar, cold_bar, cold_total, samples_scale, strip
from .ratios import Group, by_time
from .records import Cell, Cold, Memory
from .wording import DEFAULT_VARIANT, NONE, duration, number, plain, ratio_text, share, size, status_text


@dataclass(frozen=True, slots=True)
class Shown:
    """What the fields of one table share."""

    fastest: Cell | None
    figures: dict[tuple[str, str], RowFigures]

    def of(self, cell: Cell) -> RowFigures:
        return self.figures.get((cell.row, cell.variant)) or RowFigures(row=cell.row, variant=cell.variant)


@dataclass(frozen=True, slots=True)
class Field:
    """A column and how a cell fills it; a `lead` says which row it is, and alone makes no table."""

    column: Column
    entry: Callable[[Cell, Shown], Entry]
    lead: bool = False


def numeric(text: str, value: float | None, *, strong: bool = False) -> Entry:
    return Entry(text, value=value, strong=strong)


def seconds(title: str, pick: Callable[[Cell], float | None]) -> Field:
    return Field(Column(title, "number"), lambda c, _: numeric(duration(pick(c)), pick(c)))


def byte_count(title: str, pick: Callable[[Cell], int | None]) -> Field:
    return Field(Column(title, "number"), lambda c, _: numeric(size(pick(c)), pick(c)))


def row_entry(cell: Cell, shown: Shown) -> Entry:
    return Entry(cell.row, code=True, strong=cell is shown.fastest)


def error_ratio(cell: Cell, _: Shown | None = None) -> Entry:
    return numeric(NONE if cell.error_ratio is None else f"{cell.error_ratio:.2g}", cell.error_ratio)


def status_tone(cell: Cell) -> Tone:
    if cell.status == "ok":
        return "warn" if cell.noisy else "good"
    return "bad" if cell.unexpected else "muted"


def cell_tables(group: Group, figures: Comparison) -> list[Table]:
    """Those of the cells that have a time, the fastest first."""
    cells = [c for c in by_time(group.cells) if c.median_s is not None]
    shown = Shown(group.fastest, {(r.row, r.variant): r for r in figures.rows})
    themes = {"Times": _times(cells), "Cold start": _cold(cells), "Memory and launches": _memory(cells)}
    made = (_table(caption, fields, cells, shown) for caption, fields in themes.items())
    return [table for table in made if table is not None]


def batch_table(sizes: Sequence[Group]) -> Table:
    """The median of each row over the batch sizes of one sweep."""
    ordered = sorted(sizes, key=lambda g: g.batch or 0)
    medians = [{(c.row, c.variant): c.median_s for c in g.cells} for g in ordered]
    names = dict.fromkeys((c.row, c.variant) for g in ordered for c in g.cells if c.median_s is not None)
    columns = (Column("row"), Column("variant"), *(Column(f"batch {g.batch:,}", "number") for g in ordered))
    rows = (
        (
            Entry(row, code=True),
            Entry(plain(variant)),
            *(numeric(duration(times.get((row, variant))), times.get((row, variant))) for times in medians),
        )
        for row, variant in names
    )
    return Table(columns, tuple(rows), "Medians over the batch size")


def _leads(cells: Sequence[Cell]) -> list[Field]:
    variant = Field(Column("variant"), lambda c, _: Entry(plain(c.variant)), lead=True)
    named = any(c.variant != DEFAULT_VARIANT for c in cells)
    return [Field(Column("row"), row_entry, lead=True), *([variant] if named else [])]


def cold_legend(cells: Iterable[Cell]) -> list[Legend]:
    """The colours of the parts that these cells have; nothing where they have none."""
    known = [c.cold for c in cells if c.cold is not None]
    parts = [part for part in (*COLD_PARTS, "warm_start") if any(getattr(cold, f"{part}_s") for cold in known)]
    return [Legend(tuple((part, part.replace("_", " ")) for part in parts))] if parts else []


def _times(cells: Sequence[Cell]) -> list[Field]:
    scale = samples_scale(cells)
    ends = f", {duration(scale.low)} to {duration(scale.high)}" if scale else ""
    return [
        *_leads(cells),
        Field(Column("median", "number"), _median),
        Field(
            Column(f"repeats (log axis{ends})", "graphic"),
            lambda c, _: Entry("", graphic=strip(c, scale) if scale else ""),
        ),
        Field(Column("status"), lambda c, _: Entry(status_text(c), status_tone(c)), lead=True),
        seconds("IQR", lambda c: c.iqr_s),
        seconds("p95", lambda c: c.p95_s),
        Field(Column("to PyTorch's fastest", "number"), _to_torch),
        Field(Column("to eager", "number"), _to_eager),
        Field(Column("to the floor", "number"), lambda c, s: numeric(number(s.of(c).to_floor), s.of(c).to_floor)),
        seconds("enqueue", lambda c: c.enqueue_s),
        Field(Column("host share", "number"), _host_share),
        seconds("steady", lambda c: c.steady_s),
        Field(Column("samples", "number"), _samples),
        Field(Column("error ratio", "number"), error_ratio),
    ]


def _cold(cells: Sequence[Cell]) -> list[Field]:
    longest = max((cold_total(c.cold) for c in cells), default=0.0)
    return [
        *_leads(cells),
        Field(
            Column("parts", "graphic"),
            lambda c, _: Entry("", graphic=cold_bar(c.cold, longest) if longest else ""),
        ),
        seconds("compile", lambda c: c.compile_s),
        seconds("build", lambda c: (c.cold or Cold()).build_s),
        seconds("trace", lambda c: (c.cold or Cold()).trace_s),
        seconds("lower", lambda c: (c.cold or Cold()).lower_s),
        seconds("backend compile", lambda c: (c.cold or Cold()).compile_s),
        seconds("first run", lambda c: (c.cold or Cold()).first_run_s),
        seconds("warm start", lambda c: (c.cold or Cold()).warm_start_s),
    ]


def _memory(cells: Sequence[Cell]) -> list[Field]:
    most = max((c.memory.peak_bytes or 0 for c in cells if c.memory), default=0)
    return [
        *_leads(cells),
        byte_count("peak", lambda c: (c.memory or Memory()).peak_bytes),
        Field(
            Column("of the largest", "graphic"),
            lambda c, _: Entry(
                "", graphic=bytes_bar(c.memory.peak_bytes, most, c.framework) if c.memory and most else ""
            ),
        ),
        byte_count("arguments", lambda c: (c.memory or Memory()).arguments_bytes),
        byte_count("outputs", lambda c: (c.memory or Memory()).outputs_bytes),
        byte_count("temporaries", lambda c: (c.memory or Memory()).temporaries_bytes),
        byte_count("code", lambda c: (c.memory or Memory()).code_bytes),
        Field(Column("launches", "number"), _kernels),
        Field(Column("captured", "number"), _captured),
        Field(Column("steps a launch", "number"), _steps),
        Field(Column("launched", "prose"), _kinds),
    ]


def _median(cell: Cell, shown: Shown) -> Entry:
    fastest = cell is shown.fastest
    return numeric(duration(cell.median_s), cell.median_s, strong=fastest)


def _to_torch(cell: Cell, shown: Shown) -> Entry:
    found = shown.of(cell).to_torch
    return numeric(ratio_text(found), found.value if found else None)


def _to_eager(cell: Cell, shown: Shown) -> Entry:
    found = shown.of(cell).to_eager
    return numeric(number(found.value) if found else NONE, found.value if found else None)


def _host_share(cell: Cell, shown: Shown) -> Entry:
    """Of a GPU: on a CPU the host does the work itself."""
    known = shown.of(cell).host_share if cell.device == "gpu" else None
    return numeric(share(known), known)


def _samples(cell: Cell, _: Shown) -> Entry:
    text = f"{len(cell.samples_s)} x {cell.calls_per_sample}" if cell.samples_s else NONE
    return numeric(text, len(cell.samples_s))


def _kernels(cell: Cell, _: Shown) -> Entry:
    kernels = cell.launches.kernels if cell.launches else None
    return numeric(NONE if kernels is None else f"{kernels:,}", kernels)


def _captured(cell: Cell, _: Shown) -> Entry:
    captured = cell.launches.captured if cell.launches else None
    return numeric(share(captured), captured)


def _steps(cell: Cell, _: Shown) -> Entry:
    return numeric(f"{cell.steps_per_call:,}" if cell.steps_per_call > 1 else NONE, cell.steps_per_call)


def _kinds(cell: Cell, _: Shown) -> Entry:
    if cell.launches is None:
        return Entry(NONE)
    kinds = sorted(cell.launches.by_kind.items(), key=lambda kind: -kind[1])
    parts = [f"{number_:,} {plain(kind)}" for kind, number_ in kinds]
    return Entry("; ".join(filter(None, (", ".join(parts), plain(cell.launches.note)))) or NONE)


def _table(caption: str, fields: Sequence[Field], cells: Sequence[Cell], shown: Shown) -> Table | None:
    made = [(field, [field.entry(c, shown) for c in cells]) for field in fields]
    told = [
        (f, entries) for f, entries in made if f.lead or any(e.graphic or e.text not in ("", NONE) for e in entries)
    ]
    if all(field.lead for field, _ in told):
        return None
    rows = tuple(zip(*(entries for _, entries in told), strict=True))
    return Table(tuple(field.column for field, _ in told), rows, caption)
