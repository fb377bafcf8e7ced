"""ANARCII, which numbers antibodies: `load()` gives it with its weights, `number` takes sequences to IMGT numbers."""

from .model import Anarcii, AnarciiConfig, load

__all__ = ["Anarcii", "AnarciiConfig", "load"]
