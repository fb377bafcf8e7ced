"""What is tried on the reference's optimizer, in order, until something explains the port's steps."""

from __future__ import annotations

from ....case import Case
from ....report.records import Cause
from ...yardstick import EQUAL_TOLERANCE
from ..limit import Limit
from .casts import casts
from .clipping import clipping
from .rates import rates
from .settings import settings
from .steps import EXPLAINED, Steps

BUDGET_S = 20.0
VECTOR = (64,)
CASTS = 1e-5  # that float32 leaves at most; a wrong setting makes more of it mostly


def explain_optimizer(case: Case, *, seed: int, device: str, budget_s: float = BUDGET_S) -> list[Cause]:
    """How the reference's optimizer has to be changed to make exactly the port's steps: a setting, what it does to
    gradients, or its learning rates, one at a time; or that the port's stays in float64.

    Both step from the same random parameters on the same gradients, in float64.
    """
    steps = Steps(case, seed, device)
    if EQUAL_TOLERANCE < (off := steps.residual()) <= CASTS and (causes := casts(steps)):
        return causes
    if off <= EXPLAINED:
        return []
    limit = Limit(budget_s)  # the first step of all imports for seconds
    for stage in (settings, clipping, rates):
        if causes := stage(steps, limit):
            return causes
    return []


def explain_optimizer_of_vectors(case: Case, *, seed: int, device: str, budget_s: float = BUDGET_S) -> list[Cause]:
    """The setting that an optimizer which is right on matrices has wrong for parameters of one axis, such as a weight
    decay that leaves out none of them, or none but biases."""
    steps = Steps(case, seed, device, VECTOR)
    return [] if steps.residual() <= EXPLAINED else settings(steps, Limit(budget_s))
