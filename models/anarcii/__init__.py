"""ANARCII, which numbers antibodies: `load()` gives it with its weights, `number` takes sequences to IMGT numbers."""

from .config import AnarciiConfig
from .model import Anarcii, load

__all__ = ["Anarcii", "AnarciiConfig", "load"]
