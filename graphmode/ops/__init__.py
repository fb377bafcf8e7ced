"""Fixed-size building blocks for what eager code does with shapes that depend on values."""

from .checks import check
from .compact import compact
from .control import cond, switch
from .fixed_point import fixed_point
from .layers import stack_layers
from .loops import fori, while_loop
from .padded import Padded
from .partition import partition
from .scan_until import scan_until
from .stack import Stack

__all__ = [
    "Padded",
    "Stack",
    "check",
    "compact",
    "cond",
    "fixed_point",
    "fori",
    "partition",
    "scan_until",
    "stack_layers",
    "switch",
    "while_loop",
]
