"""Why an optimizer that is equal in float64 rounds worse than PyTorch's: a factor that all elements share."""

from __future__ import annotations

import numpy as np

from ....case import Case
from ....dtypes import HALF_ULP
from ....report.records import Cause

MANY = 16.0  # half-ulps: beyond what the roundings of one element come to


def explain_optimizer_digits(case: Case, *, seed: int, dtype: str, device: str) -> list[Cause]:
    """The cause, if the first step is off by one factor; `1 - beta**t` near 0 is what Adam's relatives lose it in.

    Args:
      case: with an optimizer.
      seed: of the gradients.
      dtype: that people run.
      device: `"cpu"` or `"gpu"`.
    """
    from ...optimizer import gradients, in_jax, in_torch

    assert case.optimizer is not None
    make, transformation = case.optimizer
    given = gradients(case, seed, 0)[:1]
    exact = in_torch(make, given, "float64", device)[0]
    ours, theirs = in_jax(transformation, given, dtype, device)[0], in_torch(make, given, dtype, device)[0]
    moved = exact != 0
    if not moved.any():
        return []
    apart, usual = ((x[moved] / exact[moved] - 1) / HALF_ULP[dtype] for x in (ours, theirs))
    shared = float(np.median(apart))
    if abs(shared) < MANY or np.abs(apart - shared).max() > max(MANY, 2 * np.abs(usual).max()):
        return []
    says = (
        f"has the first step {1 + shared * HALF_ULP[dtype]:.7f} times, in every element: a factor that all share has "
        f"lost digits in {dtype}, as 1 - beta**t of optax's Adam does where beta is near 1"
    )
    fix = "take the optimizer of gm.optim by PyTorch's name, with PyTorch's arguments: it keeps them"
    return [Cause(id="shared-factor", says=says, fix=fix, residual=0.0)]
