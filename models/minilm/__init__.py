"""MiniLM, sentences as vectors: `encode(sentences)` with the installed weights, `load()` for the model alone."""

from .model import MiniLM, load
from .sentences import SentenceEncoder, encode

__all__ = ["MiniLM", "SentenceEncoder", "encode", "load"]
