"""A reference that computes in a narrower dtype than it was asked for, and a port that does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dtypes import HALF_ULP
from ..report.records import Tensor
from .judge import Truth
from .yardstick import rms, rms_error

BETTER = 0.01  # of PyTorch's error: so little is none that rounding in the same dtype leaves
ROUNDINGS = 200  # of half an ulp: a larger error is of another dtype, or of digits that cancel


def narrower_reference(tensors: Sequence[Tensor], truths: Sequence[Truth], dtype: str) -> list[str]:
    """A warning where outputs of the reference are far from its own in float64, and the port's are not.

    Args:
      tensors: the verdicts on the port.
      truths: the judge's answers.
      dtype: that people run.
    """
    found: dict[str, float] = {}
    for tensor in tensors:
        if tensor.kind != "output" or tensor.ratio is None or tensor.ratio > BETTER:
            continue
        asked = [t for t in truths if t.question.mode == tensor.mode and t.question.is_random]
        errors = [
            rms_error(t.torch.outputs[tensor.name], wanted) / (rms(wanted) or np.inf)
            for t in asked
            if (wanted := t.reference.outputs.get(tensor.name)) is not None and tensor.name in t.torch.outputs
        ]
        error = float(np.median(errors)) if errors else 0.0
        if np.isfinite(error) and error > ROUNDINGS * HALF_ULP[dtype]:
            found[tensor.name] = max(error, found.get(tensor.name, 0.0))
    if not found:
        return []
    name, error = max(found.items(), key=lambda each: each[1])
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    told = (
        f"in {dtype} the reference's output {name}{more} is off by {error:.1g} of its size from its own float64, and "
        f"the port's by less than {BETTER:g} of that: the reference computes in a narrower dtype inside (autocast, a "
        "cast, TF32) or loses digits, and the port does not; no verdict tells whether it should"
    )
    return [told]
