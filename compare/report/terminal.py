"""What a run shows on the terminal: a line for each verdict, a table for each mode of a case, and the summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from . import parity_tables
from .divergence_text import alike, told
from .headline import headline
from .page import Bullets, Page, Paragraph
from .page import Table as PageTable
from .ratios import Group, by_time, groups, ratio
from .records import Cell, Parity, Tensor
from .results import Results
from .wording import (
    DEFAULT_VARIANT,
    NONE,
    count,
    dtype_text,
    duration,
    elapsed,
    error_text,
    number,
    parity_verdict,
    plain,
    reason_text,
    row_name,
    status_text,
)

STYLES = {"": "", "good": "green", "bad": "bold red", "warn": "yellow", "muted": "dim"}
MAX_REASON = 300
MOST_PLACES = 4
MOST_REMARKS = 4
NOT_JUDGED = "precision not judged"  # how a tensor's note says that only float64 was asked


def parity_text(parity: Parity) -> Text:
    """The verdict on one line; below it, of a port that is not equal, where the error arises, why, and the fix; then
    what the inputs do not cover, and what was not compared."""
    text = parity_line(parity)
    places = alike(parity.divergences)
    for divergence, *others in places[:MOST_PLACES]:
        for line in told(divergence, others):
            style = "bold" if line.lstrip().startswith(("cause (", "fix:")) else ""
            text.append(f"\n  {plain(line)}", style=style)
    if more := sum(map(len, places[MOST_PLACES:])):
        text.append(f"\n  and {count(more, 'further module')}: --out writes them")
    for word, remarks, style in (("warning", parity.warnings, "yellow"), ("note", parity.notes, "dim")):
        shown = remarks if len(remarks) <= MOST_REMARKS + 1 else remarks[:MOST_REMARKS]
        for remark in shown:
            text.append(f"\n  {word}: {plain(remark)}", style=style)
        if len(remarks) > len(shown):
            text.append(
                f"\n  and {count(len(remarks) - len(shown), f'further {word}')}: --out writes them", style=style
            )
    return text


def parity_line(parity: Parity) -> Text:
    """One variant's verdict on one line: `resnet18  equal and precise  error 4e-16  ratio 1.1  6.4 s`."""
    name = (
        plain(parity.case) if parity.variant == DEFAULT_VARIANT else f"{plain(parity.case)} [{plain(parity.variant)}]"
    )
    line = Text.assemble(
        (f"{name}{' (PyTorch)' if parity.side == 'torch' else ''}{dtype_text(parity.dtype)}", "bold"),
        "  ",
        (parity_verdict(parity), "green" if parity.passed else "bold red"),
    )
    if parity.error:
        line.append(f"  {plain(parity.error)}")
    for text in dict.fromkeys(_worst(parity)):
        line.append(f"  {text}")
    line.append(f"  {elapsed(parity.duration_s)}", style="dim")
    return line


def speed_table(case_name: str, mode: str, cells: Sequence[Cell]) -> Table:
    """The times of one case and mode, the fastest first and marked `*`; beneath, what has no time, and why.

    `cells` may hold those of other cases and modes; they are left out.
    """
    compared = groups(c for c in cells if c.case == case_name and c.mode == mode)
    table = Table(
        title=Text(f"{plain(case_name)}, {mode}", style="bold"),
        title_justify="left",
        caption_justify="left",
        caption_style="",
        box=None,
        header_style="bold",
        padding=(0, 2, 0, 0),
    )
    several = len(compared) > 1
    swept = any(group.batch is not None for group in compared)
    variants = any(c.variant != DEFAULT_VARIANT for g in compared for c in g.cells)
    for title, wanted in (("on", several), ("row", True), ("variant", variants)):
        if wanted:
            table.add_column(title, overflow="fold")
    table.add_column("status", no_wrap=True)
    for title in ("median", "IQR", "/eager", "/PyTorch", "compile"):
        table.add_column(title, justify="right", no_wrap=True)
    reasons: dict[tuple[str, str], list[Cell]] = {}
    for group in compared:
        for cell in by_time(group.cells):
            if cell.median_s is not None:
                scope = [_scope(group.device, group.dtype, group.batch, swept)] if several else []
                variant = [Text(plain(cell.variant))] if variants else []
                style = "bold" if cell is group.fastest else ""
                table.add_row(*scope, Text(cell.row), *variant, *_numbers(cell, group), style=style)
            if cell.median_s is None or cell.reason:
                reasons.setdefault((cell.status, _short(reason_text(cell))), []).append(cell)
    if reasons:
        table.caption = Text("\n").join(_reason(members, several, *why) for why, members in reasons.items())
    return table


