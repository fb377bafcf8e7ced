"""Silero's voice detector: `load()` gives it with its weights, `get_speech_timestamps` says where somebody speaks."""

from .model import SileroConfig, SileroVAD, State, load
from .speech_timestamps import get_speech_timestamps, get_speech_timestamps_from_probs

__all__ = [
    "SileroConfig",
    "SileroVAD",
    "State",
    "get_speech_timestamps",
    "get_speech_timestamps_from_probs",
    "load",
]
