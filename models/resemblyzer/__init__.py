"""Resemblyzer's speaker encoder: `load()` gives it with its weights."""

from .mel import mel_spectrogram
from .model import Slicing, Utterance, VoiceEncoder, load

__all__ = ["Slicing", "Utterance", "VoiceEncoder", "load", "mel_spectrogram"]
