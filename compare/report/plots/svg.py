"""SVG elements, and axes with their ticks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from ..wording import duration

WIDTH = 480  # of a plot with axes, in user units; text is 12 of them high
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 12, 42
MANTISSAS = ((1, 1.2, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))


def element(tag: str, content: str = "", /, **attributes: str | float | None) -> str:
    """An element; `class_` is `class`, other underscores are hyphens, None is left out. Content is markup."""
    names = {name: "class" if name == "class_" else name.replace("_", "-") for name in attributes}
    given = "".join(
        f" {names[name]}={quoteattr(value if isinstance(value, str) else short(value))}"
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{given}>{content}</{tag}>" if content else f"<{tag}{given}/>"


def text(words: str, x: float | str, y: float, **attributes: str | float | None) -> str:
    return element("text", escape(words), x=x, y=y, **attributes)


def title(words: str) -> str:
    """What shows when the pointer rests on the element around it."""
    return element("title", escape(words))


def picture(content: str, width: float, height: float, label: str) -> str:
    """A whole SVG that grows with its page."""
    box = f"0 0 {short(width)} {short(height)}"
    return element("svg", content, viewBox=box, role="img", aria_label=label)


def path(points: list[tuple[float, float]], **attributes: str | float | None) -> str:
    steps = "L".join(f"{short(x)} {short(y)}" for x, y in points)
    return element("path", d=f"M{steps}", **attributes)


def short(value: float) -> str:
    """A coordinate to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True, slots=True)
class LogScale:
    """From values, `low` to `high`, to coordinates, `start` to `end`, by the logarithm."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, most: int = 7) -> list[float]:
        """Round numbers, as many as there is room for."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for mantissas in MANTISSAS:
            found = [
                m * 10.0**d for d in decades for m in mantissas if self.low <= m * 10.0**d * (1 + 1e-9) <= self.high
            ]
            if len(found) <= most:
                return found
        return found[:: math.ceil(len(found) / most)]


def padded(values: list[float], by: float = 1.25) -> tuple[float, float]:
    """The range of the values and some more on both sides, at least a factor of four in all."""
    low, high = min(values) / by, max(values) * by
    wider = max(1.0, math.sqrt(4 * low / high))
    return low / wider, high * wider


def frame(
    x: LogScale, y: LogScale, x_name: str, y_name: str, x_tick: Callable[[float], str], y_tick: Callable[[float], str]
) -> str:
    """Grid, tick labels and the names of both axes."""
    return "".join(_frame(x, y, x_name, y_name, x_tick, y_tick))


def _frame(
    x: LogScale, y: LogScale, x_name: str, y_name: str, x_tick: Callable[[float], str], y_tick: Callable[[float], str]
) -> Iterator[str]:
    across = "".join(f"M{short(x(v))} {short(y.end)}V{short(y.start)}" for v in x.ticks())
    along = "".join(f"M{short(x.start)} {short(y(v))}H{short(x.end)}" for v in y.ticks())
    yield element("path", d=across + along, class_="grid")
    columns = "".join(text(x_tick(v), x(v), y.start + 15) for v in x.ticks())
    yield element("g", columns, class_="tick", text_anchor="middle")
    rows = "".join(text(y_tick(v), x.start - 6, y(v) + 4) for v in y.ticks())
    yield element("g", rows, class_="tick", text_anchor="end")
    yield element("path", d=f"M{short(x.start)} {short(y.end)}V{short(y.start)}H{short(x.end)}", class_="axis")
    yield text(x_name, (x.start + x.end) / 2, y.start + 34, class_="name", text_anchor="middle")
    yield text(y_name, x.start, y.end - 6, class_="name")


def tick_duration(seconds: float) -> str:
    """`1 ms`, where a measured time would be `1.00 ms`."""
    return re.sub(r"\.0+(?= )", "", duration(seconds))