def summary(results: Results) -> RenderableType:
    """The end of a run: the verdict, what failed, where JAX loses, and what outputs mean to a person."""
    head = headline(results)
    parts: list[RenderableType] = [Text(note, style="yellow") for note in head.notes]
    parts.append(Text(head.verdict, style=STYLES[head.tone] or "bold"))
    parts += [_bullet(line) for line in head.lines]
    for title, lines, style in (
        ("What fails this run", tuple(map(_first_line, head.failures)), "red"),
        ("Where JAX wins most", head.wins, ""),
        ("Where JAX loses", head.losses, ""),
        ("Remarks", head.remarks, "yellow"),
    ):
        if lines:
            parts.append(Text(f"\n{title}", style="bold"))
            parts += [_bullet(line, style) for line in lines]
    readings = [(p, label, reading) for p in results.parity for label, reading in p.readings.items()]
    if readings:
        parts.append(Text("\nReadings", style="bold"))
        parts += [_bullet(f"{plain(p.case)} ({plain(p.variant)}), {plain(a)}: {plain(b)}") for p, a, b in readings]
    return Lines(*parts)


def _first_line(failure: str) -> str:
    """All of it was shown when it came about."""
    first, *others = failure.splitlines()
    return f"{first} (shown above)" if others else first


def page_view(page: Page) -> RenderableType:
    """A whole page: its headline, then every section with its tables."""
    head = page.headline
    parts: list[RenderableType] = [
        Text(page.source, style="dim"),
        Text(head.verdict, style=STYLES[head.tone] or "bold"),
    ]
    parts += [_bullet(line) for line in head.lines]
    for section in page.sections:
        parts.append(Text(f"\n{section.title}", style="bold"))
        for block in section.blocks:
            if isinstance(block, PageTable):
                parts.append(_page_table(block))
            elif isinstance(block, Bullets):
                parts += [_bullet(item, STYLES[block.tone]) for item in block.items]
            elif isinstance(block, Paragraph):
                parts.append(Text(block.text, style=STYLES[block.tone]))
    return Lines(*parts)


def modules_table(parity: Parity) -> Table:
    """Which module of a port stands for which of the reference, and the error that each inherits and introduces."""
    return _page_table(parity_tables.modules_table(parity))


def _page_table(table: PageTable) -> Table:
    shown = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in table.columns:
        shown.add_column(column.title, justify="right" if column.kind == "number" else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(entry.text, style=STYLES[entry.tone]) for entry in row))
    return shown


def _worst(parity: Parity) -> Iterator[str]:
    """The worst error and ratio, each with its place where it does not hold."""
    error, precision = parity.worst_error, parity.worst_ratio
    if error is not None:
        yield _number("error", error.error, error, error.equal)
    if precision is not None:
        yield _number("ratio", precision.ratio, precision, precision.precise)


def _number(what: str, value: float | None, tensor: Tensor, holds: bool) -> str:
    """A number, or what is off where there is none: integers, a value beside zero, a tensor that is missing."""
    if value is not None or holds:
        return f"{what} {error_text(value, holds=holds)}" + ("" if holds else f" at {_place(tensor)}")
    values = f"{plain(tensor.port_value)} for {plain(tensor.reference_value)}" if tensor.port_value else ""
    notes = [part for part in plain(tensor.note).split("; ") if not part.startswith(NOT_JUDGED)]
    off = ", ".join(filter(None, (*notes, values))) or "off"
    return f"{tensor.kind.replace('_', ' ')} {_place(tensor)}: {off}"


def _place(tensor: Tensor) -> str:
    return ", ".join(plain(part) for part in (tensor.name, tensor.mode, tensor.input) if part)


def _numbers(cell: Cell, group: Group) -> list[Text]:
    to_eager, to_torch = ratio(cell, group.eager), ratio(cell, group.fastest_torch)
    return [
        Text(status_text(cell), style="yellow" if cell.noisy else "green"),
        Text(duration(cell.median_s) + (" *" if cell is group.fastest else "  ")),
        Text(duration(cell.iqr_s)),
        Text(number(to_eager.value) if to_eager else NONE),
        Text(number(to_torch.value) if to_torch else NONE),
        Text(duration(cell.compile_s)),
    ]


def _reason(cells: Sequence[Cell], several: bool, status: str, reason: str) -> Text:
    names = (
        f"{row_name(c)} ({_scope(c.device, c.dtype, c.batch, c.batch is not None)})" if several else row_name(c)
        for c in cells
    )
    style = "red" if any(c.unexpected for c in cells) else "dim"
    return Text(f"{', '.join(names)}: {status}" + (f", {reason}" if reason else ""), style=style)


def _scope(device: str, dtype: str, batch: int | None, swept: bool) -> str:
    own = "own inputs" if batch is None else f"batch {batch:,}"
    return f"{device} {dtype}" + (f", {own}" if swept else "")


def _short(reason: str) -> str:
    """One line; the pages have the whole."""
    line = " ".join(reason.split())
    return line if len(line) <= MAX_REASON else f"{line[:MAX_REASON]} ... (whole in the report)"


def _bullet(line: str, style: str = "") -> Text:
    return Text(f"- {line}", style=style, overflow="fold")
