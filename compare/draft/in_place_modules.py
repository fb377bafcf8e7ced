"""Modules that write into what they are given, as `ReLU(inplace=True)` does: what reads it after that reads it so."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import torch

_FUNCTIONS: dict[type[torch.nn.Module], tuple[str, ...]] = {  # by class, and its settings in the function's order
    torch.nn.ReLU: ("relu",),
    torch.nn.ReLU6: ("relu6",),
    torch.nn.LeakyReLU: ("leaky_relu", "negative_slope"),
    torch.nn.ELU: ("elu", "alpha"),
    torch.nn.CELU: ("celu", "alpha"),
    torch.nn.SELU: ("selu",),
    torch.nn.SiLU: ("silu",),
    torch.nn.Mish: ("mish",),
    torch.nn.Hardswish: ("hardswish",),
    torch.nn.Hardsigmoid: ("hardsigmoid",),
    torch.nn.Hardtanh: ("hardtanh", "min_val", "max_val"),
}
_PASS_ON = (torch.nn.Identity, torch.nn.modules.dropout._DropoutNd)


def written_by(module: torch.nn.Module | None) -> str:
    """`nn.functional.leaky_relu({}, 0.2)`: what a module, or the first in it, writes into what it is given; empty where
    it writes nothing."""
    while isinstance(module, torch.nn.Sequential):
        module = next((each for each in module if not isinstance(each, _PASS_ON)), None)
    if module is None or not getattr(module, "inplace", False) or type(module) not in _FUNCTIONS:
        return ""
    name, *settings = _FUNCTIONS[type(module)]
    return f"nn.functional.{name}({', '.join(['{}', *(repr(getattr(module, each)) for each in settings)])})"


def read_after(function: ast.FunctionDef, statement: ast.stmt, call: ast.Call, name: str) -> list[ast.Name]:
    """Where what has a name is read, under this or another name, once a call has written into it: in the statement and
    in those after it in its block.

    Args:
      function: whose code it is.
      statement: that the call is in, a simple one.
      call: that is given the name.
      name: of what it writes into.
    """
    inside = {id(each) for each in ast.walk(call)}
    names = _names_of_one(function, statement, name)
    until = {each: _bound_next(function, statement, each) for each in names}
    block = next((each for each in _blocks(function) if statement in each), [statement])
    after = [] if isinstance(statement, ast.Return) else block[block.index(statement) + 1 :]
    nodes = (node for each in (statement, *after) for node in ast.walk(each))
    loads = (each for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
    return [
        each
        for each in loads
        if each.id in names and id(each) not in inside and statement.lineno <= each.lineno <= until[each.id]
    ]


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for each in ast.walk(node):
        yield from (
            block for name in ("body", "orelse", "finalbody") if isinstance(block := getattr(each, name, 0), list)
        )


def _bindings(function: ast.FunctionDef) -> Iterator[tuple[ast.stmt, str, ast.expr | None]]:
    """The statements that give local names, in order, and what, if it is no part of something."""
    found: list[tuple[ast.stmt, str, ast.expr | None]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                value = node.value if isinstance(target, ast.Name) else None
                names = (each for each in ast.walk(target) if isinstance(each, ast.Name))
                found += [(node, each.id, value) for each in names if isinstance(each.ctx, ast.Store)]
        if isinstance(node, ast.For):
            found += [(node, each.id, None) for each in ast.walk(node.target) if isinstance(each, ast.Name)]
    return iter(sorted(found, key=lambda each: each[0].lineno))


def _names_of_one(function: ast.FunctionDef, statement: ast.stmt, name: str) -> set[str]:
    """The names of what has one name before a statement."""
    held: dict[str, object] = {}
    for node, target, value in _bindings(function):
        if node.lineno >= statement.lineno:
            break
        is_same = isinstance(value, ast.Name)
        held[target] = held.setdefault(value.id, object()) if is_same else object()  # type: ignore[union-attr]
    this = held.setdefault(name, object())
    return {each for each, one in held.items() if one is this}


def _bound_next(function: ast.FunctionDef, statement: ast.stmt, name: str) -> float:
    """The line in which a name is given something else, from a statement on."""
    lines = (
        node.lineno for node, target, _ in _bindings(function) if target == name and node.lineno >= statement.lineno
    )
    return next(lines, float("inf"))
