"""Functions that write into what they are given: in a port, their caller has to take what they give."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from .names import Scope, is_of_torch, torch_name
from .reading import tree_of

_VIEWS = frozenset(
    ["view", "t", "transpose", "permute", "narrow", "select", "squeeze", "unsqueeze", "expand", "diagonal"]
)


_READ: set[int] = set()  # functions that are looked into now, which may call themselves


@dataclass(frozen=True)
class Writer:
    """A function that writes into what it is given.

    Attributes:
      names: of the parameters that it writes into.
      gives: whether it gives just these; if not, nothing, so that a port lets it give them; None of anything else.
      parameters: all, in order, without the object of a method.
    """

    names: tuple[str, ...]
    gives: bool | None
    parameters: tuple[str, ...]

    def holders(self, call: ast.Call) -> list[ast.expr]:
        """The arguments of a call that it writes into."""
        given: dict[str | None, ast.expr] = dict(zip(self.parameters, call.args, strict=False))
        given |= {each.arg: each.value for each in call.keywords}
        return [given[name] for name in self.names if name in given]


def writer(function: Any, *, bound: bool = False) -> Writer | None:
    """A function of the user's, if it writes into an argument; of others nothing is known.

    Args:
      function: itself, or its definition.
      bound: whether it is called as a method, whose first parameter is the object.
    """
    node = function if isinstance(function, ast.FunctionDef) else _definition(function)
    if node is None:
        return None
    if id(function) in _READ:
        return None
    called = function.__globals__ if isinstance(function, FunctionType) else {}
    parameters = [each.arg for each in (*node.args.posonlyargs, *node.args.args)][bound:]
    keywords = [each.arg for each in node.args.kwonlyargs]
    _READ.add(id(function))
    try:
        names = [name for name in (*parameters, *keywords) if is_written(name, node.body, called)]
    finally:
        _READ.discard(id(function))
    returned = [each.value for each in _inside(node.body) if isinstance(each, ast.Return) and each.value is not None]
    gives: bool | None = False
    if returned or any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node)):
        gives_it = returned and all(isinstance(each, ast.Name) and [each.id] == names for each in returned)
        gives = True if gives_it else None
    if any(isinstance(each, ast.Name) and each.id in names for each in _bound(node)):
        gives = None
    return Writer(tuple(names), gives, tuple(parameters)) if names else None


def _bound(node: ast.FunctionDef) -> Iterator[ast.expr]:
    """What is given a value by `=`, which no longer is what was given."""
    for each in ast.walk(node):
        for target in each.targets if isinstance(each, ast.Assign) else ():
            yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def _definition(function: Any) -> ast.FunctionDef | None:
    if not isinstance(function, FunctionType) or is_of_torch(function):
        return None
    try:
        node = tree_of(function).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    return node if isinstance(node, ast.FunctionDef) else None


def gives_what_it_sets(function: Any) -> bool:
    """Whether a function only writes into the parameters of the module that it is given, and gives that module."""
    node = _definition(function)
    if node is None or not node.args.args:
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


def written_to(node: ast.expr) -> ast.expr:
    """What a chain of methods that write in place begins with, as `x` of `x.data.mul_(2).add_(y)`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and re.search(r"[^_]_$", node.func.attr):
        node = node.func.value
    return node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node


def is_view(node: ast.expr) -> bool:
    """Whether it shares the memory of what it is of, if that is a tensor: a part by slices, or other axes."""
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return all(isinstance(part, ast.Slice | ast.Constant | ast.UnaryOp) for part in parts)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS


def only_initialises(function: Any) -> bool:
    """Whether all that a function of the user's does is to call `torch.nn.init`, under conditions or not."""
    node = _definition(function)
    if node is None:
        return False
    scope = Scope(function.__globals__).within(node)
    left = [each for each in _inside(node.body) if not isinstance(each, ast.If | ast.Pass)]
    left = [each for each in left if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    return bool(left) and all(
        isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Call)
        and (torch_name(scope.find(each.value.func)) or "").startswith("nn.init.")
        for each in left
    )


def is_written(name: str, body: Sequence[ast.stmt], called: Mapping[str, Any]) -> bool:
    """Whether what a function is given under this name is written into, before the name stands for something else."""
    for node in _inside(body):
        if isinstance(node, ast.AugAssign) and _is_it(node.target, name):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            method = node.value.func
            is_in_place = isinstance(method, ast.Attribute) and re.search(r"[^_]_$", method.attr) is not None
            if is_in_place and _is_it(node.value, name):
                return True
            if isinstance(method, ast.Name) and _is_handed_on(name, node.value, called):
                return True
        if isinstance(node, ast.Assign):
            if any(not isinstance(each, ast.Name) and _is_it(each, name) for each in node.targets):
                return True
            if any(isinstance(each, ast.Name) and each.id == name for each in node.targets):
                return False
    return False


def is_written_as_tensor(name: str, function: ast.FunctionDef, called: Mapping[str, Any]) -> bool:
    """Whether a parameter is written into as only tensors are: by a method, by slices, by another function."""
    for node in _inside(function.body):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and is_written(name, [node], called):
            return True
        for target in node.targets if isinstance(node, ast.Assign) else ():
            index = target.slice if isinstance(target, ast.Subscript) else None
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            is_slice = any(isinstance(each, ast.Slice) or ast.unparse(each) == "..." for each in parts if each)
            if is_slice and _is_it(target, name):
                return True
    return False


def _is_handed_on(name: str, call: ast.Call, called: Mapping[str, Any]) -> bool:
    """Whether a call hands it on to another function that writes into it."""
    another = called.get(ast.unparse(call.func))
    if not any(_is_it(each, name) for each in (*call.args, *(each.value for each in call.keywords))):
        return False
    inner = writer(another) if getattr(another, "__globals__", None) is called else None
    return inner is not None and any(_is_it(each, name) for each in inner.holders(call))


def _is_it(node: ast.expr, name: str) -> bool:
    """Whether it is what has this name, or a part or a view of it."""
    while True:
        inner = written_to(node)
        if inner is node and isinstance(node, ast.Subscript):
            inner = node.value
        if inner is node and is_view(node):
            inner = node.func.value  # type: ignore[attr-defined]
        if inner is node:
            return isinstance(node, ast.Name) and node.id == name
        node = inner


def _inside(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a function, in order, those of blocks among them, and not those of functions inside."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _inside(getattr(node, name, []))
