"""The learning rate of each step: a schedule of another shape, or one that is off by a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ....report.records import Cause
from ...optimizer import in_torch
from ..fit import plain, solve
from ..limit import Limit
from .steps import EXPLAINED, Steps, group_of, largest

ID = "learning-rate-schedule"
DIGITS = 4  # of a learning rate that somebody may have written
CLOSE = 1e-7


def rates(steps: Steps, limit: Limit) -> list[Cause]:
    """Learning rates, one a step, with which the reference makes the port's steps; then whether the port leaves out
    all that is hung on the reference's optimizer."""
    theirs = _reference_rates(steps)
    ours: list[float] = []
    while theirs and len(ours) < len(steps.gradients) and not limit.is_over:
        value = _rate(steps, ours, theirs, limit)
        if value is None:
            break
        ours.append(value)
    if len(ours) == len(steps.gradients) and not _same(ours, theirs):
        ahead, behind = _same(ours, theirs[1:]), _same(ours[1:], theirs)
        if ahead or behind or _keeps_state(steps) or all(float(f"{v:.{DIGITS}g}") == v for v in ours):
            says = f"steps with learning rates {_told(ours)}, where the reference has {_told(theirs[: len(ours)])}"
            says += ": its schedule is a step " + ("ahead" if ahead else "behind") if ahead or behind else ""
            fix = "let the schedule give at count 0 what the first step takes; gm.optim.lr_scheduler has PyTorch's"
            return [Cause(id=ID, says=says, fix=fix, residual=largest(_left(steps, ours)))]
    if (off := steps.residual(steps.alone)) <= EXPLAINED:
        says = f"does what {steps.kind.__name__} does, and not what the reference's hooks or its own step do besides"
        return [Cause(id="optimizer-hooks", says=says, fix="do that, too, by optax.chain", residual=off)]
    return []


def _rate(steps: Steps, before: list[float], theirs: Sequence[float], limit: Limit) -> float | None:
    """Of the next step, after those before; None where no rate explains it."""

    def left(value: float) -> np.ndarray | None:
        return _left(steps, [*before, value])

    value = solve(left, theirs[len(before)], (*theirs, *before, 0.0), limit)
    if value is None:
        return None
    value = plain(value, lambda value: largest(left(value)) <= EXPLAINED)
    return value if largest(left(value)) <= EXPLAINED else None


def _left(steps: Steps, values: Sequence[float]) -> np.ndarray | None:
    """What is left of so many first steps, with these rates."""
    numbers = iter(values)

    def give(optimizer: torch.optim.Optimizer) -> None:
        group = group_of(optimizer)
        value = next(numbers)
        group["lr"] = torch.full_like(group["lr"], value) if isinstance(group["lr"], torch.Tensor) else value

    with steps.around(before=give):
        return steps.left(count=len(values))


def _reference_rates(steps: Steps) -> list[float]:
    """Of all steps and of the next one; empty where the optimizer has none."""
    found: list[float] = []

    def note(optimizer: torch.optim.Optimizer) -> None:
        found.append(float(group_of(optimizer)["lr"]))

    try:
        with steps.around(before=note):
            in_torch(steps.make, [*steps.gradients, steps.gradients[-1]], "float64", steps.device, start=steps.start)
    except Exception:
        return []
    return found


def _keeps_state(steps: Steps) -> bool:
    """Whether another rate is another thing than other gradients: where those are kept."""
    kept: list[bool] = []

    def note(optimizer: torch.optim.Optimizer) -> None:
        state = optimizer.state.get(group_of(optimizer)["params"][0], {})
        kept.append(any(isinstance(x, torch.Tensor) and x.ndim for x in state.values()))

    with steps.around(after=note):
        steps.left(count=1)
    return any(kept)


def _same(some: Sequence[float], others: Sequence[float]) -> bool:
    return bool(some) and all(abs(a - b) <= CLOSE * abs(b) for a, b in zip(some, others, strict=False))


def _told(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)
