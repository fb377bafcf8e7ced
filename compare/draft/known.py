"""What the modules tell that were made, and the code of those that were not."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from .arguments import handed_lists
from .in_place_modules import written_by
from .kept import own_classes
from .kinds import kind_of_value
from .model import Model, is_module, is_self, layer_of
from .part import Part
from .recording import Recording
from .shared import shares_of
from .ties import ties_of


def known_of(module: torch.nn.Module, recording: Recording) -> Model:
    """What the modules tell that were made: those that the model is of, and those that it was made from."""
    model = Model(recording=recording, ties=ties_of(module), kinds={type(each) for each in module.modules()})
    for cls in (each for inside in module.modules() for each in own_classes(type(inside))):
        model.add(cls, cls.__name__)
    model.shares = shares_of(module, set(model.classes))
    made = [each for each, _ in recording.arguments.values() if isinstance(each, torch.nn.Module)]
    for inside in dict.fromkeys([*module.modules(), *made]):
        for cls in own_classes(type(inside)):
            model.examples.setdefault(cls, inside)
            held = {**inside._parameters, **inside._buffers}
            model.variables.setdefault(cls, set()).update(name for name, value in held.items() if value is not None)
            model.buffers.setdefault(cls, set()).update(inside._buffers)
            model.absent.setdefault(cls, set()).update(name for name, value in held.items() if value is None)
            model.transient.setdefault(cls, set()).update(inside._non_persistent_buffers_set)
            settings = model.settings.setdefault(cls, {})
            kinds = {name: kind_of_value(value) for name, value in vars(inside).items()}
            settings |= {name: kind if settings.get(name, kind) is kind else None for name, kind in kinds.items()}
            model.arrays.setdefault(cls, set()).update(
                name for name, value in vars(inside).items() if _is_of_tensors(value)
            )
            model.children.setdefault(cls, {}).update((name, type(child)) for name, child in inside._modules.items())
            for name, child in inside._modules.items():
                if child is not None:
                    model.instances.setdefault((cls, name), child)
                    model.writing.setdefault((cls, name), set()).add(written_by(child))
    for inside in dict.fromkeys([*module.modules(), *made]):
        for cls in own_classes(type(inside)):  # as self.bias = nn.Parameter(...) if it has one else None
            lacking = {name for name in model.variables[cls] if vars(inside).get(name, inside) is None}
            model.absent[cls] |= lacking
    for cls, absent in model.absent.items():
        model.variables[cls] -= absent
    return model


def add_variables(part: Part, model: Model) -> None:
    """Of a class of which nothing was made, the parameters and buffers that its code names, and its layer's."""
    if not is_module(part.item) or part.item in model.variables:
        return
    found = {"weight"} if layer_of(part.item) is not None else set()  # type: ignore[arg-type]
    for node in ast.walk(part.node):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("register_buffer", "register_parameter"):
            found |= {each.value for each in node.args[:1] if isinstance(each, ast.Constant)}  # type: ignore[misc]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = part.scope.find(node.value.func)
            if isinstance(made, type) and issubclass(made, torch.nn.Parameter):
                found |= {each.attr for each in node.targets if isinstance(each, ast.Attribute) and is_self(each.value)}
    model.variables[part.item] = found  # type: ignore[index]


def _is_of_tensors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is torch.Tensor for each in value)


def add_lists(parts: list[Part], model: Model) -> None:
    """The arguments that are lists, and those that hand them on."""
    found: set[tuple[type, str]] = set()
    while new := {each for part in parts for each in _handed_lists(part, model)} - found:
        found |= new
        for cls, name in new:
            model.lists.setdefault(cls, set()).add(name)


def _handed_lists(part: Part, model: Model) -> Iterator[tuple[type, str]]:
    """The modules inside that a class gives lists, and as which arguments of `forward`."""
    cls: Any = part.item
    body = part.node.body if isinstance(part.node, ast.ClassDef) else []
    for method in (each for each in body if isinstance(each, ast.FunctionDef)):
        own = model.lists.get(cls, set()) if method.name == "forward" else set()
        for name, place in handed_lists(method, part.scope.within(method), own):
            kind: Any = model.children.get(cls, {}).get(name)
            if kind in model.classes:
                names = [*inspect.signature(kind.forward).parameters][1:]
                taken = names[place : place + 1] if isinstance(place, int) else [place]
                yield from ((kind, each) for each in taken)
