"""Modules and functions as compiled graphs."""

from .command_buffers import command_buffer_options
from .graphed import Gradients, Graphed, graphed

__all__ = ["Gradients", "Graphed", "command_buffer_options", "graphed"]
