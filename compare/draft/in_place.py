"""Functions that write into what they are given: in a port, their caller has to take what they give."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

from .names import is_of_torch


def written_into(function: Any, call: ast.Call, *, bound: bool) -> tuple[list[ast.expr], bool]:
    """The arguments of a call that the function writes into, and whether it gives just the one that it writes into.

    Args:
      function: a function of the user's; of others nothing is known.
      call: of it.
      bound: whether it is called as a method, whose first parameter is the object.
    """
    if not isinstance(function, FunctionType) or is_of_torch(function):
        return [], False
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        return [], False
    if not isinstance(node, ast.FunctionDef):
        return [], False
    parameters = [each.arg for each in (*node.args.posonlyargs, *node.args.args)][bound:]
    names = [name for name in parameters if _is_written(name, node.body)]
    given: dict[str | None, ast.expr] = dict(zip(parameters, call.args, strict=False))
    given |= {each.arg: each.value for each in call.keywords}
    returned = [each.value for each in _inside(node.body) if isinstance(each, ast.Return)]
    gives_it = bool(returned) and all(isinstance(each, ast.Name) and [each.id] == names for each in returned)
    return [given[name] for name in names if name in given], gives_it


def gives_what_it_sets(function: Any) -> bool:
    """Whether a function only writes into the parameters of the module that it is given, and gives that module."""
    if not isinstance(function, FunctionType) or is_of_torch(function):
        return False
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        return False
    if not isinstance(node, ast.FunctionDef) or not node.args.args:
        return False
    first = node.args.args[0].arg
    *before, last = node.body
    is_loop = [
        isinstance(each, ast.For) and "parameters()" in ast.unparse(each.iter)
        for each in before
        if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    ]
    gives_it = isinstance(last, ast.Return) and isinstance(last.value, ast.Name) and last.value.id == first
    return gives_it and bool(is_loop) and all(is_loop)


def _is_written(name: str, body: Sequence[ast.stmt]) -> bool:
    """Whether what a function is given under this name is written into, before the name stands for something else."""
    for node in _inside(body):
        if isinstance(node, ast.AugAssign) and _is_it(node.target, name):
            return True
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
        ):
            method = node.value.func
            if method.attr.endswith("_") and not method.attr.endswith("__") and _is_it(method.value, name):
                return True
        if isinstance(node, ast.Assign):
            if any(isinstance(each, ast.Subscript) and _is_it(each, name) for each in node.targets):
                return True
            if any(isinstance(each, ast.Name) and each.id == name for each in node.targets):
                return False
    return False


def _is_it(node: ast.expr, name: str) -> bool:
    """Whether it is what has this name, or a part of it."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and node.id == name


def _inside(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a function, in order, those of blocks among them, and not those of functions inside."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _inside(getattr(node, name, []))
