"""What is changed in place by `+=` and its like, and what is computed where no gradient is recorded."""

from __future__ import annotations

import ast
import re
from typing import Any

from .initial_values import InitialValues
from .names import torch_name
from .rules import as_operand, without_parentheses
from .writes import GONE

_OPERATORS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}


class Augmented(InitialValues):
    """Of one class or function."""

    def _augmented(self, node: ast.AugAssign) -> str | None:
        """`x += value`, and its like; None where it stays as it is."""
        target: ast.expr = node.target
        operator = _OPERATORS.get(type(node.op))
        if operator is not None and (part := self._part_of_data(target)) is not None:
            with self._recording_no_gradient():
                return self._changed(part, operator, node)
        if isinstance(target, ast.Attribute) and (not self._builds or self._is_state(target)):
            return self._augmented_variable(node, target)
        if isinstance(target, ast.Name) and target.id in self._variables:
            held = f"{target.id}[...]"
            made = f"{held} {self._sign(node)} {as_operand(self.written(node.value))}"
            if self._keeps_its_gradient(target):
                return f"{held} = {self._with_value(target, made)}"
            return f"{held} = {self._stopped_value(target, node.value, made)}"
        if isinstance(target, ast.Name) and not self._in_no_grad:
            self._stopped_names.discard(target.id)
        if isinstance(target, ast.Name) and target.id in self._views:
            self._write_back(target.id)
        elif isinstance(target, ast.Name) and target.id not in self._tensors:
            self._forget_views({target.id})
        if isinstance(target, ast.Subscript):
            is_place = self._holds_tensors(target.value)
            if operator is not None and not is_place and not self._is_part_of_call(target):
                return self._changed(target, operator, node)
        return None

    def _augmented_variable(self, node: ast.AugAssign, target: ast.Attribute) -> str | None:
        if self._is_state(target):
            held = f"self.{target.attr}[...]"
            if not self._is_kept_without(target, node.value):
                between = self.spans.text(self.spans.of(target)[1], self.spans.of(node.value)[0])
                return f"{held}{between}{self.written(node.value)}"
            value = f"{held} {self._sign(node)} {as_operand(self.written(node.value))}"
            return f"{held} = jax.lax.stop_gradient({value})"
        other = self._variable_at(target)
        if other is None:
            return None
        made = f"{other} {self._sign(node)} {as_operand(self.written(node.value))}"
        return self._replaced(
            target, other, self._with_value(target, made) if self._keeps_its_gradient(target) else made
        )

    def _called(self, decorator: ast.expr) -> Any:
        return self.scope.find(decorator.func if isinstance(decorator, ast.Call) else decorator)

    def _sign(self, node: ast.AugAssign) -> str:
        return self.spans.text(self.spans.of(node.target)[1], self.spans.of(node.value)[0]).strip().rstrip("=")

    def _records_no_gradient(self, node: ast.With) -> bool:
        """Whether it is `with torch.no_grad():`, in which only names are given what is computed."""
        names = [torch_name(self._called(each.context_expr)) or "" for each in node.items]
        kinds = [getattr(self._called(each.context_expr), "__name__", "") for each in node.items]
        if self._builds or any(kind not in ("no_grad", "inference_mode") for kind in kinds) or not all(kinds):
            return False
        inside = [each for part in node.body for each in ast.walk(part)]
        return bool(names) and not any(isinstance(each, ast.FunctionDef | ast.With | ast.Yield) for each in inside)

    def _without_gradients(self, node: ast.With) -> str:
        outer = self._in_no_grad, self._no_grad, self._keeps_no_grad
        self._in_no_grad = self._no_grad = self._keeps_no_grad = True
        try:
            return self._branch(node.body)
        finally:
            self._in_no_grad, self._no_grad, self._keeps_no_grad = outer

    def _stopped(self, node: ast.Assign | ast.AugAssign) -> str | None:
        """What a name, or a place of one's own, is given where no gradient is recorded."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        is_of_tensors = self._is_tensor(node.value) or (
            isinstance(node, ast.AugAssign) and self._is_tensor(node.target)
        )
        if isinstance(node.value, ast.Tuple | ast.List | ast.ListComp | ast.Dict):
            is_of_tensors = self._may_have_gradient(node.value)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):  # another name of what has its gradient
            return None
        names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        if not all(map(self._takes_value, targets)) or not is_of_tensors:
            if isinstance(node, ast.Assign) and not self._may_have_gradient(node.value):
                self._stopped_names |= names
            if isinstance(node.value, ast.Call) and not is_of_tensors:
                self._note("G04: jax.lax.stop_gradient, if it is an array")
            return None
        value = without_parentheses(self.written(node.value))
        if isinstance(node.value, ast.Tuple) and not value.startswith("("):
            value = f"({value})"
        begin = " = ".join(map(self.written, targets))
        is_kept = isinstance(node, ast.AugAssign) and self._keeps_its_gradient(node.target)
        self._stopped_names |= set() if is_kept else names
        if isinstance(node, ast.Assign):
            return f"{begin} = jax.lax.stop_gradient({value})"
        made = f"{begin} {self._sign(node)} {as_operand(value)}"
        return f"{begin} = {self._with_value(node.target, made) if is_kept else f'jax.lax.stop_gradient({made})'}"

    def _takes_value(self, target: ast.expr) -> bool:
        """Whether it is a name, several, a place in a list, or an attribute of one's own that is no variable."""
        if isinstance(target, ast.Subscript):
            return isinstance(target.value, ast.Name) and self._is_list(target.value)
        return isinstance(target, ast.Name | ast.Tuple) or (self._is_own(target) and not self._is_state(target))

    def _with_stopped(self, call: ast.Call) -> str | None:
        """A call for what it does with values, where no gradient is recorded."""
        given = {id(each) for each in (*call.args, *(each.value for each in call.keywords))}

        def written(part: ast.AST) -> str:
            text = self.written(part)
            is_stopped = id(part) in given and self._is_tensor(part) and self._may_have_gradient(part)  # type: ignore[arg-type]
            return f"jax.lax.stop_gradient({without_parentheses(text)})" if is_stopped else text

        return self.spans.spliced(call, written) if self._may_have_gradient(*call.args) else None

    def _branch(self, block: list[ast.stmt]) -> str:
        """The statements of a branch that is always taken, where the branching stood."""
        if not block:
            return GONE
        if self.spans.is_elif(block[0]) and len(block) == 1:  # which is no statement by itself, and stands no deeper
            return re.sub(r"^elif\b", "if", self.written(block[0]))
        inner = self.spans.indent(block[0]) or ""
        pieces, at = [], self.spans.of(block[0])[0]
        for each in block:
            start, end = self.spans.of(each)
            pieces += [self.spans.text(at, start), self.written(each)]
            at = end
        return "".join(pieces).replace(f"\n{inner}", f"\n{inner[:-4]}")
