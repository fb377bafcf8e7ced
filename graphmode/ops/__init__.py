"""Fixed-size building blocks for what eager code does with shapes that depend on values."""

from .checks import CheckError, check, checked
from .compact import compact
from .host import no_callbacks
from .padded import Padded
from .partition import partition
from .printing import debug_print

__all__ = ["CheckError", "Padded", "check", "checked", "compact", "debug_print", "no_callbacks", "partition"]
