"""A case's loss on either side: one number, or an error that names it."""

from __future__ import annotations

import math
from typing import Any

from .case import CaseError

WHOSE = {"torch": "loss[0], the PyTorch one,", "jax": "loss[1], the jnp one,"}


def scalar_loss(value: Any, framework: str) -> Any:
    """The value, if it is an array of one element.

    Raises:
      CaseError: where it is not: with its shape or type.
    """
    shape = getattr(value, "shape", None)
    if shape is None or not hasattr(value, "dtype"):
        raise CaseError(f"{WHOSE[framework]} gives {type(value).__name__}, and a scalar of the outputs was wanted")
    if math.prod(shape) != 1:
        raise CaseError(
            f"{WHOSE[framework]} gives the shape {tuple(shape)}, and a scalar was wanted: end it with .mean() or .sum()"
        )
    return value
