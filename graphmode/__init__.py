"""Move a model from eager PyTorch to JAX/Flax graph mode, prove that nothing changed, show that it is faster."""

from . import nn, ops, weights
from .graph import graphed
from .ops import (
    Moments,
    Padded,
    check,
    compact,
    masked_argmax,
    masked_max,
    masked_mean,
    masked_min,
    masked_moments,
    masked_softmax,
    masked_sum,
    masked_var,
    partition,
)

__all__ = [
    "Moments",
    "Padded",
    "check",
    "compact",
    "graphed",
    "masked_argmax",
    "masked_max",
    "masked_mean",
    "masked_min",
    "masked_moments",
    "masked_softmax",
    "masked_sum",
    "masked_var",
    "nn",
    "ops",
    "partition",
    "weights",
]
__version__ = "0.1.0"
