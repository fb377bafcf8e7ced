"""Fixed-size building blocks for what eager code does with shapes that depend on values."""

from .partition import partition

__all__ = ["partition"]
