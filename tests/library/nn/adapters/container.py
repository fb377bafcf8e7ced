"""Adapters of this room."""

from .base import Adapter

ADAPTERS: dict[str, Adapter] = {}
FUNCTION_ADAPTERS: dict[str, Adapter] = {}
