"""What is tried on the reference's optimizer, in order, until something explains the port's steps."""

from __future__ import annotations

from ....case import Case
from ....report.records import Cause
from ..limit import Limit
from .clipping import clipping
from .rates import rates
from .settings import settings
from .steps import EXPLAINED, Steps

BUDGET_S = 20.0


def explain_optimizer(case: Case, *, seed: int, device: str, budget_s: float = BUDGET_S) -> list[Cause]:
    """How the reference's optimizer has to be changed to make exactly the port's steps: a setting, what it does to
    gradients, or its learning rates, one at a time.

    Both step from the same random parameters on the same gradients, in float64.
    """
    steps = Steps(case, seed, device)
    if steps.residual() <= EXPLAINED:
        return []
    limit = Limit(budget_s)  # the first step of all imports for seconds
    for stage in (settings, clipping, rates):
        if causes := stage(steps, limit):
            return causes
    return []
