"""Python source with parts of it written anew: what is not touched stays as it was typed, comments and all."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any


class Spans:
    """The text of a file, by the places that `ast` gives, which count bytes."""

    def __init__(self, text: str, file: str = ""):
        self.file = file
        lines = text.encode().splitlines(keepends=True)
        self._bytes = b"".join(lines)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: Any) -> tuple[int, int]:
        """Where a node begins and ends; of a function or class, with its decorators."""
        first = min([node, *getattr(node, "decorator_list", [])], key=lambda each: each.lineno)
        start = self._starts[first.lineno - 1] + first.col_offset
        if first is not node:
            start = self._bytes.rindex(b"@", 0, start)
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, start: int, end: int) -> str:
        return self._bytes[start:end].decode()

    def find(self, text: str, start: int) -> int:
        return self._bytes.index(text.encode(), start)

    def start_of_def(self, node: ast.FunctionDef) -> int:
        """Behind its name and the parenthesis."""
        return self.find("(", self._starts[node.lineno - 1] + node.col_offset)

    def indent(self, node: ast.AST) -> str | None:
        """What stands before a statement in its line; None where that is more than space."""
        start, _ = self.of(node)
        before = self._bytes[self._bytes.rfind(b"\n", 0, start) + 1 : start].decode()
        return before if not before.strip() else None

    def is_elif(self, node: ast.AST) -> bool:
        start, _ = self.of(node)
        return isinstance(node, ast.If) and self.text(start, start + 4) == "elif"

    def spliced(self, node: ast.AST, written: Callable[[ast.AST], str]) -> str:
        """A node's text, with `written` of each part in the part's place."""
        at, end = self.of(node)
        pieces = []
        for part in sorted(_parts(node), key=lambda part: self.of(part)):
            first, last = self.of(part)
            if first >= at and last <= end:  # an annotation or a default may share its place with another
                pieces += [self.text(at, first), written(part)]
                at = last
        return "".join([*pieces, self.text(at, end)])


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The nearest nodes below that have a place."""
    if isinstance(node, ast.JoinedStr):  # those inside of it have none that can be relied on before Python 3.12
        return
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
        else:
            yield from _parts(child)
