"""What a function or method of PyTorch is in JAX: a table of templates.

Each row has the parameters, in PyTorch's order, and what is written: `{dim}` is what was given for it, `{-dim}` says
that it is taken and not written, and a part in `<>` is left out unless all in it were given. `a|b` are two names of one
parameter, `*size` takes all that is left. Of templates that ` || ` parts, the first that has a place for all is taken.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NUMPYS = {"dim": ("axis",), "keepdim": ("keepdims",), "input": ("a", "x1"), "other": ("x2",)}


@dataclass(frozen=True)
class Rule:
    """One function of PyTorch.

    Attributes:
      parameters: names in order; the alternatives of one are a tuple.
      template: what is written.
    """

    parameters: tuple[tuple[str, ...], ...]
    template: str

    @property
    def takes_all(self) -> int | None:
        """The number of the parameter that takes all that is left."""
        return next((i for i, (name, *_) in enumerate(self.parameters) if name.startswith("*")), None)

    @property
    def needed(self) -> list[str]:
        """The parameters that cannot be left out, in order."""
        text = re.sub(r"<[^<>]*>", "", self.template.split(" || ")[0])
        return [names[0].lstrip("*") for names in self.parameters if f"{{{names[0].lstrip('*')}}}" in text]

    @property
    def spreads(self) -> bool:
        """Whether that is written as arguments, one after the other."""
        return any(f"{part})" in self.template for part in ("reshape({shape}", "transpose({dims}", ", {operands}"))

    def name(self, keyword: str) -> str | None:
        return next((names[0].lstrip("*") for names in self.parameters if {keyword, f"*{keyword}"} & {*names}), None)

    def filled(self, given: Mapping[str, str]) -> str | None:
        """The text; None where a part that cannot be left out was not given, or one was that has no place here."""
        texts = (_filled(template, given) for template in self.template.split(" || "))
        return next((text for text in texts if text is not None), None)


def _filled(template: str, given: Mapping[str, str]) -> str | None:
    if not set(given) <= set(re.findall(r"{-?(\w+)}", template)):
        return None

    def optional(found: re.Match[str]) -> str:
        return found[1] if all(name in given for name in re.findall(r"{(\w+)}", found[1])) else ""

    text = re.sub(r"{-\w+}", "", re.sub(r"<([^<>]*)>", optional, template))
    if not text or not all(name in given for name in re.findall(r"{(\w+)}", text)):
        return None

    def put(found: re.Match[str]) -> str:
        if text[: found.start()].endswith("(*") and given[found[1]].startswith("("):
            return _as_arguments(given[found[1]])
        stands_alone = text[: found.start()].endswith(("(", ", ", "=", "[")) and text[found.end()] in "),]"
        return without_parentheses(given[found[1]]) if stands_alone else as_operand(given[found[1]])

    return re.sub(r"{(\w+)}", put, text).replace("(, ", "(").replace(f"*{_SPREAD}", "")


_SPREAD = "\0"  # stands for what is written out in place of a tuple


def _as_arguments(text: str) -> str:
    """A tuple's items one after the other, if it is one that is written as such."""
    tree = ast.parse(text, mode="eval").body
    return _SPREAD + text[1:-1].rstrip(",") if isinstance(tree, ast.Tuple) else as_operand(text)


def without_parentheses(text: str) -> str:
    """An expression that stands by itself, without those around the whole of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    try:
        inner = ast.parse(text[1:-1].strip(), mode="eval").body
    except SyntaxError:
        return text
    return text if isinstance(inner, ast.Tuple | ast.Starred) else text[1:-1]


def in_parentheses(text: str) -> str:
    """An expression as one value of a statement: in parentheses where nothing else holds its lines together."""
    if "\n" not in text:
        return text
    try:
        ast.parse(f"_ = {text}")
    except SyntaxError:
        return f"({text})"
    return text


def as_tuple(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def as_operand(text: str) -> str:
    """An expression in parentheses, where an operator or a dot beside it would take it apart."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return f"({text})"
    if without_parentheses(text) != text:
        return text
    whole = ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant | ast.List | ast.Dict | ast.ListComp
    return text if isinstance(tree, whole) or (text.startswith("(") and isinstance(tree, ast.Tuple)) else f"({text})"


def _with_numpys(names: tuple[str, ...]) -> tuple[str, ...]:
    """With the names that PyTorch takes for NumPy's sake."""
    return tuple(dict.fromkeys([*names, *_NUMPYS.get(names[0], ())]))


def named_in(call: ast.Call) -> dict[str, ast.expr]:
    """What is given by name, by PyTorch's own names."""
    own = {other: name for name, others in _NUMPYS.items() for other in others}
    return {own.get(each.arg, each.arg): each.value for each in call.keywords if each.arg is not None}


def rules(table: Mapping[str, tuple[str, str]]) -> dict[str, Rule]:
    return {
        name: Rule(tuple(_with_numpys(tuple(each.split("|"))) for each in parameters.split()), template)
        for names, (parameters, template) in table.items()
        for name in names.split()
    }
