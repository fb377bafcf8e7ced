"""Move a model from eager PyTorch to JAX/Flax graph mode, prove that nothing changed, show that it is faster."""

from . import weights
from .ops import partition

__all__ = ["partition", "weights"]
__version__ = "0.1.0"
