"""The classes and functions that a model is made of, in an order in which Python can read them."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch

from ..case import CaseError
from .builders import builders_in
from .draws import drawers
from .kept import all_keeping
from .known import add_lists, add_variables, known_of
from .model import Model
from .named import classes_of_calls, functions_of, named_classes, taken_when_read
from .names import is_of_torch
from .part import Part, part_of, part_or_none
from .recording import Recording


def parts_of(build: Any, module: torch.nn.Module, recording: Recording) -> tuple[Model, list[Part]]:
    """What is drafted, in an order in which Python can read it.

    Args:
      build: the class, or the function, that gives the model.
      module: that it gave.
      recording: of what ran meanwhile.

    Raises:
      CaseError: where there is no source.
    """
    model = known_of(module, recording)
    if not model.classes and (is_of_torch(build) or not isinstance(build, FunctionType)):
        raise CaseError(f"the model is PyTorch's own {type(module).__name__}: write gm.nn.{type(module).__name__}")
    functions = [part_of(build)] if isinstance(build, FunctionType) else []
    parts: list[Part] = []
    while True:
        for cls in classes_of_calls([*parts, *functions], model):
            model.add(cls, cls.__name__)
        for cls in (each for part in [*parts, *functions] for each in named_classes(part)):
            model.add(cls, cls.__name__)
        new = [cls for cls in model.classes if all(part.item is not cls for part in parts)]
        parts = all_keeping([*parts, *map(part_of, new)], functions)
        called = _called_functions(parts, functions, model)
        if not new and len(called) == len(functions):
            break
        functions = called
        for part in functions:
            model.add(part.item, part.name)
    for part in parts:
        add_variables(part, model)
    add_lists(parts, model)
    every = [*parts, *functions]
    model.builders |= builders_in(model, every)
    model.builders |= {model.name_of(part.item, part.name) for part in functions if part.name in model.builders}
    drawing = drawers(every)
    model.drawers |= {part.item for part in every if part.item in drawing and part.name not in model.builders}
    return model, _in_order([*functions, *parts])


def _called_functions(parts: list[Part], functions: list[Part], model: Model) -> list[Part]:
    """The functions, with those that the parts call, and these in turn."""
    found = list(functions)
    waiting = [each for part in (*parts, *found) for each in functions_of(part, model)]
    while waiting:
        item = waiting.pop(0)
        if all(part.item is not item for part in found) and (part := part_or_none(item)) is not None:
            found.append(part)
            waiting += functions_of(part, model)
    return found


def _in_order(parts: list[Part]) -> list[Part]:
    """Functions, then classes, in the order of the files, but none before what it takes when Python reads it."""
    left = sorted(parts, key=lambda part: (isinstance(part.item, type), part.home, part.node.lineno))
    taken = {part.item: taken_when_read(part) for part in parts}
    ordered: list[Part] = []
    while left:
        waiting = {part.item for part in left}
        free = next((part for part in left if not taken[part.item] & waiting - {part.item}), left[0])
        ordered.append(free)
        left.remove(free)
    return ordered
