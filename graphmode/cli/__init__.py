"""The `graphmode` command. The wings are imported when a command needs them."""

from .commands import app, main

__all__ = ["app", "main"]
