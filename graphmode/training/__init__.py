"""Training: one compiled step, the loop around it, what feeds it, checkpoints, and more than one device."""

from . import data
from .checkpoints import Checkpoints
from .data import as_source, from_arrays, from_grain, from_sequences, from_torch, read_ahead, stacked
from .early_stopping import EarlyStopping
from .evaluation import Evaluation, Mean
from .loggers import JsonLines, Logger, TensorBoard
from .loop import Fit, fit
from .loss import Loss
from .loss_scaling import LossScaling, Scale
from .nonfinite import NonfiniteError, first_nonfinite
from .sharding import Placement, data_parallel, fully_sharded
from .state import TrainState
from .step import TrainStep, train_step
from .torch_checkpoints import from_torch_checkpoint, to_torch_checkpoint

__all__ = [
    "Checkpoints",
    "EarlyStopping",
    "Evaluation",
    "Fit",
    "JsonLines",
    "Logger",
    "Loss",
    "LossScaling",
    "Mean",
    "NonfiniteError",
    "Placement",
    "Scale",
    "TensorBoard",
    "TrainState",
    "TrainStep",
    "as_source",
    "data",
    "data_parallel",
    "first_nonfinite",
    "fit",
    "from_arrays",
    "from_grain",
    "from_sequences",
    "from_torch",
    "from_torch_checkpoint",
    "fully_sharded",
    "read_ahead",
    "stacked",
    "to_torch_checkpoint",
    "train_step",
]
