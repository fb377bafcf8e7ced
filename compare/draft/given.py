"""What the names that a function binds are given, wherever in it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

Values = Mapping[str, tuple[ast.expr | None, ...]]

_AS_SAID: Mapping[str, ast.expr] = {
    **dict.fromkeys(("int", "float", "bool"), ast.Constant(0)),
    **dict.fromkeys(
        ("list", "tuple", "List", "Tuple", "Sequence", "Iterable"), ast.Call(ast.Name("list", ast.Load()), [], [])
    ),
    **dict.fromkeys(("dict", "Dict", "Mapping"), ast.Dict([], [])),
    "str": ast.Constant(""),
}


def given_in(function: ast.AST) -> tuple[Values, Values]:
    """By name, the expressions that it is given, None for one that is not known; and those that parts of it are."""
    values: dict[str, list[ast.expr | None]] = defaultdict(list)
    parts: dict[str, list[ast.expr | None]] = defaultdict(list)
    for node in ast.walk(function):
        for name, value in _bound_by(node):
            values[name].append(value)
        for name, value in _put_into(node):
            parts[name].append(value)
    known = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    values |= {name: [None] for name in known - set(values)}
    return _settled(values), _settled(parts)


def _settled(found: Mapping[str, list[ast.expr | None]]) -> Values:
    return {name: tuple(each) for name, each in found.items()}


def _bound_by(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(node, ast.arguments):
        yield from _of_arguments(node)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _of_target(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
        yield node.target.id, node.value
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
    elif isinstance(node, ast.For | ast.comprehension):
        yield from _of_loop(node.target, node.iter)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _of_target(node.optional_vars, None)


def _of_arguments(node: ast.arguments) -> Iterator[tuple[str, ast.expr | None]]:
    plain = [*node.posonlyargs, *node.args]
    defaults = [*[None] * (len(plain) - len(node.defaults)), *node.defaults, *node.kw_defaults]
    for each, default in zip([*plain, *node.kwonlyargs], defaults, strict=True):
        said = each.annotation
        kind = said.value if isinstance(said, ast.Subscript) else said
        name = kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", "")
        yield each.arg, _AS_SAID.get(name, default if isinstance(default, ast.Constant) and default.value else None)
    for several in (node.vararg, node.kwarg):
        if several is not None:
            yield several.arg, _AS_SAID["list" if several is node.vararg else "dict"]


def _of_target(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Starred):
        yield from _of_target(target.value, _AS_SAID["list"])
    elif isinstance(target, ast.Tuple | ast.List):
        is_alike = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        for i, each in enumerate(target.elts):
            yield from _of_target(each, value.elts[i] if is_alike else _part(value, i))  # type: ignore[union-attr]


def _of_loop(target: ast.expr, over: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    function = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
    if function == "range":
        yield from _of_target(target, ast.Constant(0))
    elif function == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        yield from _of_target(target.elts[0], ast.Constant(0))
        yield from _of_target(target.elts[1], _part(over.args[0], 0) if over.args else None)  # type: ignore[attr-defined]
    else:
        yield from _of_target(target, _part(over, 0))


def _part(value: ast.expr | None, number: int) -> ast.expr | None:
    return None if value is None else ast.Subscript(value, ast.Constant(number), ast.Load())


def _put_into(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """What is written into a list: by number, by a slice, or by its methods."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                is_slice = isinstance(target.slice, ast.Slice)
                yield target.value.id, node.value if is_slice else ast.List([node.value], ast.Load())
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        if node.func.attr in ("append", "insert") and node.args:
            yield node.func.value.id, ast.List([node.args[-1]], ast.Load())
        if node.func.attr == "extend" and node.args:
            yield node.func.value.id, node.args[0]
