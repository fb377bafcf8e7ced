"""What eager code asserts of values, or raises for: a `gm.check`, which a graph makes when it runs."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Iterator

from .augmented import Augmented
from .names import torch_name
from .rules import as_operand, without_parentheses

# calls that give what is True or False
_TRUE_OR_FALSE = frozenset(
    [
        "all",
        "any",
        "equal",
        "allclose",
        "is_nonzero",
        "isfinite",
        "isnan",
        "isinf",
        "isclose",
        "logical_not",
        "logical_and",
        "logical_or",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "isin",
    ]
)


class Asserted(Augmented):
    """`assert` and `if ...: raise`, of one class or function."""

    def _raised(self, node: ast.If) -> str | None:
        """`if ...: raise` alone, where it asks for values."""
        last = node.body[0]
        if len(node.body) > 1 or node.orelse or not isinstance(last, ast.Raise) or self.spans.is_elif(node):
            return None
        given = last.exc.args if isinstance(last.exc, ast.Call) else []
        return self._checked(node.test, given[0] if len(given) == 1 else None, negated=True)

    def _printed(self, call: ast.Call) -> str | None:
        """`print` of values, as `jax.debug.print`."""
        parts = [each for arg in call.args for each in (arg.values if isinstance(arg, ast.JoinedStr) else [arg])]
        shown = [each.value if isinstance(each, ast.FormattedValue) else each for each in parts]
        if self._builds or call.keywords or not any(self._is_value(e) or self._is_counted(e) for e in shown):
            return None
        texts, values = [], []
        with self._of_no_number():
            for arg in call.args:
                text = ""
                for each in arg.values if isinstance(arg, ast.JoinedStr) else [arg]:
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        text += _braced(each.value)
                        continue
                    is_in_text = isinstance(each, ast.FormattedValue)
                    spec = ast.unparse(each.format_spec)[2:-1] if is_in_text and each.format_spec else ""  # type: ignore[attr-defined]
                    text += f"{{:{spec}}}" if spec else "{}"
                    values.append(without_parentheses(self._anew(ast.unparse(each.value if is_in_text else each))))  # type: ignore[attr-defined]
                texts.append(text)
        return f"jax.debug.print({', '.join([_quoted(' '.join(texts)), *values])})"

    def _checked_or_noted(self, test: ast.expr, message: ast.expr | None) -> str | None:
        made = self._checked(test, message)
        if made is None:
            self._note("H04: gm.check within gm.checked")
        return made

    def _checked(self, test: ast.expr, message: ast.expr | None, *, negated: bool = False) -> str | None:
        """A condition on values that has to hold, or not to; None where a part of it is one of shapes or settings,
        which may say whether the others mean anything.
        """
        wanted = _negated(test) if negated else test
        holds = self._condition(wanted)
        if holds is None:
            return None
        text, values = _as_format(message, ast.unparse(wanted))
        self.model.imports.add("import graphmode as gm")
        if self._now is not None:
            self.model.counted.add((self.spans.file, self._now.lineno, self._now.col_offset))
        with self._of_no_number():
            further = [f"{name}={without_parentheses(self._anew(value))}" for name, value in values.items()]
        return f"gm.check({', '.join([without_parentheses(holds), text, *further])})"

    def _condition(self, test: ast.expr) -> str | None:
        """A condition on values as a boolean array; None where a part of it is one of shapes or settings."""
        count = len(self._notes[-1])
        with self._of_no_number():
            holds = self._holds(test)
        if holds is None:
            del self._notes[-1][count:]
            return None
        return holds if self._has_no_axes(test) else f"jnp.reshape({without_parentheses(holds)}, ())"

    @contextlib.contextmanager
    def _of_no_number(self) -> Iterator[None]:
        """Where an array without axes is as good as its number."""
        outer, self._notes[-1] = self._notes[-1], []
        yield
        self._notes[-1] = [*outer, *(each for each in self._notes[-1] if not each.startswith("H01: item"))]

    def _has_no_axes(self, node: ast.expr) -> bool:
        """Whether it is known to be a number or a tensor without axes, which one of a single element need not be."""
        if isinstance(node, ast.Compare):
            return all(map(self._has_no_axes, [node.left, *node.comparators]))
        if isinstance(node, ast.BoolOp):
            return all(map(self._has_no_axes, node.values))
        if isinstance(node, ast.UnaryOp | ast.NamedExpr):
            return self._has_no_axes(node.operand if isinstance(node, ast.UnaryOp) else node.value)
        if isinstance(node, ast.BinOp):
            return self._has_no_axes(node.left) and self._has_no_axes(node.right)
        if isinstance(node, ast.Constant) or self._counted_selection(node) is not None:
            return True
        if isinstance(node, ast.Attribute) and self._is_state(node):
            held = getattr(self.model.examples.get(self.owner), node.attr, None)  # type: ignore[arg-type]
            return getattr(held, "ndim", 1) == 0
        if isinstance(node, ast.Name):
            given = self.scope.given.get(node.id, ())
            is_known = bool(given) and None not in given and not any(_names_itself(each, node.id) for each in given)
            return not self._is_tensor(node) or (is_known and all(map(self._has_no_axes, given)))  # type: ignore[arg-type]
        if not isinstance(node, ast.Call):
            return not self._is_tensor(node)
        of_torch = torch_name(self.scope.find(node.func))
        if of_torch is None and not isinstance(node.func, ast.Attribute):
            return ast.unparse(node.func) in ("float", "int", "bool", "len")
        name = of_torch or node.func.attr  # type: ignore[attr-defined]
        if name.rpartition(".")[2] in _REDUCING:
            return len(node.args) == (of_torch is not None) and not node.keywords
        held = node.args[:1] if of_torch is not None else [node.func.value]  # type: ignore[attr-defined]
        is_by_element = name in ("abs", "sqrt", "exp", "log", "isnan", "isfinite", "float", "detach", "logical_not")
        return name in ("item", "equal", "allclose") or (is_by_element and all(map(self._has_no_axes, held)))

    def _holds(self, test: ast.expr) -> str | None:
        """A condition as a boolean array."""
        if isinstance(test, ast.BoolOp):
            parts = [self._holds(each) or "" for each in test.values]
            sign = " & " if isinstance(test.op, ast.And) else " | "
            return f"({sign.join(map(as_operand, parts))})" if all(parts) else None
        is_asked = isinstance(test, ast.Name) and test.id in self._asked  # one that Python's `and` or `not` gave
        if is_asked or not self._asks_for_values(test):
            return None
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._holds(test.operand)
            return None if inner is None else f"~{as_operand(inner)}"
        if isinstance(test, ast.Compare):
            if any(isinstance(each, ast.Is | ast.IsNot | ast.In | ast.NotIn) for each in test.ops):
                return None
            if len(test.ops) == 1:
                return f"({self.written(test)})"
            sides = [test.left, *test.comparators]
            pairs = zip(sides, test.ops, sides[1:], strict=False)
            parts = [f"({self.written(a)} {_SIGNS[type(op)]} {self.written(b)})" for a, op, b in pairs]
            return f"({' & '.join(parts)})"
        if self._is_mask(test) and not isinstance(test, ast.Call):
            return self.written(test)
        called = re.search(r"(\w+)\($", ast.unparse(test.func) + "(") if isinstance(test, ast.Call) else None
        if isinstance(test, ast.Call) and called is None:
            return None
        text = self.written(test)
        return text if called is not None and called[1] in _TRUE_OR_FALSE else f"({as_operand(text)} != 0)"


# calls that leave no axis where they are told none
_REDUCING = frozenset(
    [
        "sum",
        "mean",
        "max",
        "min",
        "std",
        "var",
        "prod",
        "any",
        "all",
        "norm",
        "median",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "count_nonzero",
    ]
)
_OF_CHECK = ("ok", "message")  # parameters of `gm.check`
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


def _names_itself(node: ast.AST | None, name: str) -> bool:
    return node is None or any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _negated(test: ast.expr) -> ast.expr:
    is_negation = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return test.operand if is_negation else ast.UnaryOp(ast.Not(), test)  # type: ignore[attr-defined]


def _as_format(message: ast.expr | None, otherwise: str) -> tuple[str, dict[str, str]]:
    """A message as `gm.check` takes it, as source, and the source of the values that it shows."""
    if isinstance(message, ast.Constant) and isinstance(message.value, str):
        return _quoted(_braced(message.value)), {}
    if not isinstance(message, ast.JoinedStr):
        return _quoted(_braced(otherwise)), {}
    pieces: list[str] = []
    values: dict[str, str] = {}
    for part in message.values:
        if not isinstance(part, ast.FormattedValue):
            pieces.append(_braced(part.value))  # type: ignore[attr-defined]
            continue
        source = ast.unparse(part.value)
        if re.search(r"dtype|device|type\(", source):
            pieces.append(_braced(source))
            continue
        is_free = isinstance(part.value, ast.Name) and source not in _OF_CHECK
        name = source if is_free else f"value{len(values)}"
        values[name] = source
        pieces.append(f"{{{name}}}")
    return _quoted("".join(pieces)), values


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
