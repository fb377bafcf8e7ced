"""Training: one compiled step, the loop around it, checkpoints, and more than one device."""

from .checkpoints import Checkpoints
from .loss_scaling import LossScaling, Scale
from .sharding import Placement, data_parallel, fully_sharded
from .state import Loss, TrainState
from .step import TrainStep, train_step
from .torch_checkpoints import from_torch_checkpoint, to_torch_checkpoint

__all__ = [
    "Checkpoints",
    "Loss",
    "LossScaling",
    "Placement",
    "Scale",
    "TrainState",
    "TrainStep",
    "data_parallel",
    "from_torch_checkpoint",
    "fully_sharded",
    "to_torch_checkpoint",
    "train_step",
]
