"""How a class or function here is called where it is not called as PyTorch's: one table a room, joined here."""

from . import (
    activation,
    attention,
    container,
    conv,
    distance,
    dropout,
    embedding,
    linear,
    loss,
    norm,
    padding,
    pooling,
    recurrent,
    resize,
    shape,
)
from .base import PLAIN, Adapter

_ROOMS = (
    activation,
    attention,
    container,
    conv,
    distance,
    dropout,
    embedding,
    linear,
    loss,
    norm,
    padding,
    pooling,
    recurrent,
    resize,
    shape,
)

ADAPTERS: dict[str, Adapter] = {name: one for room in _ROOMS for name, one in room.ADAPTERS.items()}
FUNCTION_ADAPTERS: dict[str, Adapter] = {name: one for room in _ROOMS for name, one in room.FUNCTION_ADAPTERS.items()}

__all__ = ["ADAPTERS", "FUNCTION_ADAPTERS", "PLAIN", "Adapter"]
