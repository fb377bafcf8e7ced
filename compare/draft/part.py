"""A class or function of the model, and where its source is."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from ..case import CaseError
from .kept import kept_methods
from .model import is_module
from .names import Scope
from .spans import Spans

Written = type | FunctionType


@dataclass(frozen=True)
class Part:
    """A class or function of the model.

    Attributes:
      item: itself.
      node: its source.
      spans: the text of its file.
      scope: the names of its module.
      home: the name of that module.
      kept: of a class, the methods that a port needs.
    """

    item: Written
    node: ast.stmt
    spans: Spans
    scope: Scope
    home: str
    kept: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What it is called there, as a function may be that is written as `name = lambda ...`."""
        return self.node.name  # type: ignore[attr-defined]


def part_of(item: Written) -> Part:
    """The part that a class or function is.

    Raises:
      CaseError: where its source is not to be had, or is no class or def.
    """
    try:
        bare = inspect.unwrap(item)
        file = inspect.getsourcefile(bare)
        line = inspect.getsourcelines(bare)[1]
        text = Path(file or "").read_text()
    except (OSError, TypeError) as error:
        raise CaseError(
            f"the source of {item.__qualname__} is not to be had ({error}); draft what is in a file"
        ) from error
    if item.__name__ == "<lambda>" and isinstance(item, FunctionType):
        return _named_lambda(item, ast.parse(text), text)
    nodes = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and node.name == item.__name__
        and min([node.lineno, *(each.lineno for each in node.decorator_list)]) == max(line, 1)
    ]
    if not nodes:
        raise CaseError(
            f"{item.__qualname__} is not written as a class or def in {Path(file or '').name}; draft what is"
        )
    methods = [item] if isinstance(item, FunctionType) else vars(item).values()
    scopes = (inspect.unwrap(each).__globals__ for each in methods if isinstance(each, FunctionType))
    of_its_file = (each for each in scopes if each.get("__name__") == item.__module__)  # a named tuple's are others'
    outer = next(of_its_file, None) or vars(sys.modules[item.__module__])
    kept = kept_methods(item) if is_module(item) else frozenset(_methods_in(nodes[0]))  # type: ignore[arg-type]
    return Part(item, nodes[0], Spans(text, file or ""), Scope(outer), item.__module__, kept)


def part_or_none(item: Written) -> Part | None:
    """Likewise; None where its source is not to be had."""
    try:
        return part_of(item)
    except CaseError:
        return None


def _named_lambda(item: FunctionType, tree: ast.Module, text: str) -> Part:
    """`name = lambda x: ...` of a file, as the function that it is."""
    for node in tree.body:
        value: Any = getattr(node, "value", None)
        target = (getattr(node, "targets", None) or [None])[0]
        is_named = isinstance(value, ast.Lambda) and isinstance(target, ast.Name)
        if is_named and item.__globals__.get(target.id) is item:
            spans = Spans(text)
            body = spans.text(*spans.of(value.body))
            body = f"({body})" if "\n" in body and not body.startswith("(") else body
            written = f"def {target.id}({ast.unparse(value.args)}):\n    return {body}\n"
            return Part(item, ast.parse(written).body[0], Spans(written), Scope(item.__globals__), item.__module__)
    raise CaseError(f"a lambda in line {item.__code__.co_firstlineno} of {item.__module__} has no name; draft what has")


def _methods_in(node: ast.AST) -> Iterator[str]:
    body = node.body if isinstance(node, ast.ClassDef) else ()
    return (each.name for each in body if isinstance(each, ast.FunctionDef))
