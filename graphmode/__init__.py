"""Move a model from eager PyTorch to JAX/Flax graph mode, prove that nothing changed, show that it is faster."""

from . import nn, ops, weights
from .graph import graphed
from .ops import Padded, check, compact, partition

__all__ = ["Padded", "check", "compact", "graphed", "nn", "ops", "partition", "weights"]
__version__ = "0.1.0"
