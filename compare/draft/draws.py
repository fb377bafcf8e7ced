"""What draws random numbers as it runs, and so wants a stream of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .names import Scope, torch_name

if TYPE_CHECKING:
    from .part import Part

STREAM = "random_stream"  # the attribute of a module, and the argument of a function
# by name below torch
DRAWN = {
    "rand": "jax.random.uniform({key}, {shape}<, {dtype}>)",
    "randn": "jax.random.normal({key}, {shape}<, {dtype}>)",
    "rand_like": "jax.random.uniform({key}, {like}.shape, {like}.dtype)",
    "randn_like": "jax.random.normal({key}, {like}.shape, {like}.dtype)",
    "bernoulli": "jax.random.bernoulli({key}, {like}).astype({like}.dtype)",
}
_METHODS = frozenset(("bernoulli", "bernoulli_", "rsample"))


def drawers(parts: Iterable[Part]) -> set[Any]:
    """The classes and functions that draw, or call a function that does."""
    waiting, found = list(parts), set[Any]()
    while new := {part.item for part in waiting if part.item not in found and _draws(part, found)}:
        found |= new
    return found


def _draws(part: Part, others: set[Any]) -> bool:
    nodes = [part.node]
    if isinstance(part.node, ast.ClassDef):
        inside = [each for each in part.node.body if isinstance(each, ast.FunctionDef)]
        nodes = [each for each in inside if each.name in part.kept and each.name != "__init__"]
    named: list[ast.AST] = [each for node in nodes for each in ast.walk(node)]
    if any(_is_draw(each, part.scope, others) for each in named if isinstance(each, ast.Call)):
        return True
    names = (part.scope.find(each) for each in named if isinstance(each, ast.Name))
    return any(isinstance(found, FunctionType) and found in others for found in names)


def _is_draw(call: ast.Call, scope: Scope, others: set[Any]) -> bool:
    found = scope.find(call.func)
    name = torch_name(found) or ""
    if name in DRAWN or "dropout" in name or (isinstance(found, FunctionType) and found in others):
        return True
    return isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS
