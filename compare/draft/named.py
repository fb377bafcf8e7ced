"""What the code of a class or function names, and calls, of the user's."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from types import FunctionType
from typing import Any

import torch

from .huggingface import is_framework
from .kept import own_classes
from .model import Model, holds_code, is_function_of_gradients, is_module, is_of_others, is_registry, is_result
from .names import Scope, are_near, is_of_einops, is_of_torch
from .part import Part, Written, part_or_none
from .recording import Recording
from .running_torch import helper_class, runs_torch
from .settled import only_reports


def of_alias(found: Any) -> list[Any]:
    """An object and, of a partial, what it calls; of the `apply` of an autograd function, that."""
    holder = getattr(found, "__self__", None)
    if is_function_of_gradients(holder):
        return [holder]
    if holds_code(found):
        values = found.values() if isinstance(found, dict) else found
        return [each for value in values for each in of_alias(value)]
    if isinstance(found, partial):
        inner = [found.func, *found.args, *found.keywords.values()]
        return [found, *(each for value in inner for each in of_alias(value))]
    if isinstance(found, torch.nn.Module):
        return [found, *dict.fromkeys(each for inside in found.modules() for each in own_classes(type(inside)))]
    return [found, type(found)] if helper_class(type(found)) or is_registry(found) else [found]


def named_classes(part: Part) -> list[type]:
    """The modules of the user's that a part names, and no model need have made, and classes that name such."""
    results, named = _results(part), list(_all_named(part))
    results += [type(each) for each in named if is_registry(each) and is_near(type(each), part)]
    return [
        each
        for each in named
        if _is_users_module(each) or _is_of_modules(each) or _is_helper(each, part) or each in results
    ]


def _is_helper(found: Any, part: Part) -> bool:
    """Whether it is a class of the part's package that is no module, runs PyTorch, and is in a file."""
    return helper_class(found) and is_near(found, part) and part_or_none(found) is not None


def _results(part: Part) -> list[type]:
    """The user's dataclasses that the methods of a module give, and what they are derived from."""
    if not is_module(part.item):
        return []
    body = part.node.body if isinstance(part.node, ast.ClassDef) else []
    methods = [each for each in body if isinstance(each, ast.FunctionDef) and each.name != "__init__"]
    calls = (node for each in methods for node in ast.walk(each) if isinstance(node, ast.Call))
    found = [item for item in (part.scope.find(call.func) for call in calls) if is_result(item)]
    return [base for item in found for base in item.__mro__ if is_result(base)]


def _all_named(part: Part) -> Iterator[Any]:
    return (each for item in _found_in(part.node, part.scope) for each in of_alias(item))


def _found_in(node: ast.AST, scope: Scope, kept: frozenset[str] | None = None) -> Iterator[Any]:
    """What the names in code stand for, each where it is; of a class, where methods are kept, in these alone."""
    if isinstance(node, ast.Name | ast.Attribute):
        yield scope.find(node)
    for child in ast.iter_child_nodes(node):
        if kept is not None and isinstance(child, ast.FunctionDef) and child.name not in kept:
            continue
        is_inside = isinstance(node, ast.FunctionDef) and child in node.body
        yield from _found_in(child, scope.within(node) if is_inside else scope)


def _is_users_module(found: Any) -> bool:
    is_users = is_module(found) and not is_of_torch(found) and not is_framework(found) and not is_of_einops(found)
    return is_users or is_function_of_gradients(found)


def _is_of_modules(found: Any) -> bool:
    """Whether it is a class that is no module, and names modules of the user's, as one of settings may."""
    if not isinstance(found, type) or is_module(found) or is_of_torch(found) or found.__module__ == "builtins":
        return False
    if found.__module__.split(".")[0] in sys.stdlib_module_names or is_framework(found):
        return False
    part = part_or_none(found)
    return part is not None and any(map(_is_users_module, _all_named(part)))


def functions_of(part: Part, model: Model) -> list[Written]:
    """The functions of the user's that a part calls by name, and those of others that compute with PyTorch."""
    found: list[Written] = []
    inside = _found_in(part.node, part.scope, part.kept if is_module(part.item) else None)
    for item in (each for named in inside for each in of_alias(named)):
        is_users = isinstance(item, FunctionType) and not is_of_torch(item) and not is_framework(item)
        is_users = is_users and (is_near(item, part) or _computes(item, model))
        is_users = is_users and "." not in item.__qualname__.replace("<locals>.", "")  # a method comes with its class
        if is_users and item not in found and not only_reports(item):
            found.append(item)
    return found


def _computes(item: FunctionType, model: Model) -> bool:
    """Whether a function runs PyTorch, and gave no module while the original was built."""
    return runs_torch(item) and all(by is not item.__code__ for made in model.recording.made.values() for by, _ in made)


def is_near(item: Written, part: Part) -> bool:
    return are_near(item.__module__, part.home)


def classes_of_calls(parts: Iterable[Part], model: Model) -> list[type]:
    """The classes of what functions of others gave to the parts while the original was built."""
    found: list[type] = []
    for part in parts:
        for node in ast.walk(part.node):
            if isinstance(node, ast.Call) and is_of_others(part.scope.find(node.func), model):
                for _, module in model.recording.at(part.spans.file, node):
                    _collect(module, model.recording, found)
    return found


def _collect(value: Any, recording: Recording, found: list[type]) -> None:
    """The classes of the user's that an object was made of."""
    if isinstance(value, list | tuple | set):
        for each in value:
            _collect(each, recording, found)
    elif isinstance(value, dict):
        _collect(list(value.values()), recording, found)
    elif isinstance(value, partial):
        _collect([value.func, *value.args, *value.keywords.values()], recording, found)
    elif is_module(value):
        found += [each for each in own_classes(value) if each not in found]
    elif id(value) in recording.arguments:
        _collect(type(value), recording, found)
        if _is_of_modules(type(value)) and type(value) not in found:
            found.append(type(value))
        _collect(recording.arguments[id(value)][1], recording, found)


def taken_when_read(part: Part) -> set[Any]:
    """The classes and functions that a definition takes: bases, decorators, defaults, values of a class."""
    node: Any = part.node
    taken: list[ast.AST] = [*node.decorator_list]
    if isinstance(node, ast.ClassDef):
        taken += [*node.bases, *(each for each in node.body if not isinstance(each, ast.FunctionDef))]
    inside = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef)]
    for each in inside if isinstance(node, ast.ClassDef) else [node]:
        taken += [*each.args.defaults, *filter(None, each.args.kw_defaults)]
    names = (name for each in taken for name in ast.walk(each) if isinstance(name, ast.Name | ast.Attribute))
    found = (of_alias(part.scope.find(name)) for name in names)
    return {each for item in found for each in item if isinstance(each, type | FunctionType)}
