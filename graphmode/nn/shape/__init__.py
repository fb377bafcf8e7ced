"""Axes joined, split and shuffled."""

from .flatten import Flatten, Unflatten
from .shuffle import ChannelShuffle, PixelShuffle, PixelUnshuffle

__all__: list[str] = ["ChannelShuffle", "Flatten", "PixelShuffle", "PixelUnshuffle", "Unflatten"]
