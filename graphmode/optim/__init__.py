"""The optimizers and schedules of `torch.optim` as optax transformations that step exactly as PyTorch's do."""

from . import lr_scheduler
from .adagrad import adadelta, adagrad, rmsprop
from .adam import adam, adamax, adamw, nadam, radam
from .averaging import ema, swa
from .clipping import clip_grad_norm, clip_grad_value
from .matrices import adafactor, muon
from .refused import lbfgs, sparse_adam
from .sgd import asgd, rprop, sgd
from .torch_state import from_torch, to_torch
from .transformation import Group, Optimizer, OptimizerState, with_lr

__all__ = [
    "Group",
    "Optimizer",
    "OptimizerState",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "asgd",
    "clip_grad_norm",
    "clip_grad_value",
    "ema",
    "from_torch",
    "lbfgs",
    "lr_scheduler",
    "muon",
    "nadam",
    "radam",
    "rmsprop",
    "rprop",
    "sgd",
    "sparse_adam",
    "swa",
    "to_torch",
    "with_lr",
]
