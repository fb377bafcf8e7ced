"""Fixed-size building blocks for what eager code does with shapes that depend on values."""

from .checks import check
from .compact import compact
from .padded import Padded
from .partition import partition

__all__ = ["Padded", "check", "compact", "partition"]
