"""Linear and bilinear layers."""

from .bilinear import Bilinear
from .lazy import LazyLinear
from .linear import Identity, Linear

__all__: list[str] = ["Bilinear", "Identity", "LazyLinear", "Linear"]
