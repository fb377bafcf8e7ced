"""The plot of ratios: JAX's fastest row over PyTorch's fastest row, with intervals, as inline SVG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from typing import Any

from .ratios import Group, Ratio, groups
from .results import Results
from .wording import number, plain

# Legible on white and on near-black alike; text and lines take the page's own colour instead.
COLOURS = {"inference": "#3d8bd4", "forward_backward": "#d98324", "train_step": "#3f9e6d"}
OTHER_COLOUR = "#9a78c9"
INK = "#010203"
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
# Inches.
BARS, VALUES, CHARACTER, ROW, HEAD, FOOT = 3.3, 0.5, 0.075, 0.3, 0.35, 0.6


def ratio_plot(results: Results) -> str:
    """Horizontal bars on a log axis, one for each case and mode, a panel for each device and dtype.

    Without a ratio to show it is `""`.
    The same results give the same bytes. Text stays text, in the page's colour and the reader's own sans-serif.

    Raises:
      ImportError: where matplotlib is missing.
    """
    panels: dict[tuple[str, str], list[tuple[Group, Ratio]]] = {}
    for group in groups(results.cells):
        if group.best is not None:
            panels.setdefault(group.scope, []).append((group, group.best))
    if not panels:
        return ""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("the plot needs matplotlib: pip install 'graphmode[report]'") from error
    heights = [len(rows) * ROW + HEAD + FOOT for rows in panels.values()]
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "graphmode", "font.size": 9.0}):
        labels = [[_label(group) for group, _ in rows] for rows in panels.values()]
        left = 0.2 + CHARACTER * max(len(text) for texts in labels for text in texts)
        width, top = left + BARS + VALUES, sum(heights)
        figure = Figure(figsize=(width, top))
        figure.patch.set_visible(False)
        for (scope, rows), height, texts in zip(panels.items(), heights, labels, strict=True):
            box = (left / width, (top - height + FOOT) / sum(heights), BARS / width, len(rows) * ROW / sum(heights))
            axes = figure.add_axes(box)
            _draw(axes, rows, texts)
            axes.set_title(", ".join(scope), loc="left", color=INK, fontsize=9.5, pad=8)
            top -= height
        out = StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    return _inline(out.getvalue())


def _draw(axes: Any, rows: Sequence[tuple[Group, Ratio]], labels: Sequence[str]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    bounds = [b for _, r in rows for b in (r.value, r.low or r.value, r.high or r.value)]
    low, high = min(*bounds, 0.8) / 1.12, max(*bounds, 1.25) * 1.12
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for position, (group, ratio) in enumerate(rows):
        colour = COLOURS.get(group.mode, OTHER_COLOUR)
        axes.barh(position, ratio.value - 1, left=1, height=0.62, color=colour, linewidth=0)
        if ratio.low is not None and ratio.high is not None:
            axes.plot((ratio.low, ratio.high), (position, position), color=INK, linewidth=1.1, solid_capstyle="butt")
            axes.plot((ratio.low, ratio.high), (position, position), "|", color=INK, markersize=5)
        axes.text(1.02, position, number(ratio.value), transform=axes.get_yaxis_transform(), va="center", color=INK)
    axes.axvline(1, color=INK, linewidth=1)
    ticks = [t for t in TICKS if low <= t <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks], color=INK)
    axes.set_yticks(range(len(rows)), labels, color=INK)
    axes.tick_params(color=INK, length=3)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("JAX's time over PyTorch's, log scale; below 1, JAX is faster", color=INK)
    axes.patch.set_visible(False)
    axes.grid(axis="x", color=INK, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(INK)


def _label(group: Group) -> str:
    # A dollar sign would start matplotlib's own mathematics.
    return f"{plain(group.case)}, {group.mode}".replace("\n", " ").replace("$", r"\$")


def _inline(svg: str) -> str:
    """Only the element itself, sized by its page, with the ink in the page's colour."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s(?:width|height)="[^"]*"', "", head)
    head += ' role="img" aria-label="JAX\'s fastest row over PyTorch\'s fastest row, by case and mode"'
    rest = rest.replace(INK, "currentColor")
    head += ' style="stroke-linejoin: round; stroke-linecap: butt"'
    rest = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", rest, count=1, flags=re.DOTALL)
    rest = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 sans-serif", rest)
    return f"{head}>{rest}"
