"""A reader of text lines: `load()` gives it with the weights of legere, `read` spells what stands in pictures."""

from .config import LegereConfig
from .lines import read
from .model import Legere, load, transcribe

__all__ = ["Legere", "LegereConfig", "load", "read", "transcribe"]
