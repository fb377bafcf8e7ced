"""The speed part of a page: JAX's fastest row against PyTorch's, then every cell with its status and reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .page import Block, Column, Entry, Paragraph, Plot, Section, Table, Tone
from .ratios import Group, by_time, groups, ratio
from .results import CaseInfo, Cell, Results
from .wording import NONE, bounds, count, duration, number, plain, ratio_text, reason_text, row_name, status_text

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
CELLS = (
    Column("row"),
    Column("variant"),
    Column("status"),
    Column("median", "number"),
    Column("IQR", "number"),
    Column("p95", "number"),
    Column("samples", "number"),
    Column("to eager", "number"),
    Column("to PyTorch's fastest", "number"),
    Column("compile", "number"),
    Column("error ratio", "number"),
)
REASONS = (
    Column("row"),
    Column("variant"),
    Column("status"),
    Column("error ratio", "number"),
    Column("reason", "prose"),
)


def speed_sections(results: Results) -> list[Section]:
    """The overview and a section for each case: by mode, device and dtype the times, then what has none and why."""
    compared = groups(results.cells)
    if not compared:
        return []
    overview = Section("Is it faster?", "speed", (Plot(), Table(OVERVIEW, tuple(map(_overview, compared)))))
    known = {c.name: c for c in results.cases}
    sections = [overview]
    for number_, case in enumerate(dict.fromkeys(g.case for g in compared), start=1):
        members = [g for g in compared if g.case == case]
        sections.append(
            Section(f"Every row of {plain(case)}", f"case-{number_}", tuple(_case(known.get(case), members)), 3)
        )
    return sections


def _case(info: CaseInfo | None, members: Sequence[Group]) -> Iterator[Block]:
    if info is not None and info.summary:
        yield Paragraph(_about(info), "muted")
    for group in members:
        yield Paragraph(f"{group.mode}, {group.device}, {group.dtype}:")
        timed = [c for c in by_time(group.cells) if c.median_s is not None]
        if timed:
            yield Table(CELLS, tuple(_time(c, group) for c in timed))
        explained = [c for c in by_time(group.cells) if c.median_s is None or c.reason]
        if explained:
            yield Table(REASONS, tuple(map(_reason, explained)))


def _about(info: CaseInfo) -> str:
    parts = [plain(info.summary).rstrip(".")]
    if info.inputs:
        parts.append(f"inputs {plain(info.inputs)}")
    if info.parameters:
        parts.append(f"{info.parameters:,} parameters")
    return "; ".join(parts) + "."


def _overview(group: Group) -> tuple[Entry, ...]:
    jax, torch, best = group.fastest_jax, group.fastest_torch, group.best
    pays_back = group.break_even_calls
    return (
        Entry(plain(group.case), code=True),
        Entry(group.mode),
        Entry(number(best.value) if best else NONE, _tone(group), strong=True),
        Entry(bounds(best)),
        *_fastest(jax, "no JAX row is ok"),
        *_fastest(torch, "no PyTorch row is ok"),
        Entry(number(group.best_to_eager.value) if group.best_to_eager else NONE),
        Entry(NONE if pays_back is None else "at once" if pays_back == 0 else count(pays_back, "call")),
        Entry(f"{group.device} {group.dtype}"),
    )


def _fastest(cell: Cell | None, none: str) -> tuple[Entry, Entry]:
    if cell is None:
        return Entry(none, "bad"), Entry(NONE)
    return Entry(row_name(cell), code=True), Entry(duration(cell.median_s))


def _tone(group: Group) -> Tone:
    tones: dict[str, Tone] = {"faster": "good", "slower": "bad"}
    return tones.get(group.best.verdict, "") if group.best else ""


def _time(cell: Cell, group: Group) -> tuple[Entry, ...]:
    fastest = cell is group.fastest
    to_eager, to_torch = ratio(cell, group.eager), ratio(cell, group.fastest_torch)
    return (
        Entry(cell.row, code=True, strong=fastest),
        Entry(plain(cell.variant)),
        Entry(status_text(cell), _status_tone(cell)),
        Entry(duration(cell.median_s) + (" (fastest)" if fastest else ""), strong=fastest),
        Entry(duration(cell.iqr_s)),
        Entry(duration(cell.p95_s)),
        Entry(f"{len(cell.samples_s)} x {cell.calls_per_sample}" if cell.samples_s else NONE),
        Entry(number(to_eager.value) if to_eager else NONE),
        Entry(ratio_text(to_torch)),
        Entry(duration(cell.compile_s)),
        _error_ratio(cell),
    )


def _reason(cell: Cell) -> tuple[Entry, ...]:
    return (
        Entry(cell.row, code=True),
        Entry(plain(cell.variant)),
        Entry(status_text(cell), _status_tone(cell)),
        _error_ratio(cell),
        Entry(reason_text(cell) or "it was not timed"),
    )


def _error_ratio(cell: Cell) -> Entry:
    return Entry(NONE if cell.error_ratio is None else f"{cell.error_ratio:.2g}")


def _status_tone(cell: Cell) -> Tone:
    if cell.status == "ok":
        return "warn" if cell.noisy else "good"
    return "bad" if cell.unexpected else "muted"
