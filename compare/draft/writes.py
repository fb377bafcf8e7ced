"""What is written in place, as new arrays that take the place of those before."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Iterator
from types import FunctionType
from typing import TypeGuard

from .in_place import Writer, writer, written_to
from .kinds import Kind
from .model import is_method, is_self
from .names import torch_name
from .rules import as_operand, in_parentheses, without_parentheses
from .views import COMPUTED, Views

# of these too, an element of the result is of the same element of what is given
_CASTS = frozenset(["to", "float", "double", "half", "bfloat16", "long", "int", "bool", "type", "clone"])


GONE = "\0"  # stands for a statement that has no counterpart


class Writes(Views):
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
        if isinstance(holder, ast.Name) and holder.id in self._variables:
            return f"{holder.id}[...]"
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

    def _in_place_of_torch(self, call: ast.Call) -> str | None:
        """`F.relu_(x)` alone: a new array in place of the argument."""
        holder = call.args[0] if call.args else None
        if not isinstance(holder, ast.Name | ast.Attribute | ast.Subscript) or self._is_part_of_call(holder):
            self._note(f"M01: {ast.unparse(call.func)} writes in place: a new array in its place")
            return None
        if isinstance(holder, ast.Name) and holder.id in self._views:
            self._write_back(holder.id)
        target = self.written(holder) if isinstance(holder, ast.Attribute) else self._target(holder)
        return self._replaced(holder, target, without_parentheses(self.written(call)))

    def _is_part_of_several(self, target: ast.expr) -> bool:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        return any(map(self._is_part_of_tensor, parts))

    def _is_part_of_tensor(self, target: ast.expr) -> TypeGuard[ast.Subscript]:
        """Whether it is a part of a tensor, rather than a place in a list or a mapping of them."""
        if not isinstance(target, ast.Subscript) or not self._is_tensor(target.value):
            return False
        return not self._is_list(target.value) and not self._is_mapping(target.value, target.slice)

    def _is_part_of_call(self, target: ast.expr) -> bool:
        """Whether it is a part of what a call gives, as `x.t()[0]` is, which is noted: no new array fits there."""
        part = target
        while isinstance(part, ast.Subscript):
            part = part.value
        is_turned = isinstance(part, ast.Attribute) and part.attr in ("T", "mT", "H", "mH") and self._is_tensor(part)
        if isinstance(target, ast.Subscript) and (isinstance(part, ast.Call) or is_turned):
            self._note("M01: what is written to is a view: a new array in place of what it is of")
            return True
        return False

    def _in_place(self, function: ast.Attribute, call: ast.Call, name: str) -> str | None:
        holder = written_to(function.value)
        if isinstance(holder, ast.Name) and holder.id in self._views:
            self._write_back(holder.id)
        if not isinstance(holder, ast.Name | ast.Attribute | ast.Subscript):
            self._note(f"M01: {name}_ writes in place: a new array in its place")
            return None
        if self._is_part_of_call(holder):
            return None
        if isinstance(holder, ast.Name):  # sets and lists have no method of such a name
            self._tensors.add(holder.id)
            if not self._in_no_grad and holder.id not in self._variables:
                self._stopped_names.discard(holder.id)
        target = self.written(holder) if isinstance(holder, ast.Attribute) else self._target(holder)
        fills = {"zero": f"jnp.zeros_like({target})", "fill": f"jnp.full_like({target}, {{}})", "copy": "{}"}
        if name in fills:
            filled = fills[name].format(*(self.written(each) for each in call.args))
            return self._replaced(holder, target, self._without_gradient(function.value, filled, call))
        made = self._method(function, call, name)
        made = None if made is None else without_parentheses(made)
        if made is None:
            self._note(f"M01: {name}_ writes in place: a new array in its place")
            return None
        return self._replaced(holder, target, self._without_gradient(function.value, made, call))

    def _without_gradient(self, written: ast.expr, made: str, call: ast.Call) -> str:
        """What is written into `.data`, which records no gradient, or where none is recorded."""
        is_data = isinstance(written, ast.Attribute) and written.attr == "data"
        is_data = is_data or (isinstance(written, ast.Call) and ".data." in ast.unparse(written.func))
        if self._builds:
            return made
        if is_data:
            return self._with_value(written, made)
        held = of_what(written_to(written))
        if self._keeps_its_gradient(held):
            return self._with_value(written, made)
        return f"jax.lax.stop_gradient({made})" if self._is_kept_without(held, call) else made

    def _keeps_its_gradient(self, held: ast.expr) -> bool:
        """Whether it has the gradient that it had, whatever is written into it, where none is recorded."""
        if isinstance(held, ast.Name):
            is_local = self._keeps_no_grad if held.id in self._variables else self._in_no_grad
            return is_local and held.id in self._tensors - self._stopped_names
        if isinstance(held, ast.Attribute) and (modules := self.modules_at(held.value)):
            return self._keeps_no_grad and all(held.attr in each._parameters for each in modules)
        return self._keeps_no_grad and self._is_state(held) and not self._is_buffer(held)

    def _is_kept_without(self, target: ast.expr, *given: ast.expr) -> bool:
        """Whether what is written into a buffer, or a local name, has a gradient that PyTorch does not record."""
        held = of_what(target)
        is_name = isinstance(held, ast.Name) and (self._in_no_grad or held.id in self._variables)
        return self._keeps_no_grad and (is_name or self._is_buffer(held)) and self._may_have_gradient(*given)

    def _with_value(self, written: ast.expr, made: str) -> str:
        """What has another value than what stood there, whose gradient it keeps."""
        holder = written_to(written)
        if self._is_buffer(holder):
            return f"jax.lax.stop_gradient({made})"
        self.model.helpers.add("with_value")
        return f"with_value({self.written(holder)}, {made})"

    def _replaced(self, holder: ast.expr, target: str, made: str) -> str:
        """A new array in place of one, or one with other values in place of a part of it."""
        made = in_parentheses(made)
        is_part = isinstance(holder, ast.Subscript) and self._is_tensor(holder.value)
        if is_part:
            return self._put(holder, "set", made)  # type: ignore[arg-type]
        held, turned, axes = target.partition("[...].")  # of a weight that lies otherwise here
        if not turned:
            return f"{target} = {made}"
        order = [int(axis) for axis in re.findall(r"\d", axes)]
        back = f"transpose({', '.join(str(order.index(i)) for i in range(len(order)))})" if order else axes
        return f"{held}[...] = {as_operand(made)}.{back}"

    def _part_of_data(self, target: ast.expr) -> ast.Subscript | None:
        """`x[i]` of `x.data[i]`, which records no gradient."""
        held = target.value if isinstance(target, ast.Subscript) else None
        is_data = isinstance(held, ast.Attribute) and held.attr == "data" and self._is_tensor(held.value)
        if self._builds or not is_data or isinstance(held.value, ast.Call | ast.Subscript):  # type: ignore[union-attr]
            return None
        part = ast.Subscript(held.value, target.slice, ast.Store())  # type: ignore[attr-defined, union-attr]
        return ast.copy_location(part, target)

    @contextlib.contextmanager
    def _recording_no_gradient(self) -> Iterator[None]:
        outer = self._in_no_grad, self._keeps_no_grad
        self._in_no_grad = self._keeps_no_grad = True
        try:
            yield
        finally:
            self._in_no_grad, self._keeps_no_grad = outer

    def _put_values(self, target: ast.Subscript, value: ast.expr) -> str:
        """`x[...] = value`."""
        if self._is_mask(target.slice) and self._is_by_element(value, ast.unparse(target.slice)):
            whole = self._of_whole(value, ast.unparse(target.slice))
            return self._filled_where(target, self._stopped_value(target, value, whole))
        return self._put(target, "set", self._stopped_value(target, value, self.written(value)))

    def _stopped_value(self, target: ast.expr, value: ast.expr, text: str) -> str:
        """What a part is given, without the gradient that PyTorch does not record."""
        if not self._is_kept_without(target, value):
            return text
        return f"jax.lax.stop_gradient({without_parentheses(text)})"

    def _is_by_element(self, value: ast.expr, mask: str) -> bool:
        """Whether it is a number, or is computed of parts under the same mask, each element for itself."""
        if self._is_number(value):
            return True
        if isinstance(value, ast.Subscript):
            return ast.unparse(value.slice) == mask
        if isinstance(value, ast.Name) and value.id in self._selected:
            return self._selected[value.id] == mask
        if isinstance(value, ast.UnaryOp):
            return self._is_by_element(value.operand, mask)
        if isinstance(value, ast.BinOp) and not isinstance(value.op, ast.MatMult):
            return self._is_by_element(value.left, mask) and self._is_by_element(value.right, mask)
        if not isinstance(value, ast.Call) or any(each.arg not in ("min", "max") for each in value.keywords):
            return False
        of_torch = torch_name(self.scope.find(value.func))
        method = value.func if isinstance(value.func, ast.Attribute) else None
        given = value.args if of_torch is not None or method is None else [method.value, *value.args]
        name = of_torch or (method.attr if method is not None else "")
        return name in _CASTS.union(COMPUTED.split()) and all(
            self._is_by_element(x, mask) or self._is_dtype(x) for x in given
        )

    def _of_whole(self, value: ast.expr, mask: str) -> str:
        """A value that is computed of parts under a mask, computed of the whole."""
        self._under_mask = mask
        try:
            return self.written(value)
        finally:
            self._under_mask = ""

    def _changed(self, target: ast.Subscript, operator: str, node: ast.AugAssign) -> str:
        """`x[...] += value`, and its like."""
        if self._is_mask(target.slice) and self._is_by_element(node.value, ast.unparse(target.slice)):
            sign = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}[operator]
            whole = self._of_whole(node.value, ast.unparse(target.slice))
            value = as_operand(self._stopped_value(target, node.value, whole))
            return self._filled_where(target, f"{self._read(target)} {sign} {value}")
        return self._put(target, operator, self._stopped_value(target, node.value, self.written(node.value)))

    def _is_number(self, node: ast.expr) -> bool:
        return self._kind(node) is Kind.NUMBER

    def _filled_where(self, target: ast.Subscript, value: str) -> str:
        self.model.helpers.add("fill_where")
        x = self._read(target)
        mask, value = (without_parentheses(each) for each in (self.written(target.slice), value))
        if self._is_part_of_part(target):
            made = f"fill_where({self.written(target.value)}, {mask}, {value})"
            return self._put(target.value, "set", made)  # type: ignore[arg-type]
        return f"{x} = {self._keeping_gradient(target, x, f'fill_where({x}, {mask}, {value})')}"

    def _keeping_gradient(self, target: ast.Subscript, read: str, made: str) -> str:
        if not self._keeps_its_gradient(of_what(target)):
            return made
        self.model.helpers.add("with_value")
        return f"with_value({read}, {made})"

    def _read(self, target: ast.Subscript) -> str:
        if isinstance(target.value, ast.Name) and target.value.id in self._variables:
            return f"{target.value.id}[...]"
        holder = self.spans.spliced(target.value, lambda part: self.spans.spliced(part, self.written))
        is_array = self._is_own(target.value) and self._is_plain_array(target.value)
        return f"{holder}[...]" if isinstance(target.value, ast.Attribute) and not is_array else holder

    def _is_plain_array(self, node: ast.Attribute) -> bool:
        """Whether an attribute of the class's own is an array, and no parameter or buffer."""
        held = self.model.variables.get(self.owner, ()) if self.owner is not None else ()
        return node.attr not in held and self._kind(node) is Kind.ARRAY

    def _put(self, target: ast.Subscript, how: str, value: str) -> str:
        if self._is_mask(target.slice):
            self._note("S02, S03: x[mask] = v: gm.masked_fill for a number, gm.masked_scatter for values")
        self._learn_slices(target.slice)
        index = self.written(target.slice)
        index = index[1:-1] if isinstance(target.slice, ast.Tuple) and index.startswith("(") else index
        turned = self._variable_at(target.value) if isinstance(target.value, ast.Attribute) else None
        if turned is not None and not turned.endswith("[...]"):
            made = self._keeping_gradient(target, turned, f"{turned}.at[{index}].{how}({value})")
            return self._replaced(target.value, turned, made)
        if self._is_part_of_part(target):
            whole = as_operand(self.written(target.value))
            return self._put(target.value, "set", f"{whole}.at[{index}].{how}({value})")  # type: ignore[arg-type]
        read = self._read(target)
        return f"{read} = {self._keeping_gradient(target, read, f'{read}.at[{index}].{how}({value})')}"

    def _is_part_of_part(self, target: ast.Subscript) -> bool:
        """Whether what it is a part of is a part of a tensor itself, rather than an element of a list."""
        outer = target.value
        if not isinstance(outer, ast.Subscript) or not self._is_tensor(outer.value) or self._holds_tensors(outer.value):
            return False
        parts = outer.slice.elts if isinstance(outer.slice, ast.Tuple) else [outer.slice]
        is_sliced = isinstance(outer.slice, ast.Tuple) or any(isinstance(each, ast.Slice) for each in parts)
        return is_sliced or self._is_state(outer.value) or self._seen(outer.value) == "Tensor"


def of_what(part: ast.expr) -> ast.expr:
    """What a part is of."""
    while isinstance(part, ast.Subscript):
        part = part.value
    return part
