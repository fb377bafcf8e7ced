"""Fixed-size building blocks for what eager code does with shapes that depend on values."""

from .checks import check
from .compact import compact
from .masked_write import masked_fill, masked_scatter
from .nonzero import argwhere, flatnonzero, nonzero
from .padded import Padded
from .partition import partition
from .sets import intersect1d, isin, setdiff1d, setxor1d, union1d
from .unique import unique, unique_consecutive

__all__ = [
    "Padded",
    "argwhere",
    "check",
    "compact",
    "flatnonzero",
    "intersect1d",
    "isin",
    "masked_fill",
    "masked_scatter",
    "nonzero",
    "partition",
    "setdiff1d",
    "setxor1d",
    "union1d",
    "unique",
    "unique_consecutive",
]
