"""What the code of a function says of its arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from .given import given_in
from .kinds import Kind, kind_of
from .model import is_self
from .names import Scope


def all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*found, *(each for each in (arguments.vararg, arguments.kwarg) if each is not None)]


def is_only_compared(name: str, function: ast.FunctionDef) -> bool:
    """Whether an argument is only asked for, and compared with numbers that Python counts or that are written there."""
    counted = {
        name
        for name, given in given_in(function)[0].items()
        if all(isinstance(each, ast.Constant) and type(each.value) is int for each in given)
    }
    uses, compared = 0, 0
    for node in ast.walk(function):
        uses += isinstance(node, ast.Name) and node.id == name
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            others = [each for each in sides if not (isinstance(each, ast.Name) and each.id == name)]
            known = [isinstance(each, ast.Constant) or getattr(each, "id", None) in counted for each in others]
            compared += (len(sides) - len(others)) * all(known)
    return uses == compared > 0


def listed_in(function: ast.FunctionDef) -> Iterator[str]:
    """The arguments that are said to be lists, by what is written beside them or asked of them."""
    for each in function.args.args:
        if each.annotation is not None and re.search(r"\b([Ll]ist|[Tt]uple|Sequence)\b", ast.unparse(each.annotation)):
            yield each.arg
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            asked, kind = node.args
            if isinstance(asked, ast.Name) and ast.unparse(kind) in ("list", "tuple", "(list, tuple)", "(tuple, list)"):
                yield asked.id


def sized_in(function: ast.FunctionDef) -> set[str]:
    """What is asked for its length, or gone over, and so is no number; of elements, all that stand beside one."""
    nodes = list(ast.walk(function))
    calls = [each for each in nodes if isinstance(each, ast.Call) and ast.unparse(each.func) == "len"]
    asked = [each for call in calls for each in call.args]
    asked += [each.iter for each in nodes if isinstance(each, ast.For | ast.comprehension)]
    return {*map(any_element, asked)}


def any_element(node: ast.expr) -> str:
    """The text of an expression, the same for all elements of one list."""
    is_element = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    return f"{ast.unparse(node.value)}[]" if is_element else ast.unparse(node)  # type: ignore[attr-defined]


def handed_lists(method: ast.FunctionDef, scope: Scope, lists: set[str]) -> Iterator[tuple[str, int | str]]:
    """The modules that a method calls with a list, by name, and which of the arguments that is.

    Args:
      method: of a class of modules.
      scope: of the method.
      lists: its arguments that are lists themselves.
    """
    for call in (each for each in ast.walk(method) if isinstance(each, ast.Call)):
        if isinstance(call.func, ast.Attribute) and is_self(call.func.value):
            given: Mapping[int | str, ast.expr] = {**dict(enumerate(call.args)), **_by_name(call)}
            for place, value in given.items():
                is_it = isinstance(value, ast.Name) and value.id in lists
                if is_it or (_is_plain(value) and kind_of(value, scope, {}) is Kind.SEQUENCE):
                    yield call.func.attr, place


def _by_name(call: ast.Call) -> dict[int | str, ast.expr]:
    return {each.arg: each.value for each in call.keywords if each.arg is not None}


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.List | ast.ListComp)
