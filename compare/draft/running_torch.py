"""What runs PyTorch though it is no module: helper classes, functions, and objects that a file keeps."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import torch

from .huggingface import is_framework
from .names import Scope, are_near, is_of_torch
from .reading import tree_of

_WITHOUT = frozenset(["builtins", "numpy", "jax", "flax", "einops", "typing_extensions", "transformers", "graphmode"])
_MANY = 100  # elements of a container that are looked at


def runs_torch(found: Any) -> bool:
    """Whether an object is PyTorch's, holds such, or is a class or function whose code names PyTorch."""
    if isinstance(found, torch.nn.Module | torch.Tensor):
        return True
    if isinstance(found, ModuleType | torch.dtype | torch.device):
        return False
    if is_of_torch(found):
        return True
    if isinstance(found, type | FunctionType):
        return _code_runs_torch(found)
    if isinstance(found, partial):
        return any(map(runs_torch, [found.func, *found.args, *found.keywords.values()]))
    if type(found) in (dict, list, tuple, set, frozenset):
        return any(map(runs_torch, list(found.values() if isinstance(found, dict) else found)[:_MANY]))
    return is_of_torch(type(found)) or _code_runs_torch(type(found))


def helper_class(found: Any) -> bool:
    """Whether it is a user's class that is no module, and runs PyTorch."""
    is_plain = isinstance(found, type) and not issubclass(found, torch.nn.Module | torch.autograd.Function)
    return is_plain and not is_of_torch(found) and _code_runs_torch(found)


def _code_runs_torch(item: type | FunctionType) -> bool:
    return any(is_of_torch(each) for each in _reached(item))


@functools.cache
def _reached(item: type | FunctionType) -> tuple[Any, ...]:
    """What the code of a class or function names, and the code that it names, of its own package."""
    waiting, found = [item], dict[int, Any]()
    while waiting:
        for each in _named(waiting.pop()):
            if id(each) not in found:
                found[id(each)] = each
                is_code = isinstance(each, type | FunctionType) and not is_of_torch(each)
                if is_code and are_near(each.__module__, item.__module__):
                    waiting.append(each)
    return tuple(found.values())


def _named(item: type | FunctionType) -> Iterator[Any]:
    top = str(item.__module__).split(".")[0]
    if top in _WITHOUT or top in sys.stdlib_module_names or is_framework(item):
        return
    try:
        tree = tree_of(item)
    except (OSError, TypeError, SyntaxError):
        return
    outer = item.__globals__ if isinstance(item, FunctionType) else vars(sys.modules[item.__module__])
    yield from _without_annotations(tree, Scope(outer))


def _without_annotations(node: ast.AST, scope: Scope) -> Iterator[Any]:
    if isinstance(node, ast.Attribute | ast.Name):
        yield scope.find(node)
        if isinstance(node, ast.Attribute) and not isinstance(scope.find(node), ModuleType):
            yield from _without_annotations(node.value, scope)
        return
    inner = scope.within(node) if isinstance(node, ast.FunctionDef | ast.Lambda) else scope
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    yield from _without_annotations(each, inner if name == "body" else scope)
