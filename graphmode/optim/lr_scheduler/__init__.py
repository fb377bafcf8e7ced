"""Learning-rate schedulers: torch's names, arguments and values, as schedules of a count for optax."""

from .composed import ChainedScheduler, SequentialLR
from .cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from .cyclic import CyclicLR
from .functions import LambdaLR, MultiplicativeLR, per_epoch, tabulated
from .one_cycle import OneCycleLR
from .plateau import ReduceLROnPlateau
from .ramps import ConstantLR, LinearLR, PolynomialLR
from .steps import ExponentialLR, MultiStepLR, StepLR
from .swa import SWALR

__all__: list[str] = [
    "SWALR",
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
    "per_epoch",
    "tabulated",
]
