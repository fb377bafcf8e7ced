"""The functional forms of this room."""

from .pad import pad

__all__: list[str] = ["pad"]
