"""Small pictures that stand in a table's row: repeats as dots, the parts of a cold start, bytes as a bar."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from ..records import Cell, Cold
from .svg import LogScale, element, short

WIDTH, HEIGHT, MIDDLE = 170, 16, 8  # as in page.css
REACH = 10.0  # times the median of the row in the middle: slower rows would press the others together
COLD_PARTS = ("build", "trace", "lower", "compile", "first_run")


def samples_scale(cells: Sequence[Cell]) -> LogScale | None:
    """One axis for the repeats of all rows of a group; None where there are none."""
    medians = [c.median_s for c in cells if c.samples_s and c.median_s]
    if not medians:
        return None
    limit = REACH * median(medians)
    inside = [s for c in cells if c.median_s and c.median_s <= limit for s in c.samples_s]
    low, high = min(inside), min(max(inside), limit)
    return LogScale(low, max(high, low * 1.1), 4, WIDTH - 4)


def strip(cell: Cell, scale: LogScale) -> str:
    """Every repeat as a dot, the median as a stroke; what is beyond the axis as an arrow at its end."""
    if not cell.samples_s or cell.median_s is None:
        return ""
    inside = sorted({round(scale(s)) for s in cell.samples_s if s <= scale.high})
    parts = []
    if inside:
        moves = "".join(f"m{after - before} 0h0" for before, after in pairwise(inside))
        parts.append(element("path", d=f"M{inside[0]} {MIDDLE}h0{moves}", class_="dots"))
    if cell.median_s <= scale.high:
        parts.append(element("path", d=f"M{short(scale(cell.median_s))} 2v{HEIGHT - 4}", class_="median"))
    if max(cell.samples_s) > scale.high:
        parts.append(element("path", d=f"M{WIDTH - 6} 4l4 4l-4 4", class_="beyond"))
    return element("svg", "".join(parts), class_=cell.framework)


def cold_bar(cold: Cold | None, longest_s: float) -> str:
    """The parts of a cold start one after the other, and a warm start below, on an axis that ends at `longest_s`. Each
    has its colour by its place: a part that is not there is an empty path."""
    parts, at = [], 0.0
    for name in COLD_PARTS:
        seconds = getattr(cold, f"{name}_s") if cold else None
        width = seconds / longest_s * WIDTH if seconds and seconds > 0 else 0.0
        parts.append(_bar(at, width) if width else element("path"))
        at += width
    if cold is not None and cold.warm_start_s and at:
        parts.append(_bar(0, min(1.0, cold.warm_start_s / longest_s) * WIDTH, height=HEIGHT - 1))
    return element("svg", "".join(parts), class_="cold") if at else ""


def cold_total(cold: Cold | None) -> float:
    """Seconds of all parts that are known."""
    return sum(max(0.0, getattr(cold, f"{name}_s") or 0.0) for name in COLD_PARTS) if cold else 0.0


def bytes_bar(amount: int | None, most: int, framework: str) -> str:
    """A bar on an axis that ends at `most` bytes."""
    return element("svg", _bar(0, amount / most * WIDTH, framework)) if amount else ""


def _bar(start: float, width: float, class_: str | None = None, height: float = MIDDLE) -> str:
    return element("path", d=f"M{short(start)} {short(height)}h{short(max(width, 0.4))}", class_=class_)
