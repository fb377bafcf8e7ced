"""Modules and functions as compiled graphs."""

from .graphed import Gradients, Graphed, graphed

__all__ = ["Gradients", "Graphed", "graphed"]
