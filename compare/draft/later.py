"""Where the value of a local name is read once a statement has run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# what these say of a tensor, no write to it changes
_OF_NO_VALUE = frozenset(
    (
        *("shape", "size", "dtype", "device", "dim", "ndim", "numel", "nelement", "layout", "is_cuda", "requires_grad"),
        *("new_zeros", "new_ones", "new_empty", "new_full", "is_floating_point", "grad_fn", "data_ptr", "stride"),
    )
)
_LIKES = ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like")
_TAKE_NO_VALUE = frozenset(("len", "isinstance", "type", "id", *_LIKES))


def read_later(function: ast.FunctionDef, statement: ast.stmt, name: str) -> list[ast.Name]:
    """The places where a name is read after a statement, until it stands for something else on every way."""
    return _Reading(function, name).after(statement)


def statement_at(function: ast.AST, line: int, column: int) -> ast.stmt | None:
    """The innermost statement of a function that holds a place."""
    found = None
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and node is not function and _holds(node, line, column):
            found = node  # those inside come later
    return found


def block_of(function: ast.AST, statement: ast.stmt) -> list[ast.stmt]:
    """The statements among which one stands."""
    blocks = (block for node in ast.walk(function) for block in _blocks(node))
    return next(block for block in blocks if any(each is statement for each in block))


def _holds(node: ast.stmt, line: int, column: int) -> bool:
    begin, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return begin <= (line, column) < end


class _Reading:
    """Of one name in one function."""

    def __init__(self, function: ast.FunctionDef, name: str):
        self.function, self.name = function, name
        parents = {id(child): node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
        self._parents = parents

    def after(self, statement: ast.stmt) -> list[ast.Name]:
        found: list[ast.Name] = []
        is_over = self._is_bound_by(statement) or isinstance(statement, ast.Return | ast.Raise)
        at: ast.AST = statement
        while at is not self.function and not is_over:
            outer = self._parents[id(at)]
            block = next((each for each in _blocks(outer) if at in each), [])
            is_over = self._run(block[block.index(at) + 1 :] if block else [], found)  # type: ignore[arg-type]
            if isinstance(outer, ast.For | ast.While) and not is_over and at in outer.body:
                self._loop(outer, found)
                is_over = self._run(outer.orelse, found)
            at = outer
        return list({id(each): each for each in found}.values())

    def _loop(self, node: ast.For | ast.While, found: list[ast.Name]) -> bool:
        if isinstance(node, ast.While):
            self._read(node.test, found)
        elif self.name in _names(node.target):
            return True
        return self._run(node.body, found)

    def _run(self, block: list[ast.stmt], found: list[ast.Name]) -> bool:
        """Whether the name stands for something else, or nothing follows, when a block has run."""
        return any(self._step(each, found) for each in block)

    def _step(self, node: ast.stmt, found: list[ast.Name]) -> bool:
        if isinstance(node, ast.If):
            self._read(node.test, found)
            both = [self._run(node.body, found), self._run(node.orelse, found)]
            return all(both)
        if isinstance(node, ast.For):
            self._read(node.iter, found)
            self._loop(node, found)
            return self._run(node.orelse, found)
        if isinstance(node, ast.While):
            self._loop(node, found)
            return self._run(node.orelse, found)
        if isinstance(node, ast.With):
            for each in node.items:
                self._read(each.context_expr, found)
            return self._run(node.body, found)
        if isinstance(node, ast.Try):
            for block in _blocks(node):
                self._run(block, found)
            return False
        self._read(node, found)
        return self._is_bound_by(node) or isinstance(node, ast.Return | ast.Raise)

    def _is_bound_by(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign):
            return any(self.name in _names(target) for target in node.targets)
        return isinstance(node, ast.AnnAssign) and node.value is not None and self.name in _names(node.target)

    def _read(self, node: ast.AST, found: list[ast.Name]) -> None:
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and each.id == self.name and self._asks_for_value(each):
                found.append(each)

    def _asks_for_value(self, node: ast.Name) -> bool:
        outer = self._parents.get(id(node))
        if isinstance(outer, ast.AugAssign) and outer.target is node:
            return True
        if not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(outer, ast.Attribute):
            return outer.attr not in _OF_NO_VALUE
        if isinstance(outer, ast.Compare):
            return not all(isinstance(each, ast.Is | ast.IsNot) for each in outer.ops)
        called = outer.func if isinstance(outer, ast.Call) and node in outer.args else None
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return name not in _TAKE_NO_VALUE


def _names(target: ast.expr) -> set[str]:
    """The names that an assignment to a target binds."""
    if isinstance(target, ast.Name):
        return {target.id}
    if isinstance(target, ast.Starred):
        return _names(target.value)
    if isinstance(target, ast.Tuple | ast.List):
        return {name for each in target.elts for name in _names(each)}
    return set()


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if isinstance(block := getattr(node, name, None), list):
            yield block
    for handler in getattr(node, "handlers", ()):
        yield handler.body
