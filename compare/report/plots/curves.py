"""Plots with two logarithmic axes: batch sweeps with their knees, the roofline, and when compiling has paid back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..derived import Comparison
from ..ratios import EAGER, Group
from ..records import Cell, Floors
from ..sweeps import Sweep
from ..wording import count, duration, number, plain, rate, row_name
from .svg import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    LogScale,
    element,
    frame,
    padded,
    path,
    picture,
    short,
    text,
    tick_duration,
    title,
)

SPACE = 14  # above a plot, for the name of its vertical axis


def _scales(xs: list[float], ys: list[float], height: float, spread: float = 1.25) -> tuple[LogScale, LogScale]:
    return (
        LogScale(*padded(xs, spread), LEFT, WIDTH - RIGHT),
        LogScale(*padded(ys, spread), height - BOTTOM, TOP + SPACE),
    )


def sweep_plot(rows: Sequence[Sweep], strongest: Sequence[Sweep], height: float = 300) -> str:
    """Time over batch size, a line for each row; the `strongest` rows stand out, with their knees."""
    sizes = sorted({float(b) for s in rows for b in s.batches})
    x, y = _scales(sizes, [t for s in rows for t in s.medians_s], height, 1.15)
    parts = [frame(x, y, "batch size", "time a step", _tick_batch, tick_duration)]
    for s in sorted(rows, key=lambda s: s in strongest):
        parts.append(_sweep_line(s, x, y, s in strongest))
    for s in strongest:
        if s.knee is not None and s.fixed_s is not None:
            words = f"knee of {s.row}: batch {number(s.knee)}"
            at = f"M{short(x(s.knee))} {short(y.start)}V{short(y.end)}"
            parts.append(element("path", title(words), d=at, class_=f"knee {_side(s.row)}"))
    return picture("".join(parts), WIDTH, height, "Time over batch size")


def _sweep_line(s: Sweep, x: LogScale, y: LogScale, strong: bool) -> str:
    points = [(x(b), y(t)) for b, t in zip(s.batches, s.medians_s, strict=True)]
    kind = f"line {_side(s.row)}{' strong' if strong else ''}{' eager' if s.row == EAGER else ''}"
    parts = [title(f"{s.row} [{plain(s.variant)}]"), path(points, class_=kind)]
    if strong:
        for (px, py), batch, seconds in zip(points, s.batches, s.medians_s, strict=True):
            hover = title(f"{s.row}, batch {batch:,}: {duration(seconds)}")
            parts.append(element("circle", hover, cx=px, cy=py, r=3.5, class_=_side(s.row)))
    return element("g", "".join(parts))


def _tick_batch(value: float) -> str:
    """Whole numbers alone: there is no batch of 1.5."""
    return f"{value:,.0f}" if value >= 1 and abs(value - round(value)) < 1e-6 else ""


def _side(row: str) -> str:
    return "jax" if row.startswith("jax.") else "torch"


def roofline_plot(compared: Sequence[Comparison], floors: Floors, dtype: str, height: float = 340) -> str:
    """What each framework's fastest row attains over the operations a byte of its case, under the machine's roof; that
    of what fits into the last cache is dashed."""
    peak, bandwidth = floors.flops_per_s[dtype], floors.bytes_per_s
    dots = [dot for c in compared for dot in _dots(c)]
    xs = [x for x, *_ in dots]
    ridge = peak / bandwidth
    x, y = _scales([*xs, ridge, ridge / 8], [*(f for _, f, *_ in dots), peak, min(xs) * bandwidth], height)
    slopes = [_slope(x, y, peak, bandwidth)]
    parts = [
        frame(x, y, "operations a byte, of the least work", "FLOP/s attained", lambda v: f"{v:g}", _tick_rate),
        path([*slopes[0], (x.end, y(peak))], class_="roof"),
        text(f"{rate(peak, 'FLOP')} measured", x.end, y(peak) - 6, class_="figure", text_anchor="end"),
        text(f"{rate(bandwidth, 'B')} measured", slopes[0][0][0] + 8, slopes[0][0][1] + 20, class_="figure"),
    ]
    if floors.cache_bytes_per_s > bandwidth:
        words = title(f"within the last cache: {rate(floors.cache_bytes_per_s, 'B')}")
        cached = path(_slope(x, y, peak, floors.cache_bytes_per_s), class_="roof cached")
        parts.append(element("g", words + cached))
    for intensity, attained, side, words in dots:
        hover = title(words)
        parts.append(element("circle", hover, cx=x(intensity), cy=y(attained), r=4.5, class_=f"dot {side}"))
    return picture("".join(parts), WIDTH, height, "Roofline")


def _slope(x: LogScale, y: LogScale, peak: float, bandwidth: float) -> list[tuple[float, float]]:
    """From the plot's edge up to the peak."""
    first = max(x.low, y.low / bandwidth)
    last = max(first, peak / bandwidth)
    return [(x(first), y(min(peak, first * bandwidth))), (x(last), y(peak))]


def _tick_rate(flops: float) -> str:
    return re.sub(r"\.0+(?= )", "", rate(flops, "")).removesuffix("/s")


def _dots(one: Comparison) -> Iterator[tuple[float, float, str, str]]:
    for side, name in (("jax", one.fastest_jax), ("torch", one.fastest_torch)):
        row = next((r for r in one.rows if (r.row, r.variant) == name), None)
        if row is not None and row.flops_per_s and one.flops_per_byte:
            words = f"{plain(one.case)}, {one.mode}: {row.row}, {rate(row.flops_per_s, 'FLOP')}"
            over = f", {number(row.to_floor)} times the floor" if row.to_floor else ""
            yield one.flops_per_byte, row.flops_per_s, side, words + over


def break_even_plot(group: Group, calls: int | None, height: float = 250) -> str:
    """Compile time and all calls together over the number of calls, of JAX's fastest row and PyTorch's; `""` where one
    of them is not known. `calls` is where JAX has paid back, if it does."""
    pair = [c for c in (group.fastest_jax, group.fastest_torch) if c and c.median_s and c.compile_s is not None]
    if len(pair) < 2:
        return ""
    longest = max((c.compile_s or 0) / (c.median_s or 1) for c in pair)
    last = 10 * max(10.0, longest, calls or 0)
    steps = [last ** (i / 12) for i in range(13)]
    totals = {c.framework: [(n, (c.compile_s or 0) + n * (c.median_s or 0)) for n in steps] for c in pair}
    x = LogScale(1, last, LEFT, WIDTH - RIGHT)
    y = LogScale(*padded([t for line in totals.values() for _, t in line], 1.15), height - BOTTOM, TOP + SPACE)
    parts = [frame(x, y, "calls", "compile and all calls", _tick_count, tick_duration)]
    for cell in pair:
        line = path([(x(n), y(t)) for n, t in totals[cell.framework]], class_=f"line strong {cell.framework}")
        parts.append(element("g", title(_told(cell)) + line))
    if calls:
        at = f"M{short(x(calls))} {short(y.start)}V{short(y.end)}"
        parts.append(element("path", title(f"pays back after {count(calls, 'call')}"), d=at, class_="knee jax"))
    return picture("".join(parts), WIDTH, height, "Total time over the number of calls")


def _told(cell: Cell) -> str:
    return f"{row_name(cell)}: {duration(cell.compile_s)} before the first call, {duration(cell.median_s)} a call"


def _tick_count(value: float) -> str:
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale * 0.999:
            return f"{value / scale:g}{prefix}"
    return f"{value:g}"
