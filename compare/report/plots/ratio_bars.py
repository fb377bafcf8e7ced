"""JAX's fastest row over PyTorch's fastest, a bar for each case: to the left JAX is faster, to the right PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..derived import Comparison
from ..wording import interval_text, mode_text, number, plain
from .svg import LogScale, element, short, text, title

ROW, HEAD, FOOT = 31, 18, 20
NAME = 36  # characters that fit beside the number on a phone
TONES = {"faster": "jax", "slower": "torch", "level": "level", "unknown": "level"}


def ratio_bars(compared: Sequence[Comparison], span: tuple[float, float], anchors: Mapping[str, str]) -> str:
    """The bars of one mode, device and dtype, JAX's largest win first, each a link and a picture of its own: so they
    are read out one by one, and paper may break between them. Widths are shares of the page's own, so that the text
    keeps its size on a phone.

    Args:
      compared: comparisons that have a ratio, one at least.
      span: the lowest and highest value of the axis.
      anchors: where each case is told at length.
    """
    scale = LogScale(*span, 0, 100)
    ticks = [v for v in scale.ticks(7) if 3 < scale(v) < 97]  # a label at the edge would be cut
    places = [(value, f"{short(scale(value))}%") for value in ticks]
    grid = "".join(
        element("line", x1=at, x2=at, y2="100%", class_="axis" if value == 1 else "grid") for value, at in places
    )
    parts = [_row("".join(_sides()), HEAD, class_="head", aria_hidden="true")]
    for one in sorted(compared, key=lambda c: c.best.value if c.best else 0):
        bar = _row(title(_told(one)) + grid + "".join(_bar(one, scale)), ROW, role="img")
        parts.append(element("a", bar, href=f"#{anchors[one.case]}"))
    labels = "".join(text(f"{value:g}", at, FOOT - 6, class_="tick", text_anchor="middle") for value, at in places)
    parts.append(_row(labels, FOOT, class_="foot", aria_hidden="true"))
    label = "JAX's fastest row over PyTorch's fastest row, by case"
    return element("div", "".join(parts), class_="bars", role="group", aria_label=label)


def span(compared: Sequence[Comparison]) -> tuple[float, float]:
    """An axis that holds every bar and every interval."""
    ends = [v for c in compared if c.best for v in (c.best.value, c.best.low, c.best.high) if v]
    return min(*ends, 0.8) / 1.15, max(*ends, 1.25) * 1.15


def _row(content: str, height: float, **attributes: str) -> str:
    return element("svg", content, width="100%", height=height, **attributes)


def _sides() -> Iterator[str]:
    yield text("\N{LEFTWARDS ARROW} JAX faster", 0, 11, class_="jax side")
    yield text("PyTorch faster \N{RIGHTWARDS ARROW}", "100%", 11, class_="torch side", text_anchor="end")


def _told(one: Comparison) -> str:
    fastest = " over ".join(f"{row} [{variant}]" for row, variant in (one.fastest_jax, one.fastest_torch) if row)  # type: ignore[misc]
    ratio = f"{number(one.best.value if one.best else None)} ({interval_text(one.best)})"
    noisy = ", noisy" if one.noisy else ""
    return f"{plain(one.case)}, {mode_text(one.mode)}: {ratio}{noisy}, {plain(fastest)}"


def _bar(one: Comparison, scale: LogScale) -> Iterator[str]:
    best = one.best
    assert best is not None
    name = plain(one.case)
    yield text(name if len(name) <= NAME else f"{name[: NAME - 3]}...", 0, 12, class_="label")
    yield text(number(best.value), "100%", 12, class_="figure", text_anchor="end")
    if one.noisy:
        yield text("noisy", "100%", 12, dx=-10 - 7.5 * len(number(best.value)), class_="tick", text_anchor="end")
    left, right = sorted((scale(best.value), scale(1)))
    tone = TONES[one.verdict or "level"]
    yield element("rect", x=f"{short(left)}%", width=f"{short(right - left)}%", y=17, height=9, class_=tone)
    if best.low and best.high:
        low, high = f"{short(scale(best.low))}%", f"{short(scale(best.high))}%"
        yield element("line", x1=low, x2=high, y1=21.5, y2=21.5, class_="whisker")
        for end in (low, high):
            yield element("line", x1=end, x2=end, y1=18.5, y2=24.5, class_="whisker")
