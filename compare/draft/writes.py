"""What is written in place, as new arrays that take the place of those before."""

from __future__ import annotations

import ast
import inspect
from types import FunctionType

from .calls import Calls
from .in_place import Writer, writer, written_to
from .model import is_method, is_self
from .rules import as_operand, without_parentheses


class Writes(Calls):
    """Into tensors, parts and views of them, and arguments of functions."""

    def _call(self, node: ast.Call) -> str | None:
        found = self._writer_of(node) if id(node) not in self._taken else None
        for holder in map(written_to, found.holders(node) if found is not None and not self._builds else ()):
            is_read = self._is_own(holder) or (
                isinstance(holder, ast.Name) and self._last_read.get(holder.id, 0) > (node.end_lineno or 0)
            )
            if is_read and self._is_tensor(holder):
                told = ast.unparse(holder)
                self._note(f"M01: {ast.unparse(node.func)} writes into {told}: let it give that too, and take it")
        return super()._call(node)

    def _written_into(self, call: ast.Call) -> str | None:
        """A call for what it writes into its arguments, which take what it gives."""
        found = self._writer_of(call)
        holders = [] if found is None else [written_to(each) for each in found.holders(call)]
        if found is None or not holders:
            return None
        self._taken.add(id(call))
        is_whole = len(holders) == len(found.names) and all(self._can_take(each) for each in holders)
        has_it = found.gives if found.gives is not False else self._gives_in_port(call, holders)
        if not is_whole or not has_it:
            told = ", ".join(map(ast.unparse, holders))
            self._note(f"M01: {ast.unparse(call.func)} writes into {told}: let it give the new array, and take that")
            return None
        made = self.written(call)
        if len(holders) > 1:
            return f"{', '.join(map(self._target, holders))} = {made}"
        return self._replaced(holders[0], self._target(holders[0]), made)

    def _can_take(self, holder: ast.expr) -> bool:
        return isinstance(holder, ast.Name | ast.Attribute | ast.Subscript)

    def _target(self, holder: ast.expr) -> str:
        return self.written(holder) if self._is_own(holder) else self.spans.spliced(holder, self.written)

    def _gives_in_port(self, call: ast.Call, holders: list[ast.expr]) -> bool:
        """Whether a function that gives nothing gives what it writes into, as it is drafted."""
        if not all(map(self._is_tensor, holders)) or (len(holders) > 1 and ast.Subscript in map(type, holders)):
            return False
        found, _ = self._function_called(call)
        return isinstance(found, ast.FunctionDef) or found in self.model.functions or is_method(found, self.model)

    def _writer_of(self, call: ast.Call) -> Writer | None:
        found, bound = self._function_called(call)
        return writer(found, bound=bound) if found is not None else None

    def _function_called(self, call: ast.Call) -> tuple[FunctionType | ast.FunctionDef | None, bool]:
        """The function of the user's that is called, if it is known, and whether it is called of an object."""
        function, holder = call.func, getattr(call.func, "value", None)
        if isinstance(function, ast.Name) and function.id in self._inner:
            return self._inner[function.id], False
        found, bound = self.scope.find(function), False
        if isinstance(function, ast.Attribute) and holder is not None:
            kind = (
                self.owner
                if is_self(holder)
                else self.model.children.get(self.owner, {}).get(  # type: ignore[arg-type]
                    holder.attr if self._is_own(holder) else ""
                )
            )
            if kind is not None:
                found, bound = inspect.getattr_static(kind, function.attr, None), True
        bound = bound and not isinstance(found, staticmethod)
        found = getattr(found, "__func__", found)
        return (found if isinstance(found, FunctionType) else None), bound

    def _is_part_of_several(self, target: ast.expr) -> bool:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        return any(isinstance(part, ast.Subscript) and self._is_tensor(part.value) for part in parts)

    def _is_part_of_call(self, target: ast.expr) -> bool:
        """Whether it is a part of what a call gives, as `x.t()[0]` is, which is noted: no new array fits there."""
        part = target
        while isinstance(part, ast.Subscript):
            part = part.value
        if isinstance(target, ast.Subscript) and isinstance(part, ast.Call):
            self._note("M01: what is written to is a view: a new array in place of what it is of")
            return True
        return False

    def _note_view(self, name: str) -> None:
        self._note(f"M02: {name} is a view, {self._views[name]}: write to what it is of, by .at[]")

    def _in_place(self, function: ast.Attribute, call: ast.Call, name: str) -> str | None:
        holder = written_to(function.value)
        if isinstance(holder, ast.Name) and holder.id in self._views:
            self._note_view(holder.id)
        if not isinstance(holder, ast.Name | ast.Attribute | ast.Subscript):
            self._note(f"M01: {name}_ writes in place: a new array in its place")
            return None
        if self._is_part_of_call(holder):
            return None
        if isinstance(holder, ast.Name):  # sets and lists have no method of such a name
            self._tensors.add(holder.id)
        target = self.written(holder) if isinstance(holder, ast.Attribute) else self.spans.spliced(holder, self.written)
        fills = {"zero": f"jnp.zeros_like({target})", "fill": f"jnp.full_like({target}, {{}})", "copy": "{}"}
        if name in fills:
            filled = fills[name].format(*(self.written(each) for each in call.args))
            return self._replaced(holder, target, self._without_gradient(function.value, filled))
        made = self._method(function, call, name)
        made = None if made is None else without_parentheses(made)
        if made is None:
            self._note(f"M01: {name}_ writes in place: a new array in its place")
            return None
        return self._replaced(holder, target, self._without_gradient(function.value, made))

    def _without_gradient(self, written: ast.expr, made: str) -> str:
        """What is written into `.data`, which records no gradient."""
        is_data = isinstance(written, ast.Attribute) and written.attr == "data"
        is_data = is_data or (isinstance(written, ast.Call) and ".data." in ast.unparse(written.func))
        return self._with_value(written, made) if is_data and not self._builds else made

    def _with_value(self, written: ast.expr, made: str) -> str:
        """What has another value than what stood there, whose gradient it keeps."""
        holder = written_to(written)
        if self._is_buffer(holder):
            return f"jax.lax.stop_gradient({made})"
        self.model.helpers.add("with_value")
        return f"with_value({self.written(holder)}, {made})"

    def _replaced(self, holder: ast.expr, target: str, made: str) -> str:
        """A new array in place of one, or one with other values in place of a part of it."""
        is_part = isinstance(holder, ast.Subscript) and self._is_tensor(holder.value)
        return self._put(holder, "set", made) if is_part else f"{target} = {made}"  # type: ignore[arg-type]

    def _put_values(self, target: ast.Subscript, value: ast.expr) -> str:
        """`x[...] = value`."""
        if not self._is_mask(target.slice):
            return self._put(target, "set", self.written(value))
        if self._is_number(value):
            return self._filled_where(target, self.written(value))
        is_same_part = isinstance(value, ast.Subscript) and ast.unparse(value.slice) == ast.unparse(target.slice)
        if isinstance(value, ast.Subscript) and is_same_part:
            return self._filled_where(target, self.written(value.value))
        return self._put(target, "set", self.written(value))

    def _changed(self, target: ast.Subscript, operator: str, node: ast.AugAssign) -> str:
        """`x[...] += value`, and its like."""
        if self._is_mask(target.slice) and self._is_number(node.value):
            sign = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}[operator]
            return self._filled_where(target, f"{self._read(target)} {sign} {as_operand(self.written(node.value))}")
        return self._put(target, operator, self.written(node.value))

    def _is_number(self, node: ast.expr) -> bool:
        if isinstance(node, ast.UnaryOp):
            return self._is_number(node.operand)
        is_float = isinstance(node, ast.Call) and self.scope.find(node.func) is float
        return is_float or (isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float))

    def _filled_where(self, target: ast.Subscript, value: str) -> str:
        self.model.helpers.add("fill_where")
        x = self._read(target)
        return f"{x} = fill_where({x}, {without_parentheses(self.written(target.slice))}, {value})"

    def _read(self, target: ast.Subscript) -> str:
        holder = self.spans.spliced(target.value, lambda part: self.spans.spliced(part, self.written))
        return f"{holder}[...]" if isinstance(target.value, ast.Attribute) else holder

    def _put(self, target: ast.Subscript, how: str, value: str) -> str:
        if self._is_mask(target.slice):
            self._note("S02, S03: x[mask] = v: gm.masked_fill for a number, gm.masked_scatter for values")
        index = self.written(target.slice)
        index = index[1:-1] if isinstance(target.slice, ast.Tuple) and index.startswith("(") else index
        read = self._read(target)
        return f"{read} = {read}.at[{index}].{how}({value})"
