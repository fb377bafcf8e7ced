"""Training: one compiled step, the loop around it, checkpoints, and more than one device."""

from .loss import Loss
from .loss_scaling import LossScaling, Scale
from .sharding import Placement, data_parallel, fully_sharded
from .state import TrainState
from .step import TrainStep, train_step

__all__ = [
    "Loss",
    "LossScaling",
    "Placement",
    "Scale",
    "TrainState",
    "TrainStep",
    "data_parallel",
    "fully_sharded",
    "train_step",
]
