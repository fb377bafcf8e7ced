"""The methods of a class that a port needs."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING

import torch

from .huggingface import is_framework
from .initial import only_sets_values, sets_more, sets_own
from .model import is_mixin, is_module, is_self
from .names import is_of_einops, is_of_torch
from .reading import tree_of

if TYPE_CHECKING:
    from .part import Part


# methods that code calls without their names
_UNNAMED = (
    *("__getattr__", "__getitem__", "__setitem__", "__len__", "__iter__", "__contains__", "__bool__", "__reversed__"),
    *("__enter__", "__exit__", "__add__", "__radd__", "__mul__", "__rmul__", "__matmul__"),
)


def all_keeping(parts: list[Part], functions: list[Part]) -> list[Part]:
    """The classes with the methods that each keeps: for itself, for what is derived from it, for what others name."""
    while True:
        kept = [part.kept for part in parts]
        parts = [replace(part, kept=_kept_by_all(part, parts)) for part in parts]
        named = _named_of_others([*parts, *functions])
        parts = [_keeping(part, named) for part in parts]
        parts = [replace(part, kept=_kept_by_all(part, parts)) for part in parts]
        if [part.kept for part in parts] == kept:
            return parts


def _keeping(part: Part, named: frozenset[str]) -> Part:
    is_own = isinstance(part.item, type) and is_module(part.item)
    return replace(part, kept=kept_methods(part.item, named)) if is_own else part  # type: ignore[arg-type]


def _named_of_others(parts: list[Part]) -> frozenset[str]:
    """The attributes that code which is kept reads of other objects than its own."""
    names: set[str] = set()
    for part in parts:
        body = part.node.body if isinstance(part.node, ast.ClassDef) else [part.node]
        is_function = isinstance(part.node, ast.FunctionDef)
        kept = [each for each in body if isinstance(each, ast.FunctionDef) and (is_function or each.name in part.kept)]
        inside = (node for each in kept for node in ast.walk(each) if isinstance(node, ast.Attribute))
        names |= {node.attr for node in inside if not is_self(node.value)}
    return frozenset(names) - frozenset(dir(torch.nn.Module))


def kept_methods(cls: type, named: frozenset[str] = frozenset()) -> frozenset[str]:
    """The methods that running the model takes, and making it, and those that other code names."""
    methods: dict[str, list[ast.AST]] = {}
    for base in own_classes(cls):
        for name, each in vars(base).items():
            held = (getattr(each, name) for name in ("__func__", "fget", "func") if hasattr(each, name))
            function = inspect.unwrap(next(held, each))
            if isinstance(function, FunctionType):
                methods.setdefault(name, []).append(tree_of(function))
    found: set[str] = set()
    begins = ["forward", *named, *_UNNAMED]
    for waiting, left_out in ((begins, _sets_initial_values), (["__init__"], _is_left_out_of_init)):
        while waiting:
            name = waiting.pop()
            written = methods.get(name, [])
            if name in found or all(left_out(each, name) for each in written):
                continue
            found.add(name)
            waiting += [n.attr for each in written for n in ast.walk(each) if isinstance(n, ast.Attribute)]
    return frozenset(found)


def _is_left_out_of_init(method: ast.AST, name: str) -> bool:
    return _sets_initial_values(method, name) or only_sets_values(method)


def _sets_initial_values(method: ast.AST, name: str) -> bool:
    if sets_more(method):
        return False
    if name in ("reset_parameters", "_reset_parameters", "init_weights", "_init_weights", "initialize_weights"):
        return True
    nodes = list(ast.walk(method))
    if name == "__init__" or any(sets_own(node) for node in nodes):
        return False
    return any("init." in ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call))


def _kept_by_all(part: Part, parts: list[Part]) -> frozenset[str]:
    """The methods that a class needs for itself, or for one that is derived from it."""
    derived = (each.kept for each in parts if isinstance(part.item, type) and issubclass(each.item, part.item))  # type: ignore[arg-type]
    return frozenset().union(*derived)


def own_classes(cls: type) -> Iterator[type]:
    """The user's classes that a class is, or is derived from."""
    for each in cls.__mro__:
        is_own = issubclass(each, torch.nn.Module) and not is_of_torch(each) and not is_framework(each)
        is_own = is_own and not is_of_einops(each)
        if is_own or (is_mixin(each) and is_module(cls)):
            yield each
