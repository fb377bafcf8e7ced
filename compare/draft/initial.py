"""What code does to modules that were made: it sets initial values, which a port leaves out, or more, which it has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import torch

from .model import is_self
from .reading import tree_of

WALKS = frozenset(["modules", "named_modules", "parameters", "named_parameters", "children", "named_children"])
# attributes that hold values, or say how a tensor is trained or where a result goes
_OF_VALUES = frozenset(["weight", "bias", "data", "grad", "requires_grad", "inplace"])

_INITIALISERS = frozenset(name for name in dir(torch.nn.init) if re.search("[a-z]_$", name))


def is_walk(node: ast.AST) -> bool:
    """Whether it is a loop over the modules or parameters of one."""
    over = node.iter.func if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) else None
    return isinstance(over, ast.Attribute) and over.attr in WALKS


def sets_more(node: ast.AST) -> bool:
    """Whether a walk in it gives modules attributes besides their values, as `m.eps = 1e-3` does."""
    walks = [each for each in ast.walk(node) if is_walk(each)]
    of_parameters = [each for each in walks if "parameters" in ast.unparse(each.iter)]  # type: ignore[attr-defined]
    marks = {id(each) for walk in of_parameters for each in ast.walk(walk)}
    return any(_is_setting(each) for walk in walks for each in ast.walk(walk) if id(each) not in marks)


def applied_sets_more(function: Any) -> bool:
    """Whether a function for `Module.apply` gives each module attributes besides its values."""
    try:
        tree = tree_of(function)
    except (OSError, TypeError, SyntaxError):
        return False
    settings = [each for each in ast.walk(tree) if _is_setting(each)]
    return any(not isinstance(each, ast.Attribute) or not is_self(each.value) for each in settings)


def is_no_grad(node: ast.With) -> bool:
    """Whether it is `with torch.no_grad():`."""
    return any("no_grad" in ast.unparse(item.context_expr) for item in node.items)


def sets_own(node: ast.AST) -> bool:
    """Whether it gives a module an attribute, a buffer or a parameter."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_self(node.func.value):
        return node.func.attr in ("register_buffer", "register_parameter", "add_module", "register_module")
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value)


def _is_setting(node: ast.AST) -> bool:
    """Whether it gives something that has a name an attribute."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
        name = node.args[1] if len(node.args) > 1 else None
        return not isinstance(name, ast.Constant) or name.value not in _OF_VALUES
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
        return False
    return isinstance(node.value, ast.Name) and not _holds_value(node)


def _holds_value(target: ast.Attribute) -> bool:
    return target.attr in _OF_VALUES or re.search("weight|bias", target.attr) is not None


def only_sets_values(method: ast.AST) -> bool:
    """Whether all that a method does is to compute values and to write them into modules inside."""
    functions = [node for node in ast.walk(method) if isinstance(node, ast.FunctionDef)]
    if len(functions) != 1:
        return False
    left = [each for each in _statements(functions[0].body) if not isinstance(each, ast.For | ast.If | ast.Pass)]
    written = [each for each in left if not _is_local(each)]
    return bool(written) and all(map(_writes_values, written))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        is_block = isinstance(node, ast.With) and "no_grad" in ast.unparse(node.items[0])
        if not is_block:
            yield node
        for name in ("body", "orelse") if is_block or isinstance(node, ast.For | ast.If) else ():
            yield from _statements(getattr(node, name, []))


def _is_local(node: ast.stmt) -> bool:
    """Whether it is a text, or only gives names to values."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    targets = node.targets if isinstance(node, ast.Assign) else []
    names = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return bool(names) and all(isinstance(each, ast.Name) for each in names)


def _writes_values(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = ast.unparse(node.value.func)
        name = function.rpartition(".")[2]
        return name in _INITIALISERS or re.search(r"(weight|bias|data)\b.*[a-z]_$", function) is not None
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return isinstance(node, ast.Assign | ast.AugAssign) and all(map(_is_value_inside, targets))


def _is_value_inside(target: ast.expr | None) -> bool:
    """Whether it is a parameter of a module inside, or the data of one, or a part of that."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute) and not is_self(target.value) and _holds_value(target)
