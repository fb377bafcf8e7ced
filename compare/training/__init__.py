"""Training scripts beside their PyTorch twins: the same weights and batches, and losses that lie on each other."""

from .record import Training
from .runs import TrainingResult, Way, run_training

__all__ = ["Training", "TrainingResult", "Way", "run_training"]
