"""Names that a draft reads and nothing in it gives: what no rule has written otherwise."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

_GIVEN = frozenset(dir(builtins)) | {"__file__", "__class__", "__module__", "__qualname__"}


def noted_where_undefined(text: str) -> str:
    """The text with a note at each statement that reads a name which is nowhere bound in it, and has no note yet."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    bound = {*_GIVEN, *_bound(tree)}
    lines = text.splitlines(keepends=True)
    notes: dict[int, list[str]] = {}
    for statement, name in _read(tree, tree.body[0] if tree.body else None):
        first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))]) - 1
        if name not in bound and not (first and lines[first - 1].lstrip().startswith("# TODO")):
            notes.setdefault(first, []).append(name)
    for at in sorted(notes, reverse=True):
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        names = ", ".join(dict.fromkeys(notes[at]))
        lines.insert(at, f"{indent}# TODO nothing here is called {names}: write this without it\n")
    return "".join(lines)


def _bound(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()):
                yield node.id
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.alias():
                yield node.asname or node.name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def _read(node: ast.AST, statement: ast.stmt | None) -> Iterator[tuple[ast.stmt, str]]:
    """The names that statements read, annotations aside, which nothing evaluates."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and statement is not None:
        yield statement, node.id
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _read(child, child if isinstance(child, ast.stmt) else statement)
