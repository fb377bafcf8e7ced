"""Adapters of this room."""

from .base import Adapter, spatial

_KINDS = ("Circular", "Constant", "Reflection", "Replication", "Zero")

ADAPTERS: dict[str, Adapter] = {f"{kind}Pad{rank}d": spatial(rank) for kind in _KINDS for rank in (1, 2, 3)}
FUNCTION_ADAPTERS: dict[str, Adapter] = {}
