"""Batch sweeps: the time of a row over the batch size, as a fixed part and a part for each item, and where they meet.

Below the knee a call costs what it costs however small the batch is: launches, and the host. Beyond it time grows with
the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from .records import Cell

MIN_SIZES = 4
MAX_MISFIT = 0.25  # of a measured time: a line that misses one by more says nothing


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One row over its batch sizes. `fixed_s + per_item_s * batch` is the line through its medians, which misses none
    by more than the fraction `misfit`; None where no line comes that close. `knee` is the batch at which both parts are
    equal, None where that lies outside the sizes measured."""

    case: str
    mode: str
    device: str
    dtype: str
    row: str
    variant: str
    batches: list[int]
    medians_s: list[float]
    fixed_s: float | None = None
    per_item_s: float | None = None
    misfit: float | None = None
    knee: float | None = None


def sweeps(cells: Iterable[Cell]) -> Iterator[Sweep]:
    """Every row that was timed at two batch sizes or more."""
    found: dict[tuple[str, ...], dict[int, float]] = {}
    for c in cells:
        if c.batch is not None and c.median_s:
            found.setdefault((c.case, c.mode, c.device, c.dtype, c.row, c.variant), {})[c.batch] = c.median_s
    for (case, mode, device, dtype, row, variant), times in found.items():
        if len(times) < 2:
            continue
        batches = sorted(times)
        medians = [times[b] for b in batches]
        fixed, per_item, misfit, knee = _line(batches, medians) or (None, None, None, None)
        yield Sweep(
            case=case,
            mode=mode,
            device=device,
            dtype=dtype,
            row=row,
            variant=variant,
            batches=batches,
            medians_s=medians,
            fixed_s=fixed,
            per_item_s=per_item,
            misfit=misfit,
            knee=knee,
        )


def _line(batches: list[int], medians: list[float]) -> tuple[float, float, float, float | None] | None:
    """The line with the least relative squares, neither part negative."""
    if len(batches) < MIN_SIZES:
        return None
    n, t = np.asarray(batches, float), np.asarray(medians)
    parts = np.stack([1 / t, n / t], axis=1)
    both = np.linalg.lstsq(parts, np.ones(len(t)), rcond=None)[0]
    alone = [(p.sum() / (p @ p)) * np.eye(2)[i] for i, p in enumerate(parts.T)]
    allowed = [both] if (both >= 0).all() else alone
    fixed, per_item = min(allowed, key=lambda line: float(((parts @ line - 1) ** 2).sum()))
    misfit = float(np.abs(parts @ (fixed, per_item) - 1).max())
    if misfit > MAX_MISFIT:
        return None
    knee = float(fixed / per_item) if per_item > 0 else None
    within = knee is not None and batches[0] <= knee <= batches[-1]
    return float(fixed), float(per_item), misfit, knee if within else None
