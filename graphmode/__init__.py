"""Move a model from eager PyTorch to JAX/Flax graph mode, prove that nothing changed, show that it is faster."""

from . import nn, ops, optim, training, weights
from .graph import graphed
from .memory import keep_freed_memory
from .ops import *  # noqa: F403  what ops exports is listed there, once
from .training import train_step

__all__ = ["graphed", "keep_freed_memory", "nn", "ops", "optim", "train_step", "training", "weights"]
__all__ += ops.__all__
__version__ = "0.1.0"
