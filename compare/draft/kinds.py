"""What an expression gives, as far as its code tells: mostly a number, a sequence, a mapping or a text."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import ModuleType
from typing import Any

import torch

from .names import UNKNOWN, Scope


class Kind(Enum):
    """Of values; tensors and lists of modules are known as attributes alone."""

    NUMBER = "number"
    SEQUENCE = "sequence"
    MAPPING = "mapping"
    TEXT = "text"
    MODULES = "modules"
    ARRAY = "array"


_GIVES: Mapping[str, Kind] = {
    **dict.fromkeys(("len", "int", "float", "round", "bool", "ord"), Kind.NUMBER),
    **dict.fromkeys(("list", "tuple", "sorted", "Size"), Kind.SEQUENCE),
    **dict.fromkeys(("dict", "OrderedDict", "defaultdict", "vars"), Kind.MAPPING),
    **dict.fromkeys(("str", "repr"), Kind.TEXT),
}
_OF_METHODS: Mapping[str, Kind] = {
    **dict.fromkeys(("dim", "numel", "nelement", "ndimension", "stride"), Kind.NUMBER),
    **dict.fromkeys(("format", "lower", "upper", "strip", "replace"), Kind.TEXT),
}


def kind_of(node: ast.expr, scope: Scope, settings: Mapping[str, Kind | None]) -> Kind | None:
    """The kind of an expression's value; None where it is not known.

    Args:
      node: the expression.
      scope: of the function that it stands in.
      settings: what the attributes of `self` were in the original, by name.
    """
    return _Reading(scope, settings).kind(node)


def has_only_lengths(node: ast.expr, scope: Scope, settings: Mapping[str, Kind | None]) -> bool:
    """Whether it is a sequence of sizes, none of which is -1, as far as the code tells."""
    return _Reading(scope, settings).has_only_lengths(node)


def kind_of_value(value: Any) -> Kind | None:
    if isinstance(value, bool | int | float):
        return Kind.NUMBER
    if isinstance(value, torch.Tensor):
        return Kind.ARRAY
    if isinstance(value, list | tuple) and value and all(isinstance(each, torch.nn.Module) for each in value):
        return Kind.MODULES
    kinds = {str: Kind.TEXT, dict: Kind.MAPPING, list: Kind.SEQUENCE, tuple: Kind.SEQUENCE}
    return next((kind for each, kind in kinds.items() if isinstance(value, each)), None)


class _Reading:
    """Of one expression; a name whose value is being read says nothing about itself."""

    def __init__(self, scope: Scope, settings: Mapping[str, Kind | None]):
        self.scope, self.settings = scope, settings
        self._read: list[str] = []

    def kind(self, node: ast.expr | None) -> Kind | None:
        if isinstance(node, ast.Constant):
            return kind_of_value(node.value)
        if isinstance(node, ast.List | ast.Tuple | ast.ListComp | ast.GeneratorExp):
            return Kind.SEQUENCE
        if isinstance(node, ast.Dict | ast.DictComp):
            return Kind.MAPPING
        if isinstance(node, ast.JoinedStr):
            return Kind.TEXT
        if isinstance(node, ast.UnaryOp):
            return self.kind(node.operand) if not isinstance(node.op, ast.Not) else Kind.NUMBER
        if isinstance(node, ast.BinOp):
            return self._of_operation(node)
        if isinstance(node, ast.IfExp):
            return self._agreed([node.body, node.orelse])
        if isinstance(node, ast.Name):
            return self._of_name(node)
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node)
        if isinstance(node, ast.Subscript):
            return self._of_part(node)
        return self._of_call(node) if isinstance(node, ast.Call) else None

    def _agreed(self, nodes: Iterable[ast.expr | None]) -> Kind | None:
        kinds = {self.kind(each) for each in nodes}
        return kinds.pop() if len(kinds) == 1 else None

    def _of_operation(self, node: ast.BinOp) -> Kind | None:
        kinds = {self.kind(node.left), self.kind(node.right)}
        if isinstance(node.op, ast.Add | ast.Mult) and Kind.SEQUENCE in kinds:
            return Kind.SEQUENCE
        return kinds.pop() if len(kinds) == 1 else None

    def _of_name(self, node: ast.Name) -> Kind | None:
        if node.id not in self.scope.local:
            found = self.scope.find(node)
            return None if found is UNKNOWN else kind_of_value(found)
        given = [each for each in self.scope.given.get(node.id, ()) if not self._is_itself(each, node.id)]
        if node.id in self._read or not given:
            return None
        self._read.append(node.id)
        try:
            return self._agreed(given)
        finally:
            self._read.pop()

    @staticmethod
    def _is_itself(node: ast.expr | None, name: str) -> bool:
        """Whether it is what the name stood for, with a number added, or a part taken from it by a slice."""
        if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
            node = node.left
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            node = node.value
        return isinstance(node, ast.Name) and node.id == name

    def _of_attribute(self, node: ast.Attribute) -> Kind | None:
        if node.attr == "shape":
            return Kind.SEQUENCE
        if node.attr == "ndim":
            return Kind.NUMBER
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return self.settings.get(node.attr)
        if isinstance(node.value, ast.Call) and self.scope.find(node.value.func) in (torch.finfo, torch.iinfo):
            return Kind.NUMBER
        found = self.scope.find(node)
        return None if found is UNKNOWN else kind_of_value(found)

    def _of_part(self, node: ast.Subscript) -> Kind | None:
        if isinstance(node.slice, ast.Slice):
            kind = self.kind(node.value)
            return kind if kind in (Kind.SEQUENCE, Kind.TEXT) else None
        return self._of_elements(node.value)

    def _of_elements(self, node: ast.expr | None) -> Kind | None:
        """The kind of what a sequence holds."""
        if isinstance(node, ast.List | ast.Tuple):
            return self._agreed(node.elts)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self.kind(node.elt)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return self._of_elements(node.value)
        if isinstance(node, ast.Name) and node.id in self.scope.local and node.id not in self._read:
            self._read.append(node.id)
            kinds = {self._of_elements(each) for each in self.scope.given.get(node.id, ())}
            self._read.pop()
            return kinds.pop() if len(kinds) == 1 else None
        return Kind.NUMBER if isinstance(node, ast.expr) and _is_shape(node) else None

    def _of_call(self, node: ast.Call) -> Kind | None:
        function = node.func
        if isinstance(function, ast.Name) and function.id in ("min", "max", "sum", "abs", "divmod", "pow"):
            kinds = {self._of_elements(each) if len(node.args) == 1 else self.kind(each) for each in node.args}
            return Kind.NUMBER if kinds == {Kind.NUMBER} else None
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        holder = self.scope.find(function.value) if isinstance(function, ast.Attribute) else None
        if isinstance(holder, ModuleType):
            is_of_math = holder.__name__ == "math"
            return Kind.NUMBER if is_of_math else Kind.SEQUENCE if name == "Size" else None
        if not isinstance(function, ast.Attribute):
            return _GIVES.get(name)
        if name == "size":
            return Kind.NUMBER if node.args or node.keywords else Kind.SEQUENCE
        return _OF_METHODS.get(name)

    def has_only_lengths(self, node: ast.expr | None) -> bool:
        if not isinstance(node, ast.expr):
            return False
        if isinstance(node, ast.List | ast.Tuple):
            return all(map(self._is_length, node.elts))
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._is_length(node.elt)
        if isinstance(node, ast.BinOp):
            sides = [each for each in (node.left, node.right) if self.kind(each) is not Kind.NUMBER]
            return all(map(self.has_only_lengths, sides))
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return self.has_only_lengths(node.value)
        if isinstance(node, ast.Call) and len(node.args) == 1 and self.kind(node) is Kind.SEQUENCE:
            return self.has_only_lengths(node.args[0])
        if isinstance(node, ast.Name):
            return self._has_name_only_lengths(node.id)
        return _is_shape(node)

    def _has_name_only_lengths(self, name: str) -> bool:
        if name in self._read:
            return True
        given = (*self.scope.given.get(name, ()), *self.scope.parts.get(name, ()))
        self._read.append(name)
        try:
            return bool(given) and all(map(self.has_only_lengths, given))
        finally:
            self._read.pop()

    def _is_length(self, node: ast.expr) -> bool:
        return self.has_only_lengths(node.value) if isinstance(node, ast.Starred) else not _is_negative(node)


def _is_negative(node: ast.expr) -> bool:
    return any(isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.USub) for each in _values(node))


def _values(node: ast.expr) -> Iterator[ast.expr]:
    """What an expression may give."""
    if isinstance(node, ast.IfExp):
        yield from (*_values(node.body), *_values(node.orelse))
    else:
        yield node


def _is_shape(node: ast.expr) -> bool:
    is_size = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size"
    return (is_size and not node.args) or (isinstance(node, ast.Attribute) and node.attr == "shape")  # type: ignore[attr-defined]
