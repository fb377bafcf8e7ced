"""Adapters of this room."""

from dataclasses import replace

from .base import Adapter, spatial

_KINDS = ("Circular", "Constant", "Reflection", "Replication", "Zero")

ADAPTERS: dict[str, Adapter] = {
    f"{kind}Pad{rank}d": replace(spatial(rank), compiled=True) for kind in _KINDS for rank in (1, 2, 3)
}
FUNCTION_ADAPTERS: dict[str, Adapter] = {}
