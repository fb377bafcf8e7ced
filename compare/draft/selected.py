"""Reductions and losses of what a mask selects, `x[mask]`, whose size values say: of the whole, under the mask."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from .later import block_of, read_later
from .names import torch_name
from .rules import as_operand, without_parentheses
from .writes import GONE, Writes

_REDUCED: Mapping[str, str] = {
    **{name: f"jnp.{name}({{x}}{{axis}}, where={{mask}})" for name in ("sum", "mean", "prod", "any", "all")},
    **{name: f"jnp.{name}({{x}}{{axis}}, where={{mask}}, ddof=1)" for name in ("std", "var")},
    "max": "jnp.max({x}, where={mask}, initial=-jnp.inf)",
    "min": "jnp.min({x}, where={mask}, initial=jnp.inf)",
}
# losses, each element's of the same element of what is given
_OF_ELEMENTS = frozenset(
    f"nn.functional.{name}"
    for name in (
        *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss"),
        *("binary_cross_entropy_with_logits", "poisson_nll_loss"),
    )
)
_OF_CLASSES = frozenset(("nn.functional.cross_entropy", "nn.functional.nll_loss"))
# arguments that have an element for each that is selected
_BY_ELEMENT = frozenset(("weight", "pos_weight"))
# where these have no finite derivative, what is not selected is put aside first
_SINGULAR = frozenset(("log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "exp", "pow", "div"))


class Selected(Writes):
    """Of one class or function."""

    def _call(self, node: ast.Call) -> str | None:
        made = None if self._builds else self._count_of_selected(node) or self._of_selected(node)
        return super()._call(node) if made is None else made

    def _count_of_selected(self, node: ast.expr) -> str | None:
        selection = self._counted_selection(node)
        if selection is None:
            return None
        if not ast.unparse(node).endswith(("numel()", "nelement()")):
            return f"{as_operand(self._mask_of(selection))}.sum()"
        x, mask = without_parentheses(self._whole_of(selection)), self._mask_along(selection)
        if mask == self._mask_of(selection):
            return f"{as_operand(mask)}.sum()"
        return f"jnp.broadcast_to({without_parentheses(mask)}, {as_operand(x)}.shape).sum()"

    def _of_selected(self, node: ast.Call) -> str | None:
        if (pair := self._loss_of(node)) is not None:
            return self._loss_of_selected(node, *pair)
        found = self._reduction_of(node)
        if found is None:
            return None
        name, value, selection, axis = found
        is_singular = any(map(_is_singular, ast.walk(value)))
        whole = self._of_whole(value, self._told(selection)) if not is_singular else self._of_safe(value, selection)
        mask = self._mask_along(selection)
        rows = f", axis=tuple(range({as_operand(self._mask_of(selection))}.ndim))" if axis else ""
        return _REDUCED[name].format(x=without_parentheses(whole), mask=without_parentheses(mask), axis=rows)

    def _reduction_of(self, node: ast.expr) -> tuple[str, ast.expr, ast.expr, str] | None:
        """Of a call that reduces what a mask selects: which, what of it, a selection in that, and over which axis."""
        if not isinstance(node, ast.Call) or [each.arg for each in node.keywords] not in ([], ["dim"]):
            return None
        of_torch = torch_name(self.scope.find(node.func))
        is_method = isinstance(node.func, ast.Attribute) and of_torch is None
        name: str = node.func.attr if is_method else of_torch or ""  # type: ignore[attr-defined]
        given = [node.func.value, *node.args] if is_method else node.args  # type: ignore[attr-defined]
        axis = ", ".join(map(ast.unparse, [*given[1:], *(each.value for each in node.keywords)]))
        if name not in _REDUCED or axis not in ("", *["0"] * ("{axis}" in _REDUCED[name])):
            return None
        selection = next(self._selections(given[0]), None) if given else None
        if selection is None or not self._is_by_element(given[0], self._told(selection)):
            return None
        return name, given[0], selection, axis

    def _loss_of(self, node: ast.expr) -> list[ast.expr] | None:
        """Of a loss of two things that one mask selects: the two."""
        if not isinstance(node, ast.Call) or torch_name(self.scope.find(node.func)) not in _OF_ELEMENTS | _OF_CLASSES:
            return None
        pair = [each for each in node.args if self._is_selection(each)]
        is_one = len(node.args) == len(pair) == 2 and len({*map(self._told, pair)}) == 1
        return pair if is_one and not {each.arg for each in node.keywords} & {"reduction", *_BY_ELEMENT} else None

    def _selections(self, node: ast.AST) -> Iterator[ast.expr]:
        return (each for each in ast.walk(node) if isinstance(each, ast.expr) and self._is_selection(each))

    def _told(self, selection: ast.expr) -> str:
        """The mask of a selection, in the original."""
        return self._selected[selection.id] if isinstance(selection, ast.Name) else ast.unparse(selection.slice)  # type: ignore[attr-defined]

    def _mask_of(self, selection: ast.expr) -> str:
        """The mask of a selection, in the port."""
        if not isinstance(selection, ast.Name):
            return self.written(selection.slice)  # type: ignore[attr-defined]
        return self._mask_names[self._selected[selection.id]]

    def _whole_of(self, selection: ast.expr) -> str:
        return selection.id if isinstance(selection, ast.Name) else self.written(selection.value)  # type: ignore[attr-defined]

    def _of_safe(self, value: ast.expr, selection: ast.expr) -> str:
        """A value computed of the whole, with 1 where nothing is selected."""
        self._put_aside = f"jnp.where({without_parentheses(self._mask_along(selection))}, {{}}, 1)"
        try:
            return self._of_whole(value, self._told(selection))
        finally:
            self._put_aside = ""

    def _mask_along(self, selection: ast.expr) -> str:
        """The mask with the axes of what it selects from."""
        mask = self._mask_of(selection)
        condition = getattr(selection, "slice", None)
        is_of_it = isinstance(condition, ast.Compare) and ast.unparse(condition.left) == ast.unparse(selection.value)  # type: ignore[attr-defined]
        if is_of_it:
            return mask
        self.model.helpers.add("along_axes")
        return f"along_axes({without_parentheses(mask)}, {without_parentheses(self._whole_of(selection))})"

    def _loss_of_selected(self, node: ast.Call, first: ast.expr, second: ast.expr) -> str:
        name = torch_name(self.scope.find(node.func))
        x, y = (without_parentheses(self._whole_of(each)) for each in (first, second))
        further = [f"{each.arg}={without_parentheses(self.written(each.value))}" for each in node.keywords]
        mask = self._mask_of(first) if name in _OF_CLASSES else self._mask_along(first)
        return f"{name}({', '.join([x, y, *further, f'mask={without_parentheses(mask)}'])})"

    def _selected_name(self, target: ast.expr, value: ast.expr) -> str | None:
        """`name = x[mask]`, where all that reads the name can have the whole and the mask: `name = x`."""
        now = self._now
        if self._builds or self._code is None or not isinstance(now, ast.Assign) or not isinstance(target, ast.Name):
            return None
        if not isinstance(value, ast.Subscript) or not self._is_selection(value):
            return None
        told = ast.unparse(value.slice)
        if id(now) not in self._seen_selecting:
            self._find_selecting(self._code, now, value.slice)
        if self._selected.get(target.id) != told:
            return None
        lines = []
        if told not in self._mask_names:
            names = {each.id for each in ast.walk(self._code) if isinstance(each, ast.Name)}
            free = next(each for each in (f"mask{'_' * n}" for n in range(len(names) + 1)) if each not in names)
            is_named = isinstance(value.slice, ast.Name)
            self._mask_names[told] = self.written(value.slice) if is_named else free
            lines += [] if is_named else [f"{free} = {without_parentheses(self.written(value.slice))}"]
        whole = without_parentheses(self.written(value.value))
        lines += [] if whole == target.id else [f"{target.id} = {whole}"]
        return f"\n{self.spans.indent(now)}".join(lines) or GONE

    def _find_selecting(self, function: ast.FunctionDef, statement: ast.Assign, mask: ast.expr) -> None:
        """Which statements of this block give names to what the same mask selects, that are read for no more."""
        block = block_of(function, statement)
        later = block[block.index(statement) :]
        alike = [each for each in later if isinstance(each, ast.Assign) and _selects(each, ast.unparse(mask))]
        self._seen_selecting |= {*map(id, alike)}
        names = [each for each in ast.walk(function) if isinstance(each, ast.Name)]
        bound = [each for each in names if isinstance(each.ctx, ast.Store) and each.lineno >= statement.lineno]
        if {each.id for each in bound} & {each.id for each in ast.walk(mask) if isinstance(each, ast.Name)}:
            return
        inside = {id(each) for one in later for each in ast.walk(one)}
        reads: dict[str, list[ast.Name]] = {}
        for each in alike:
            name = each.targets[0].id  # type: ignore[attr-defined]
            behind = [e for e in names if e.id == name and e.lineno > (each.end_lineno or 0)]
            is_only = [e.id for e in bound].count(name) == 1 and {*map(id, behind)} <= inside
            if is_only and {*map(id, read_later(function, each, name))} <= {*map(id, behind)}:
                reads[name] = behind
        outer = dict(self._selected)
        parents = {id(child): node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
        while True:
            self._selected = {**outer, **dict.fromkeys(reads, ast.unparse(mask))}
            wrong = [name for name, each in reads.items() if not all(self._fits(one, parents) for one in each)]
            if not wrong:
                return
            for name in wrong:
                del reads[name]

    def _fits(self, read: ast.expr, parents: Mapping[int, ast.AST]) -> bool:
        """Whether a selection is read within what can have the whole and the mask."""
        node: ast.AST | None = read
        while isinstance(node := parents.get(id(node)), ast.expr | ast.keyword):
            if isinstance(node, ast.expr) and (self._reduction_of(node) or self._loss_of(node)):
                return True
            if isinstance(node, ast.expr) and self._counted_selection(node) is read:
                return True
        return False


def _selects(node: ast.Assign, mask: str) -> bool:
    is_name = len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    return is_name and isinstance(node.value, ast.Subscript) and ast.unparse(node.value.slice) == mask


def _is_singular(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Div | ast.Pow)
    called = node.func if isinstance(node, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _SINGULAR
