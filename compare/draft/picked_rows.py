"""Loops that take rows where a mask holds, and add what becomes of them where they belong, as over experts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

from .later import read_later
from .names import Scope, torch_name

_SIZES = ("shape", "size", "numel", "nelement", "dim", "ndim")
_ADDS = ("index_add_", "index_add")


@dataclass
class Picked:
    """Calls of one function, by identity.

    Attributes:
      rows: those that give the places where a mask holds, which only such a loop's rows are taken and added by. At a
        fixed size, the places behind these are beyond the end: what is added there is dropped.
      turns: `nonzero()` that says which turns such a loop takes, and what it is of. A turn in which no mask holds adds
        nothing: all of them can be taken.
      counts: the names of these turns, which are no arrays then.
    """

    rows: set[int] = field(default_factory=set)
    turns: dict[int, ast.expr] = field(default_factory=dict)
    counts: set[str] = field(default_factory=set)

    def asks_of_turns(self, test: ast.expr) -> bool:
        """Whether a condition is one of which turn it is."""
        return bool(self.counts & _names(test))


def picked_in(function: ast.FunctionDef, scope: Scope) -> Picked:
    """The calls in such loops of a function."""
    found = Picked()
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
        picks = [node for part in loop.body for node in ast.walk(part) if _is_pick(node, scope)]
        names = {each.id for node in picks for each in ast.walk(node.targets[0]) if isinstance(each, ast.Name)}
        if not names or not _only_adds(function, loop, names):
            continue
        found.rows |= {id(node.value) for node in picks}
        turns = nonzero_of(loop.iter, scope) or _named_turns(function, loop, scope)
        if turns is not None:
            found.turns[id(turns[0])] = turns[1]
            found.counts |= _names(loop.target)
    return found


def _is_pick(node: ast.AST, scope: Scope) -> TypeGuard[ast.Assign]:
    """Whether it is `i, j = torch.where(mask)`, or `nonzero(as_tuple=True)`."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Call):
        return False
    targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else []
    if not targets or not all(isinstance(each, ast.Name) for each in targets):
        return False
    return mask_of(node.value, scope) is not None


def mask_of(call: ast.Call, scope: Scope) -> ast.expr | None:
    """What `torch.where(mask)` or `mask.nonzero(as_tuple=True)` is of, which give the places axis by axis."""
    if torch_name(scope.find(call.func)) == "where" and len(call.args) == 1 and not call.keywords:
        return call.args[0]
    by_axis = [each for each in call.keywords if each.arg == "as_tuple" and getattr(each.value, "value", None) is True]
    return _of_nonzero(call, scope) if by_axis and len(call.keywords) == 1 else None


def _of_nonzero(call: ast.Call, scope: Scope) -> ast.expr | None:
    if torch_name(scope.find(call.func)) == "nonzero":
        return call.args[0] if len(call.args) == 1 else None
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr == "nonzero" and not call.args
    return call.func.value if is_method else None  # type: ignore[attr-defined]


def nonzero_of(node: ast.expr, scope: Scope) -> tuple[ast.Call, ast.expr] | None:
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    of = _of_nonzero(node, scope)
    return None if of is None else (node, of)


def _named_turns(function: ast.FunctionDef, loop: ast.For, scope: Scope) -> tuple[ast.Call, ast.expr] | None:
    """The same where a name stands between, which nothing else reads."""
    if not isinstance(loop.iter, ast.Name):
        return None
    name = loop.iter.id
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
    given = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == [name]
    ]
    return nonzero_of(given[0], scope) if len(given) == 1 and len(uses) == 2 else None


def _only_adds(function: ast.FunctionDef, loop: ast.For, names: set[str]) -> bool:
    """Whether the places are indices alone, and what the loop makes of rows goes nowhere but to these places."""
    parents = {id(child): node for node in ast.walk(loop) for child in ast.iter_child_nodes(node)}
    made: set[str] = set()
    taken: set[str] = set()
    for node in (node for part in loop.body for node in ast.walk(part)):
        if isinstance(node, ast.Return | ast.Break | ast.Yield):
            return False
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _ADDS:
            taken |= _names(node.func.value) if _uses(node.args[1:2], names) else set()  # type: ignore[attr-defined]
        if isinstance(node, ast.Assign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Subscript):
                    taken |= _names(target.value) if _uses([target.slice], names) else {""}
                else:
                    made |= _names(target)
        if isinstance(node, ast.Name) and node.id in names and not _is_index(node, parents):
            return False
    stays = any(read_later(function, loop, name) for name in (made | names) - taken)
    return bool(taken) and "" not in taken and not stays


def _uses(nodes: list[ast.expr], names: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for node in nodes for each in ast.walk(node))


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_index(node: ast.Name, parents: dict[int, ast.AST]) -> bool:
    """Whether it is given places, says where to take from or to add to, or is asked how many there are."""
    if isinstance(node.ctx, ast.Store):
        return True
    for child, parent in _upwards(node, parents):
        if isinstance(parent, ast.Subscript) and child is parent.slice:
            return True
        if isinstance(parent, ast.Attribute) and parent.attr in _SIZES:
            return True
        if isinstance(parent, ast.Call) and getattr(parent.func, "attr", "") in _ADDS and child in parent.args[1:2]:
            return True
        if not isinstance(parent, ast.Tuple | ast.Slice):
            return False
    return False


def _upwards(node: ast.AST, parents: dict[int, ast.AST]) -> Iterator[tuple[ast.AST, ast.AST]]:
    while id(node) in parents:
        yield node, parents[id(node)]
        node = parents[id(node)]
