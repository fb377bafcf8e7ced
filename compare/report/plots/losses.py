"""Losses over steps, and how far they are apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..wording import number
from .curves import SPACE
from .svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, LogScale, element, frame, padded, path, picture, text, title

SMALLEST = 1e-17


def loss_plot(reference: Sequence[float], port: Sequence[float], height: float = 300) -> str:
    """Both curves, the port's thin over the reference's broad one, so that both are seen where they are the same."""
    shown = [value for value in (*reference, *port) if math.isfinite(value) and value > 0]
    x, y = _scales(len(reference), shown or [1.0], height)
    parts = [frame(x, y, "step", "loss", _tick, number)]
    for losses, kind, name in ((reference, "torch broad", "torch.eager"), (port, "jax strong", "jax.jit")):
        parts.append(_line(losses, x, y, f"line {kind}", name))
    for place, (kind, name) in enumerate((("torch", "torch.eager"), ("jax", "jax.jit, over it"))):
        parts.append(text(name, x.end, y.end + 14 + 16 * place, class_=f"label {kind}", text_anchor="end"))
    return picture("".join(parts), WIDTH, height, "Loss over steps")


def difference_plot(reference: Sequence[float], ways: Mapping[str, Sequence[float]], height: float = 260) -> str:
    """The relative difference of each way's losses to the reference's."""
    gaps = {
        name: [abs(a - b) / max(abs(b), SMALLEST) for a, b in zip(losses, reference, strict=True)]
        for name, losses in ways.items()
    }
    shown = [gap for found in gaps.values() for gap in found if math.isfinite(gap) and gap > SMALLEST]
    x, y = _scales(len(reference), shown or [1e-16], height)
    parts = [frame(x, y, "step", "relative difference", _tick, lambda value: f"{value:.0e}")]
    for name, found in gaps.items():
        parts.append(_line(found, x, y, f"line {'jax strong' if name.startswith('jax') else 'torch'}", name))
    return picture("".join(parts), WIDTH, height, "Relative difference of the losses over steps")


def _scales(steps: int, values: Sequence[float], height: float) -> tuple[LogScale, LogScale]:
    return (
        LogScale(1, max(2, steps), LEFT, WIDTH - RIGHT),
        LogScale(*padded([min(values), max(values)]), height - BOTTOM, TOP + SPACE),
    )


def _line(values: Sequence[float], x: LogScale, y: LogScale, kind: str, name: str) -> str:
    points = [(x(i + 1), y(v)) for i, v in enumerate(values) if math.isfinite(v) and v > SMALLEST]
    return element("g", title(name) + path(points, class_=kind)) if points else ""


def _tick(value: float) -> str:
    return f"{value:,.0f}"
