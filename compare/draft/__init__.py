"""A first draft of a port: the source of an eager model, transcribed to `graphmode.nn` and JAX."""

from .page import Draft, draft, written_to

__all__ = ["Draft", "draft", "written_to"]
