"""Dropout that is on in the port and off in the reference: no variant draws its numbers, but it leaves its mark."""

from __future__ import annotations

import numpy as np

from ...report.records import Cause
from .target import EXPLAINED, Target

FEWEST = 16  # elements that are not zero, for a share to tell anything
MARGIN = 5.0  # standard deviations of the share


def dropout_on(target: Target) -> Cause | None:
    """Each tensor of the forward pass that is off is the reference's, its elements dropped or multiplied by one number,
    as many dropped as that number says: 1 of n elements, and the others times 1 / (1 - 1 / n).

    Args:
      target: of a suspect.
    """
    rates, residuals = [], []
    for aim in target.forward.aims.values():
        if aim.residual(aim.reference) <= EXPLAINED:
            continue
        if aim.port.shape != aim.reference.shape or aim.port.dtype.kind != "f":
            return None
        there = aim.reference != 0
        ratio = aim.port[there].astype(np.float64) / aim.reference[there].astype(np.float64)
        kept = ratio != 0
        if ratio.size < FEWEST or kept.all() or not kept.any():
            return None
        factor = float(np.median(ratio[kept]))
        dropped = 1 - 1 / factor if factor > 1 else 0.0
        off = MARGIN * float(np.sqrt(dropped * (1 - dropped) / ratio.size))
        if not dropped or abs(float((~kept).mean()) - dropped) > off:
            return None
        made = np.where(aim.port == 0, 0.0, aim.reference * factor)
        rates.append(dropped)
        residuals.append(aim.residual(made))
    if not rates or max(residuals) > EXPLAINED or max(rates) - min(rates) > EXPLAINED:
        return None
    return Cause(
        id="dropout",
        says=f"drops elements at random, one in {1 / rates[0]:.3g}, and multiplies the others by "
        f"{1 / (1 - rates[0]):.4g}: dropout with p={rates[0]:.3g} is on",
        fix="turn it off: model.eval(), or deterministic=True; both sides are compared without dropout",
        residual=max(residuals),
    )
