"""Move a model from eager PyTorch to JAX/Flax graph mode, prove that nothing changed, show that it is faster."""

from . import nn, ops, weights
from .graph import graphed
from .ops import (
    Padded,
    argwhere,
    check,
    compact,
    flatnonzero,
    intersect1d,
    isin,
    masked_fill,
    masked_scatter,
    nonzero,
    partition,
    setdiff1d,
    setxor1d,
    union1d,
    unique,
    unique_consecutive,
)

__all__ = [
    "Padded",
    "argwhere",
    "check",
    "compact",
    "flatnonzero",
    "graphed",
    "intersect1d",
    "isin",
    "masked_fill",
    "masked_scatter",
    "nn",
    "nonzero",
    "ops",
    "partition",
    "setdiff1d",
    "setxor1d",
    "union1d",
    "unique",
    "unique_consecutive",
    "weights",
]
__version__ = "0.1.0"
