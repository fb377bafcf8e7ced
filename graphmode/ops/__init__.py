"""Fixed-size building blocks for what eager code does with shapes that depend on values."""

from .checks import check
from .compact import compact
from .masked import masked_argmax, masked_max, masked_mean, masked_min, masked_softmax, masked_sum, masked_var
from .moments import Moments, masked_moments
from .padded import Padded
from .partition import partition

__all__ = [
    "Moments",
    "Padded",
    "check",
    "compact",
    "masked_argmax",
    "masked_max",
    "masked_mean",
    "masked_min",
    "masked_moments",
    "masked_softmax",
    "masked_sum",
    "masked_var",
    "partition",
]
