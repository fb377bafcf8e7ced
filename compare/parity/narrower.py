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

WORDS = {"output": "output", "parameter_gradient": "gradient by"}


def narrower_reference(tensors: Sequence[Tensor], truths: Sequence[Truth], dtype: str) -> list[str]:
    """A warning where outputs of the reference are far from its own in float64, and the port's are not; gradients by
    its parameters, where outputs are too small for a verdict on their rounding.

    Args:
      tensors: the verdicts on the port.
      truths: the judge's answers.
      dtype: that people run.
    """
    found: dict[str, float] = {}
    judged = {tensor.kind for tensor in tensors if tensor.ratio is not None}
    kind = "output" if "output" in judged else "parameter_gradient"
    for tensor in tensors:
        if tensor.kind != kind or tensor.ratio is None or tensor.ratio > BETTER:
            continue
        key = tensor.kind, tensor.name
        asked = [t for t in truths if t.question.mode == tensor.mode and t.question.is_random]
        errors = [
            rms_error(rounded, wanted) / (rms(wanted) or np.inf)
            for t in asked
            if (wanted := t.reference.find(key)) is not None and (rounded := t.torch.find(key)) is not None
        ]
        error = float(np.median(errors)) if errors else 0.0
        if np.isfinite(error) and error > ROUNDINGS * HALF_ULP[dtype]:
            found[tensor.name] = max(error, found.get(tensor.name, 0.0))
    if not found:
        return []
    name, error = max(found.items(), key=lambda each: each[1])
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    told = (
        f"in {dtype} the reference's {WORDS[kind]} {name}{more} is off by {error:.1g} of its size from its own "
        f"float64, and the port's by less than {BETTER:g} of that: the reference computes in a narrower dtype inside "
        "(autocast, a cast, TF32) or loses digits, and the port does not; no verdict tells whether it should"
    )
    return [told]
