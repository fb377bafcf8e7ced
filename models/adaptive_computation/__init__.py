"""A recurrent layer that decides for each example how long to think: adaptive computation time."""

from .model import AdaptiveComputation, Pondered

__all__ = ["AdaptiveComputation", "Pondered"]
