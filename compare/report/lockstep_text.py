"""Lockstep training in words: where it first goes wrong, and the curve of the free run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .records import Lockstep, StepFinding

SHOWN = 5


def told(result: Lockstep) -> Iterator[str]:
    """Line by line."""
    variant = "" if result.variant == "default" else f" [{result.variant}]"
    verdict = "passed" if result.passed else "FAILED"
    dropout = ", dropout on, the reference's masks in both" if result.dropout else ""
    yield f"{result.case}{variant}: lockstep over {result.steps} steps{dropout}: {verdict}"
    if result.first is not None:
        yield f"  first {_found(result.first)}"
        for each in result.findings[1:SHOWN]:
            yield f"  then {_found(each)}"
        counts = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in result.failed.items())
        yield f"  tensors that are off, over all steps: {counts}"
    worst = ", ".join(f"{k.replace('_', ' ')} {_size(v)}" for k, v in result.worst.items())
    yield f"  largest error of a step from the reference's state: {worst}"
    if result.curve:
        yield "  free run, the largest relative error of a parameter"
        yield "    step      port   half an ulp of float64   of float32 (the reference against itself)"
        for at in result.curve:
            yield f"    {at.step:4d} {_size(at.port):>9} {_size(at.rounding):>24} {_size(at.rounding_float32):>12}"
    yield from (f"  note: {note}" for note in result.notes)


def _found(f: StepFinding) -> str:
    size = "off" if f.error is None else f"off by {f.error:.2g} of its scale"
    values = f": {f.port_value} for {f.reference_value}" if f.port_value else ""
    note = f" ({f.note})" if f.note else ""
    return f"in step {f.step}: {f.kind.replace('_', ' ')} {f.tensor} at {list(f.index)} is {size}{values}{note}"


def _size(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.1e}"
