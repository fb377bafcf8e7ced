"""Names, attributes and parts of tensors, as a port has them."""

from __future__ import annotations

import ast
import copy
from types import ModuleType

import torch

from .huggingface import gives_activation
from .known_objects import KnownObjects
from .model import is_module, is_self, layer_of
from .names import UNKNOWN, is_of_torch
from .rules import as_operand, without_parentheses
from .settled import settled
from .spans import Spans
from .weight_layout import sizes_of, turn_of


class Expressions(KnownObjects):
    """What the code of one class or function says, expression by expression."""

    def written(self, node: ast.AST) -> str:
        """The text of a node in the port."""
        made = self._expression(node) if isinstance(node, ast.expr) else None
        return self.spans.spliced(node, self.written) if made is None else made

    def _call(self, node: ast.Call) -> str | None:
        raise NotImplementedError

    def _pair(self, node: ast.Call) -> tuple[str, str] | None:
        raise NotImplementedError

    def _asks_for_values(self, test: ast.expr) -> bool:
        raise NotImplementedError

    def _count_of_selected(self, node: ast.expr) -> str | None:
        raise NotImplementedError

    def _condition(self, test: ast.expr) -> str | None:
        raise NotImplementedError

    def _has_condition(self, test: ast.expr) -> bool:
        """Whether a condition on values is written as an array."""
        count = len(self._notes[-1])
        made = self._condition(test)
        del self._notes[-1][count:]
        return made is not None

    def _has_no_axes(self, node: ast.expr) -> bool:
        raise NotImplementedError

    def _chosen(self, node: ast.IfExp) -> str | None:
        raise NotImplementedError

    def _expression(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Subscript | ast.Call) and gives_activation(node, self.scope):
            self.model.helpers.add("activation_named")
            self.model.imports |= {"from functools import partial", "from typing import Any"}
            return f"activation_named({self.written(node.slice if isinstance(node, ast.Subscript) else node.args[0])})"
        if self._builds and isinstance(node, ast.Dict) and self._says_where(node):  # layers here take neither
            return "{}"
        if isinstance(node, ast.Call):
            return self._size_of_weight(node) or self._call(node)
        if id(node) in self._bare and isinstance(node, ast.Attribute):
            return f"{'self' if is_self(node.value) else self.written(node.value)}.{node.attr}"
        if id(node) in self._taking and isinstance(node, ast.Attribute):
            return f"self.{node.attr}[...]"
        if isinstance(node, ast.Name) and node.id in self._variables and isinstance(node.ctx, ast.Load):
            return f"{node.id}[...]"
        if isinstance(node, ast.Name) and self._under_mask and self._is_selection(node) and self._put_aside:
            return self._put_aside.replace("{}", node.id)
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            return self._renamed.get(id(node)) or self._reference(node)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot) and self._is_own(node.left):
            return self.spans.spliced(node, lambda part: ast.unparse(part) if part is node.left else self.written(part))
        if isinstance(node, ast.Compare) and not self._names_types and self._compares_classes(node):
            with self._in_types():
                return self.spans.spliced(node, self.written)
        if isinstance(node, ast.JoinedStr):
            return self._formatted(node)
        if isinstance(node, ast.BoolOp) and (made := self._what_is_open(node)) is not None:
            return made
        if isinstance(node, ast.IfExp) and (always := settled(node.test, self.scope)) is not None:
            return self.written(node.body if always else node.orelse)
        if isinstance(node, ast.IfExp) and self._asks_for_values(node.test):
            if (made := self._chosen(node)) is not None:
                return made
            self._note("C01: a branch on values: gm.cond, or jnp.where")
        if isinstance(node, ast.Subscript) and self._is_own(node.value) and node.value.attr == "_modules":
            return f"getattr(self, {self.written(node.slice)})"
        if (
            isinstance(node, ast.UnaryOp)
            and isinstance(node.op, ast.Not)
            and ast.unparse(node.operand) == "self.training"
        ):
            return "self.use_running_average"
        is_joined = isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
        if is_joined and not self._builds and self._asks_for_values(node):
            return self._condition(node)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and self._is_of_parameters(node.value):
            return f"{self.spans.spliced(node, self.written)}[...]"
        if isinstance(node, ast.Subscript) and self._under_mask and ast.unparse(node.slice) == self._under_mask:
            whole = self.written(node.value)
            return self._put_aside.replace("{}", without_parentheses(whole)) if self._put_aside else whole
        if isinstance(node, ast.Slice) and not self._builds:
            return self._slice(node)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            if not self._builds and (made := self._count_of_selected(node)) is not None:
                return made
            self._learn_slices(node.slice)
            if self._is_mask(node.slice) and self._is_tensor(node.value):
                self._note("S01: x[mask]: gm.compact with a capacity, or what follows under the mask")
            return self._size_of_weight(node) or self._part_of_pair(node.value, node.slice)
        return None

    def _learn_slices(self, index: ast.expr) -> None:
        """The slice of an index, if it is the one that stands beside whole axes only, so that numbers may take its
        place."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        slices = [each for each in parts if isinstance(each, ast.Slice)]
        others = [each for each in parts if not isinstance(each, ast.Slice | ast.Constant)]
        numbers = [each for each in parts if isinstance(each, ast.Constant) and type(each.value) is int]
        moved = [each for each in slices if self._is_counted(each.lower) or self._is_counted(each.upper)]
        if len(moved) == 1 and not others and not numbers:
            self._lone_slices.add(id(moved[0]))

    def _slice(self, node: ast.Slice) -> str | None:
        """A part whose bounds only a run knows: by numbers where its length is known, else noted."""
        if not self._is_counted(node.lower) and not self._is_counted(node.upper):
            return None
        length = self._length(node.lower, node.upper) if node.step is None else None
        if length is None or id(node) not in self._lone_slices:
            self._note("H01: a slice whose bounds are values: jax.lax.dynamic_slice, or a mask of positions")
            return None
        return f"{as_operand(self.written(node.lower))} + jnp.arange({without_parentheses(self.written(length))})"  # type: ignore[arg-type]

    def _length(self, lower: ast.expr | None, upper: ast.expr | None) -> ast.expr | None:
        """How long `a : a + n` is, if that is known."""
        if lower is None or not isinstance(upper, ast.BinOp) or not isinstance(upper.op, ast.Add):
            return None
        begin = ast.unparse(lower)
        pairs = (upper.left, upper.right), (upper.right, upper.left)
        length = next((other for same, other in pairs if ast.unparse(same) == begin), None)
        return None if length is None or self._is_counted(length) else length

    def _as_number(self, node: ast.expr) -> str:
        """A tensor of one element, without axes where it may have some."""
        text = self.written(node)
        if not self._is_state(node):  # a number has no gradient
            is_stopped = self._may_have_gradient(node)
            return f"jax.lax.stop_gradient({without_parentheses(text)})" if is_stopped else text
        name, holders = node.attr, self.modules_at(node.value)  # type: ignore[attr-defined]
        sizes = [getattr(each, name).ndim for each in holders if isinstance(getattr(each, name, None), torch.Tensor)]
        return text if sizes and not any(sizes) else f"{text}.reshape(())"

    def _size_of_weight(self, node: ast.Subscript | ast.Call) -> str | None:
        """A size of the weight of the layer that a class is derived from, as the layer has it."""
        index = node.slice if isinstance(node, ast.Subscript) else node.args[0] if node.args else None
        shape = node.value if isinstance(node, ast.Subscript) else node.func
        if isinstance(shape, ast.Call) and not shape.args:
            shape = shape.func
        if index is None or not isinstance(shape, ast.Attribute) or shape.attr not in ("shape", "size"):
            return None
        layer = layer_of(self.owner)
        if not self._is_own(shape.value) or shape.value.attr != "weight" or not turn_of(layer):
            return None
        return sizes_of(layer).get(ast.unparse(index))  # type: ignore[arg-type]

    def _formatted(self, node: ast.JoinedStr) -> str | None:
        """A text with values in it, as it was typed where Python can read that; None where no value is another."""
        text, made = self.spans.text(*self.spans.of(node)), copy.deepcopy(node)
        for part in (each for each in ast.walk(made) if isinstance(each, ast.FormattedValue)):
            value = ast.unparse(part.value)
            part.value = ast.Name(self._anew(value))
            text = text.replace(f"{{{value}", f"{{{part.value.id}") if part.value.id != value else text
        whole = ast.unparse(made)
        if whole == ast.unparse(node):
            return None
        return text if _is_read_as(text, whole) else whole

    def _anew(self, text: str) -> str:
        """An expression that has no place of its own in the file."""
        outer, self.spans = self.spans, Spans(text)
        try:
            return self.written(ast.parse(text, mode="eval").body)
        finally:
            self.spans = outer

    def _compares_classes(self, node: ast.Compare) -> bool:
        """Whether classes of modules are compared, which stand for their kinds there."""
        named = [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)]
        return any(is_module(self.scope.find(each)) for each in named)

    def _what_is_open(self, node: ast.BoolOp) -> str | None:
        """The parts of a condition that are not settled, joined; None where all or none of them are."""
        passes = isinstance(node.op, ast.And)
        left = [each for each in node.values if settled(each, self.scope) is not passes]
        if len(left) in (0, len(node.values)):
            return None
        text = f" {'and' if passes else 'or'} ".join(map(self.written, left))
        return text if len(left) == 1 else f"({text})"

    def _part_of_pair(self, value: ast.expr, index: ast.expr) -> str | None:
        if isinstance(index, ast.Constant) and index.value in (0, 1) and isinstance(value, ast.Call):
            pair = self._pair(value)
            return None if pair is None else pair[1 if index.value else 0]
        return None

    def _reference(self, node: ast.Attribute | ast.Name) -> str | None:
        found = self.scope.find(node)
        if found is not UNKNOWN and not isinstance(found, ModuleType):
            return self._named(node, found)
        if found is torch.nn:
            return "nn"
        if isinstance(node, ast.Name):
            return self._name(node.id, found)
        if node.attr in ("values", "indices") and isinstance(node.value, ast.Call):
            pair = self._pair(node.value)
            if pair is not None:
                return pair[node.attr == "indices"]
        if is_self(node.value):
            return self._own(node.attr)
        if node.attr == "training" and isinstance(node.value, ast.Name):
            return f"(not {node.value.id}.use_running_average)"
        if node.attr == "device" and not is_self(node.value):  # a graph's arrays are where it runs
            return "None"
        if node.attr == "type" and isinstance(node.value, ast.Attribute) and node.value.attr == "device":
            return '"cpu"'
        if node.attr == "saved_variables":
            return f"{self.written(node.value)}.saved_tensors"
        if node.attr == "requires_grad":
            self._note("requires_grad: False here; of what a gradient is taken, jax.grad says where it is called")
            return "False"
        if isinstance(node.ctx, ast.Load) and settled(node, self.scope) is False:
            return "False"
        if node.attr == "data" and isinstance(node.value, ast.Name) and node.value.id in self._packed:
            self._note(f"{ast.unparse(node)}: as many steps as the lengths say: .padded, and a mask of what is real")
            return None
        if node.attr == "data":
            text = self.written(node.value)
            return as_operand(text) if self._builds or self._is_buffer(node.value) else f"jax.lax.stop_gradient({text})"
        if node.attr == "dtype" and isinstance(node.value, ast.Attribute) and node.value.attr in ("weight", "bias"):
            return f"{self.written(node.value.value)}.{node.value.attr}.dtype"
        if self._is_container(node.value) and not self._builds:
            held = self.model.instances[self.owner, node.value.attr]  # type: ignore[index]
            is_variable = node.attr in {*held._parameters, *held._buffers}
            return f"{self.written(node.value)}.{node.attr}[...]" if is_variable else None
        if not self._builds and isinstance(node.ctx, ast.Load) and (variable := self._variable_at(node)) is not None:
            return variable
        if node.attr in ("weight", "bias") and isinstance(node.value, ast.Attribute) and is_self(node.value.value):
            return self._of_child(node, node.value.attr)
        return None

    def _variable_at(self, node: ast.Attribute) -> str | None:
        """A parameter or buffer of another module, turned to PyTorch's layout where it lies otherwise here."""
        if is_self(node.value):
            return None
        found = self.modules_at(node.value)
        if not found and node.attr == "weight" and self._may_be_layer(node.value):
            told = ast.unparse(node.value)
            self._note(f"{told}.weight: where {told} is a linear or convolutional layer, it lies otherwise: .T of it")
        name = node.attr
        held: list[dict[str, torch.Tensor | None]] = [{**each._parameters, **each._buffers} for each in found]
        if not found or any(each.get(name) is None for each in held):
            return None
        turns = {turn_of(type(each)) if name == "weight" else "" for each in found}
        if len(turns) > 1:
            self._note(f"{ast.unparse(node)} lies otherwise in some of these layers: .T of it there")
            return f"{self.written(node.value)}.{name}[...]"
        return f"{self.written(node.value)}.{name}[...]{turns.pop()}"

    def _may_be_layer(self, node: ast.expr) -> bool:
        """Whether a name, or what is reached from one, may be a layer whose weight lies otherwise here."""
        if self._is_tensor(node) or not any(map(turn_of, self.model.kinds)):
            return False
        root = node
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        seen = self.model.observed.kinds.get(self._key(self._code), {}) if self._code is not None else {}
        is_local = isinstance(root, ast.Name) and root.id in self.scope.local and root.id not in ("self", "ctx")
        return is_local and (root is not node or root.id not in seen)  # type: ignore[attr-defined]

    def _of_child(self, node: ast.Attribute, name: str) -> str | None:
        """A parameter of a module inside, turned to PyTorch's layout where it lies otherwise here."""
        kind = self.model.children.get(self.owner, {}).get(name) if self.owner is not None else None
        if kind is None or not is_of_torch(kind):
            return None
        if any(getattr(each, node.attr, None) is None for each in self.modules_at(node.value)):
            return f"{self.written(node.value)}.{node.attr}"  # which may be None
        return f"{self.written(node.value)}.{node.attr}[...]{turn_of(kind) if node.attr == 'weight' else ''}"

    def _own(self, name: str) -> str | None:
        if name == "_modules":
            self._note("self._modules: PyTorch's; take the layers by their names")
        if name == "training":
            return "(not self.use_running_average)"
        turn = turn_of(layer_of(self.owner)) if name == "weight" else ""
        is_read = self.owner is not None and name in self.model.variables.get(self.owner, ())
        if is_read and (turn or not self._builds):
            return f"self.{name}[...]{'' if self._as_laid else turn}"
        return None


def _is_read_as(text: str, other: str) -> bool:
    """Whether Python reads both texts as one expression."""
    try:
        return ast.dump(ast.parse(f"({text})")) == ast.dump(ast.parse(f"({other})"))
    except SyntaxError:
        return False
