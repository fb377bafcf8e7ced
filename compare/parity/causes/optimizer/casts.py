"""What an optimizer of the port computes in float32 by itself, as a rate of a count that was cast to it."""

from __future__ import annotations

from ....asked_dtype import as_float64
from ....report.records import Cause
from ...yardstick import EQUAL_TOLERANCE
from ..casts import HIDDEN_CAST
from .steps import Steps


def casts(steps: Steps) -> list[Cause]:
    """The cause, where the steps are right as soon as what is cast to float32 stays in float64."""
    with as_float64("float32", "complex64"):
        off = steps.residual(port=steps.ported())
    if off > EQUAL_TOLERANCE:
        return []
    says = "casts to float32 in the optimizer, such as a count for a learning rate, or what it keeps"
    fix = "cast a count to the dtype of floats that is set, by count.astype(float), and keep what has a dtype in it"
    return [Cause(id=HIDDEN_CAST, says=says, fix=fix, residual=off)]
