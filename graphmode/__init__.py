"""Move a model from eager PyTorch to JAX/Flax graph mode, prove that nothing changed, show that it is faster."""

from . import nn, ops, weights
from .graph import graphed
from .ops import CheckError, Padded, check, checked, compact, debug_print, no_callbacks, partition

__all__ = [
    "CheckError",
    "Padded",
    "check",
    "checked",
    "compact",
    "debug_print",
    "graphed",
    "nn",
    "no_callbacks",
    "ops",
    "partition",
    "weights",
]
__version__ = "0.1.0"
