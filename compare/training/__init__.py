"""Training scripts beside their PyTorch twins: the same weights and batches, and losses that lie on each other."""

from .find import as_training, kinds_of
from .record import Training, training_of
from .report import write_training
from .result import Apart, TrainingResult, Way
from .runs import run_training

__all__ = [
    "Apart",
    "Training",
    "TrainingResult",
    "Way",
    "as_training",
    "kinds_of",
    "run_training",
    "training_of",
    "write_training",
]
