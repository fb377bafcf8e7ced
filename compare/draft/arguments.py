"""What the code of a function says of its arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .given import given_in


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
