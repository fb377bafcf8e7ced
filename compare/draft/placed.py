"""The places where a mask holds that are only written to: as many as there may be, of which some lie beyond the end."""

from __future__ import annotations

import ast

from .names import torch_name
from .picked_rows import mask_of, nonzero_of
from .selected import Selected

_JOINED = ("cat", "concat", "concatenate")
_COMPLEMENTS = {
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
# what makes one list of places of those of a mask with one axis
_ALONG = ("squeeze(1)", "squeeze(-1)", "squeeze(dim=1)", "squeeze(dim=-1)", "flatten()", "view(-1)", "reshape(-1)")


class Placed(Selected):
    """Of one class or function."""

    def _call(self, node: ast.Call) -> str | None:
        made = None if self._builds else self._partitioned(node)
        return super()._call(node) if made is None else made

    def _partitioned(self, node: ast.Call) -> str | None:
        """`cat([x[mask], x[~mask]])`."""
        dims = [*node.args[1:], *(each.value for each in node.keywords)]
        is_first = [ast.unparse(each) for each in dims] in ([], ["0"])
        if torch_name(self.scope.find(node.func)) not in _JOINED or not is_first or not node.args:
            return None
        parts = node.args[0].elts if isinstance(node.args[0], ast.List | ast.Tuple) else []
        if len(parts) != 2 or not all(isinstance(each, ast.Subscript) and self._is_selection(each) for each in parts):
            return None
        first, second = parts
        is_one = ast.unparse(first.value) == ast.unparse(second.value)  # type: ignore[attr-defined]
        if not is_one or not _are_complements(first.slice, second.slice):  # type: ignore[attr-defined]
            return None
        self.model.imports.add("import graphmode as gm")
        return f"gm.partition({self._whole_of(first)}, {self._mask_of(first)})[0]"

    def _places_named(self, target: ast.expr, value: ast.expr) -> str | None:
        """`rows, columns = mask.nonzero(as_tuple=True)`, and its like, where all that is done with them is to write."""
        found = None if self._builds or self._code is None else self._places_of(value)
        names = {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
        if found is None or not isinstance(target, ast.Name | ast.Tuple) or not self._only_written(names):
            return None
        mask, part = found
        self.model.helpers.add("places_where")
        return f"{ast.unparse(target).strip('()')} = places_where({self._condition_text(mask)}){part}"

    def _condition_text(self, mask: ast.expr) -> str:
        text = self.written(mask)
        return text if self._is_mask(mask) else f"({text}) != 0"

    def _places_of(self, value: ast.expr) -> tuple[ast.expr, str] | None:
        """The mask, and which part of its places axis by axis is meant."""
        if isinstance(value, ast.Call) and (mask := mask_of(value, self.scope)) is not None:
            return mask, ""
        if isinstance(value, ast.Attribute) and value.attr == "T":
            found = nonzero_of(value.value, self.scope)
            return None if found is None else (found[1], "")
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            return None
        found = nonzero_of(value.func.value, self.scope)
        told = f"{value.func.attr}({', '.join(map(ast.unparse, [*value.args, *value.keywords]))})"
        if found is None or told not in ("unbind(1)", "unbind(dim=1)", "unbind(-1)", "t()", *_ALONG):
            return None
        return found[1], "[0]" if told in _ALONG else ""

    def _only_written(self, names: set[str]) -> bool:
        """Whether names stand in indices of what is written to alone, and of what is read there, element by element."""
        assert self._code is not None
        every = [each for each in ast.walk(self._code) if isinstance(each, ast.Name) and each.id in names]
        fine: set[int] = set()
        for node in ast.walk(self._code):
            if not isinstance(node, ast.Assign | ast.AugAssign):
                continue
            place = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
            if isinstance(place, ast.Subscript) and self._fits_places(node.value, ast.unparse(place.slice)):
                fine |= {id(each) for part in (place.slice, node.value) for each in ast.walk(part)}
        return len([each for each in every if isinstance(each.ctx, ast.Store)]) == len(names) and all(
            id(each) in fine or isinstance(each.ctx, ast.Store) for each in every
        )

    def _fits_places(self, value: ast.expr, index: str) -> bool:
        return self._has_no_axes(value) or self._is_by_element(value, index)


def _are_complements(one: ast.expr, other: ast.expr) -> bool:
    """Whether of two masks one holds wherever the other does not."""
    for a, b in ((one, other), (other, one)):
        is_not = isinstance(b, ast.UnaryOp) and isinstance(b.op, ast.Invert)
        if is_not and ast.unparse(b.operand) == ast.unparse(a):  # type: ignore[attr-defined]
            return True
    if not isinstance(one, ast.Compare) or not isinstance(other, ast.Compare) or len(one.ops) != 1:
        return False
    sides = [ast.unparse(each) for each in (one.left, *one.comparators)]
    is_same = sides == [ast.unparse(each) for each in (other.left, *other.comparators)]
    return is_same and isinstance(other.ops[0], _COMPLEMENTS.get(type(one.ops[0]), ast.Is))
