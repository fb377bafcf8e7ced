"""Move a model from eager PyTorch to JAX/Flax graph mode, prove that nothing changed, show that it is faster."""

from . import nn, weights
from .graph import graphed
from .ops import partition

__all__ = ["graphed", "nn", "partition", "weights"]
__version__ = "0.1.0"
