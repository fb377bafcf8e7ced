"""The functional forms of this room."""

from .flatten import flatten, unflatten
from .shuffle import channel_shuffle, pixel_shuffle, pixel_unshuffle

__all__: list[str] = ["channel_shuffle", "flatten", "pixel_shuffle", "pixel_unshuffle", "unflatten"]
