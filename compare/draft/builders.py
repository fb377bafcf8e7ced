"""The methods and functions that make modules."""

from __future__ import annotations

import ast
import copy

import torch

from graphmode import nn

from .known_objects import takes_rngs
from .model import Model, is_module, is_of_others
from .names import UNKNOWN, is_of_torch, torch_name
from .part import Part

# a function that calls these alone, as one that copies a layer, makes nothing that draws its first values
_WITHOUT_RNGS = (torch.nn.ModuleList, torch.nn.Sequential, copy.deepcopy, range, len, enumerate)


def builders_in(model: Model, parts: list[Part]) -> set[str]:
    """The names of methods and functions that make modules, or call one that does."""
    bodies: dict[str, list[tuple[Part, ast.FunctionDef]]] = {}
    for part in parts:
        nodes = part.node.body if isinstance(part.node, ast.ClassDef) else [part.node]
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and node.name not in ("__init__", "forward"):
                bodies.setdefault(node.name, []).append((part, node))
    found: set[str] = set()
    while True:
        left = {name: each for name, each in bodies.items() if name not in found}
        new = {name for name, each in left.items() if any(_makes(*one, found, model) for one in each)}
        if not new:
            return found
        found |= new


def _makes(part: Part, function: ast.FunctionDef, builders: set[str], model: Model) -> bool:
    scope = part.scope.within(function)
    called = [scope.find(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)]
    if all(any(each is known for known in _WITHOUT_RNGS) for each in called):
        return False
    used = [id(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)]
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            item = scope.find(node.func)
            if id(node) in used and _draws_nothing(item):  # as nn.MaxPool1d(2)(x) of what runs
                continue
            made = model.recording.at(part.spans.file, node)
            if is_module(item) or (is_of_others(item, model) and made):
                return True
            if item is UNKNOWN and any(isinstance(by, type) or by.co_name in builders for by, _ in made):
                return True
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in builders and torch_name(item) is None:
                return True
    return False


def _draws_nothing(item: object) -> bool:
    """Whether it is a layer of PyTorch's whose counterpart is made without random numbers."""
    try:
        ours = getattr(nn, item.__name__) if isinstance(item, type) and is_of_torch(item) else None
    except AttributeError:  # refused
        return False
    return isinstance(ours, type) and not takes_rngs(ours.__init__)  # type: ignore[misc]
