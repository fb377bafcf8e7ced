"""The classes and functions that a model is made of, where their source is, and what of it a port needs."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from ..case import CaseError
from .model import Model, is_module
from .names import Scope, is_of_torch, torch_name
from .spans import Spans

Written = type | FunctionType


@dataclass(frozen=True)
class Part:
    """A class or function of the model.

    Attributes:
      item: itself.
      node: its source.
      spans: the text of its file.
      scope: the names of its module.
      home: the name of that module.
      kept: of a class, the methods that a port needs.
    """

    item: Written
    node: ast.stmt
    spans: Spans
    scope: Scope
    home: str
    kept: frozenset[str] = frozenset()


def parts_of(build: Any, module: torch.nn.Module) -> tuple[Model, list[Part]]:
    """What is drafted, in an order in which Python can read it.

    Args:
      build: the class, or the function, that gives the model.
      module: that it gave.

    Raises:
      CaseError: where there is no source.
    """
    model = Model()
    for inside in module.modules():
        for cls in _own_classes(type(inside)):
            model.classes.setdefault(cls, cls.__name__)
            held = {**inside._parameters, **inside._buffers}
            model.variables.setdefault(cls, set()).update(name for name, value in held.items() if value is not None)
            model.absent.setdefault(cls, set()).update(name for name, value in held.items() if value is None)
            model.transient.setdefault(cls, set()).update(inside._non_persistent_buffers_set)
            model.children.setdefault(cls, {}).update((name, type(child)) for name, child in inside._modules.items())
    for cls, absent in model.absent.items():
        model.variables[cls] -= absent
    if not model.classes and (is_of_torch(build) or not isinstance(build, FunctionType)):
        raise CaseError(f"the model is PyTorch's own {type(module).__name__}: write gm.nn.{type(module).__name__}")
    parts: list[Part] = []
    while new := [cls for cls in model.classes if all(part.item is not cls for part in parts)]:
        parts += map(_part, new)
        for cls in (each for part in parts for each in _named_classes(part)):
            model.classes.setdefault(cls, cls.__name__)
    parts = [replace(part, kept=_kept_by_all(part, parts)) for part in parts]
    waiting: list[Written] = [build] if isinstance(build, FunctionType) else []
    for part in parts:
        waiting += _functions(part)
    functions: list[Part] = []
    while waiting:
        item = waiting.pop(0)
        if all(part.item is not item for part in functions):
            part = _part(item)
            functions.append(part)
            model.functions[item] = item.__name__
            waiting += _functions(part)
    model.builders |= _builders(model, [*parts, *functions])
    parts.sort(key=lambda part: (len(part.item.__mro__), part.home, part.node.lineno))  # type: ignore[union-attr]
    return model, [*sorted(functions, key=lambda part: (part.home, part.node.lineno)), *_bases_first(parts)]


def _own_classes(cls: type) -> Iterator[type]:
    for each in cls.__mro__:
        if issubclass(each, torch.nn.Module) and not is_of_torch(each):
            yield each


def _bases_first(parts: list[Part]) -> list[Part]:
    """In the order of the files, but no class before one that it is derived from."""
    left = sorted(parts, key=lambda part: (part.home, part.node.lineno))
    ordered: list[Part] = []
    while left:
        there = {part.item for part in ordered}
        waiting = {part.item for part in left}
        free = next(p for p in left if not any(base in waiting - {p.item} - there for base in p.item.__mro__))  # type: ignore[union-attr]
        ordered.append(free)
        left.remove(free)
    return ordered


def _part(item: Written) -> Part:
    try:
        file = inspect.getsourcefile(item)
        line = inspect.getsourcelines(item)[1]
        text = Path(file or "").read_text()
    except (OSError, TypeError) as error:
        raise CaseError(
            f"the source of {item.__qualname__} is not to be had ({error}); draft what is in a file"
        ) from error
    nodes = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and node.name == item.__name__
        and min([node.lineno, *(each.lineno for each in node.decorator_list)]) == max(line, 1)
    ]
    if not nodes:
        raise CaseError(
            f"{item.__qualname__} is not written as a class or def in {Path(file or '').name}; draft what is"
        )
    methods = [item] if isinstance(item, FunctionType) else vars(item).values()
    functions = (each for each in methods if isinstance(each, FunctionType))
    outer = next((each.__globals__ for each in functions), None) or vars(sys.modules[item.__module__])
    kept = _kept(item) if isinstance(item, type) else frozenset()
    return Part(item, nodes[0], Spans(text), Scope(outer), item.__module__, kept)


def _kept(cls: type) -> frozenset[str]:
    """The methods that running the model takes, and making it."""
    methods = {}
    for base in reversed(list(_own_classes(cls))):
        for name, each in vars(base).items():
            function = getattr(each, "__func__", getattr(each, "fget", each))
            if isinstance(function, FunctionType):
                methods[name] = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found: set[str] = set()
    waiting = ["forward", "__init__"]
    while waiting:
        name = waiting.pop()
        if name in found or name not in methods or _sets_initial_values(methods[name], name):
            continue
        found.add(name)
        waiting += [n.attr for n in ast.walk(methods[name]) if isinstance(n, ast.Attribute)]
    return frozenset(found)


def _sets_initial_values(method: ast.AST, name: str) -> bool:
    if name in ("reset_parameters", "_reset_parameters", "init_weights", "_init_weights", "initialize_weights"):
        return True
    calls = [ast.unparse(node.func) for node in ast.walk(method) if isinstance(node, ast.Call)]
    return name != "__init__" and any("init." in each for each in calls)


def _named_classes(part: Part) -> list[type]:
    """The modules of the user's that a part names, and no model need have made."""
    found = (part.scope.find(node) for node in ast.walk(part.node) if isinstance(node, ast.Name | ast.Attribute))
    return [each for each in found if is_module(each) and not is_of_torch(each)]


def _kept_by_all(part: Part, parts: list[Part]) -> frozenset[str]:
    """The methods that a class needs for itself, or for one that is derived from it."""
    derived = (each.kept for each in parts if isinstance(part.item, type) and issubclass(each.item, part.item))  # type: ignore[arg-type]
    return frozenset().union(*derived)


def _functions(part: Part) -> list[Written]:
    """The functions of the user's that a part calls by name."""
    found: list[Written] = []
    for node in ast.walk(part.node):
        if isinstance(node, ast.Name | ast.Attribute):
            item = part.scope.find(node)
            if isinstance(item, FunctionType) and not is_of_torch(item) and _is_near(item, part):
                found.append(item)
    return found


def _is_near(item: FunctionType, part: Part) -> bool:
    return item.__module__.split(".")[0] == part.home.split(".")[0]


def _builders(model: Model, parts: list[Part]) -> set[str]:
    """The names of methods and functions that make modules, or call one that does."""
    bodies: dict[str, list[tuple[Scope, ast.AST]]] = {}
    for part in parts:
        nodes = part.node.body if isinstance(part.node, ast.ClassDef) else [part.node]
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and node.name not in ("__init__", "forward"):
                bodies.setdefault(node.name, []).append((part.scope.within(node), node))
    found: set[str] = set()
    while True:
        new = {name for name, each in bodies.items() if name not in found and any(_makes(*one, found) for one in each)}
        if not new:
            return found
        found |= new


def _makes(scope: Scope, function: ast.AST, builders: set[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            item = scope.find(node.func)
            if is_module(item):
                return True
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in builders and torch_name(item) is None:
                return True
    return False
