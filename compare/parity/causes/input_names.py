"""What a module of the reference calls its inputs."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable

import torch


def input_words(module: torch.nn.Module, names: Iterable[str]) -> dict[str, str]:
    """By an input's place among what `forward` is given: `"its input 4 (edge_mask)"`, or `"its input"` of one alone."""
    names = list(names)
    if len(names) == 1:
        return {names[0]: "its input"}
    called: list[str] = []
    with contextlib.suppress(TypeError, ValueError):  # of a forward that is not Python's
        takes = inspect.signature(module.forward).parameters.values()
        called = [each.name for each in takes if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return {name: f"its input {name}{_in_brackets(name, called)}" for name in names}


def _in_brackets(name: str, called: list[str]) -> str:
    place, _, below = name.partition(".")
    if not place.isdecimal() or int(place) >= len(called):
        return ""
    return f" ({called[int(place)]}{'.' * bool(below)}{below})"
