"""Branches on values, which a graph has as `gm.cond`: both are traced, and one of them runs."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import NamedTuple

import torch

from .arguments import all_arguments
from .asserted import Asserted
from .draws import STREAM
from .later import read_later
from .rules import without_parentheses

DEEPER = "    "
_SHORT = 60  # characters of both expressions, in one line
# kinds that are no operands of a branch
_NO_ARRAYS = ("list", "dict", "str", "NoneType", "set")
# what may stand alone in a branch: it changes nothing that the branch does not give
_HARMLESS = re.compile(r"(gm\.check|gm\.cond|gm\.debug_print|jax\.debug\.\w+|self\.[\w.]+)\(")
_WRITES_STATE = re.compile(r"\bself\.[\w.]+\[\.\.\.\]\s*[-+*/@]?=(?!=)")
_DROPOUTS = torch.nn.modules.dropout._DropoutNd


class Branch(NamedTuple):
    """What a branch is in the port: its statements, the space before them, and the same parsed."""

    text: str
    indent: str
    tree: ast.Module


class Branches(Asserted):
    """`if`, `elif` and `else`, and `a if ... else b`, of one class or function."""

    def _block(self, block: Sequence[ast.stmt]) -> str:
        """Statements, one after the other; where one returns if values say so, it has the rest as what is otherwise."""
        pieces, at = [], self.spans.of(block[0])[0]
        for i, each in enumerate(block):
            start, end = self.spans.of(each)
            self._rest[id(each)] = block[i + 1 :]
            pieces += [self.spans.text(at, start), self.written(each)]
            del self._rest[id(each)]
            at = end
            if id(each) in self._with_rest:
                self._with_rest.discard(id(each))
                break
        return "".join(pieces)

    def _branched(self, node: ast.If) -> str | None:
        """The whole as a call of `gm.cond`; None where a branch does what no function can give."""
        indent, rest = self.spans.indent(node), self._rest.get(id(node), ())
        returns = _always_returns(node.body)
        is_chain = len(node.orelse) == 1 and self.spans.is_elif(node.orelse[0])
        takes_rest = returns and not _always_returns(node.orelse) and (is_chain or not node.orelse)
        other = node.orelse or (rest if takes_rest else [])
        if indent is None or self._code is None or self._builds or self._given_back:
            return None
        if self.spans.is_elif(node) and id(node) not in self._as_if:
            return None
        if returns is not _always_returns([*other, *rest] if takes_rest else other):
            return None
        if not returns and not falls_through([*node.body, *other]):
            return None
        if any(has_long_text(each) for each in (*node.body, *other)):
            return None
        holds = self._condition(node.test)
        if holds is None:
            return None
        if takes_rest and is_chain:
            self._rest[id(node.orelse[0])] = rest
        branches = [self._of_branch(node.body, self.spans.of(node.test)[1], indent)]
        branches.append(self._of_branch(other, self.spans.of(node.body[-1])[1], indent))
        if takes_rest and is_chain:
            del self._rest[id(node.orelse[0])]
        made = None if None in branches else self._as_functions(node, holds, branches, returns=returns)  # type: ignore[arg-type]
        if made is None:
            return None
        if takes_rest and is_chain:
            if id(node.orelse[0]) not in self._with_rest:
                return None
            self._with_rest.discard(id(node.orelse[0]))
        if takes_rest:
            self._with_rest.add(id(node))
        self.model.imports.add("import graphmode as gm")
        self.model.counted.add((self.spans.file, node.lineno, node.col_offset))
        return at_indent(made, indent)

    def _of_branch(self, block: Sequence[ast.stmt], begin: int, indent: str) -> Branch | None:
        """One branch, with the comments that stand before it."""
        if not block:
            return Branch("", indent + DEEPER, ast.Module([], []))
        start = self.spans.of(block[0])[0]
        if len(block) == 1 and self.spans.is_elif(block[0]):
            self._as_if.add(id(block[0]))
            text = re.sub(r"^elif\b", "if", self.written(block[0]))
            self._as_if.discard(id(block[0]))
            inner = indent
        else:
            text, inner = self._block(block), self.spans.indent(block[0]) or indent + DEEPER
        comments = re.findall(r"#.*", self.spans.text(begin, start))
        text = "".join(f"{each}\n{inner}" for each in comments) + text
        if inner == indent:
            text, inner = re.sub(r"\n(?=[^\n])", f"\n{DEEPER}", text), indent + DEEPER
        try:
            tree = ast.parse(textwrap.dedent(f"{inner}{text}\n"))
        except SyntaxError:
            return None
        return Branch(text, inner, tree) if all(map(_is_given, ast.walk(tree))) else None

    def _as_functions(self, node: ast.If, holds: str, branches: list[Branch], *, returns: bool) -> str | None:
        assert self._code is not None
        bound = list(dict.fromkeys(name for each in branches for name in stored(each.tree)))
        known = known_before(node, self._code)
        given = [] if returns else [name for name in bound if read_later(self._code, node, name)]
        taken = [
            name
            for name in bound
            if any(reads_first(each.tree, name) or (name in given and not binds(each.tree, name)) for each in branches)
        ]
        if not set(taken) <= known or any(map(self._is_no_array, taken)):
            return None
        texts = [each.text for each in branches]
        changes = any(map(self._changes, texts))
        if any(re.search(rf"(?<!self\.)\b{STREAM}\b", text) for text in texts) or not (given or returns or changes):
            return None
        operands = ["self"] * changes + taken
        self._forget_views(set(bound))
        self._tensors |= set(given)
        functions, before = self._functions(branches, operands, given, returns=returns)
        call = f"gm.cond({', '.join([without_parentheses(holds), *functions, *operands])})"
        target = "return " if returns else f"{', '.join(given)} = " if given else ""
        return f"{before}{target}{call}"

    def _functions(
        self, branches: list[Branch], operands: list[str], given: list[str], *, returns: bool
    ) -> tuple[list[str], str]:
        """What `gm.cond` is given, and the definitions before it where a branch is more than one expression."""
        values = [_one_value(each, given, returns=returns) for each in branches]
        takes = f"lambda {', '.join(operands)}:" if operands else "lambda:"
        is_short = None not in values and sum(map(len, map(str, values))) < _SHORT
        if is_short and not any("\n" in str(value) for value in values):
            return [f"{takes} {value}" for value in values], ""
        definitions = []
        for name, branch in zip(("true_fn", "false_fn"), branches, strict=True):
            text = branch.text.replace("\n", f"\n{KEPT}")
            gives = "" if returns or not given else f"return {', '.join(given)}"
            lines = [each for each in (text, gives) if each] or ["pass"]
            body = f"\n{KEPT}{branch.indent}".join(lines)
            definitions.append(f"def {name}({', '.join(operands)}):\n{KEPT}{branch.indent}{body}\n\n")
        return ["true_fn", "false_fn"], "".join(definitions)

    def _is_no_array(self, name: str) -> bool:
        values = self.scope.given.get(name, ())
        is_container = any(isinstance(each, ast.List | ast.Dict | ast.Set | ast.ListComp) for each in values)
        is_none = any(isinstance(each, ast.Constant) and each.value is None for each in values)
        return is_container or is_none or self._seen(ast.Name(name)) in _NO_ARRAYS

    def _changes(self, text: str) -> bool:
        """Whether a branch may change variables of the module: buffers, or what draws numbers."""
        if self.owner is None:
            return False
        return _WRITES_STATE.search(text) is not None or any(
            map(self._may_change, set(re.findall(r"\bself\.(\w+)", text)))
        )

    def _may_change(self, name: str) -> bool:
        held = self.model.instances.get((self.owner, name))  # type: ignore[arg-type]
        if held is not None:
            return any(each._buffers or isinstance(each, _DROPOUTS) for each in held.modules())
        return name == STREAM or isinstance(getattr(self.owner, name, None), FunctionType)

    def _chosen(self, node: ast.IfExp) -> str | None:
        """`a if ... else b` on values."""
        if self._builds or self._now is None or (holds := self._condition(node.test)) is None:
            return None
        values = [without_parentheses(self.written(each)) for each in (node.body, node.orelse)]
        if any(STREAM in each for each in values):
            return None
        self.model.counted.add((self.spans.file, self._now.lineno, self._now.col_offset))
        if self._is_number(node.body) and self._is_number(node.orelse):
            return f"jnp.where({without_parentheses(holds)}, {', '.join(values)})"
        self.model.imports.add("import graphmode as gm")
        operand = ", self" * any(map(self._changes, values))
        takes = f"lambda{operand[1:]}:"
        return f"gm.cond({without_parentheses(holds)}, {takes} {values[0]}, {takes} {values[1]}{operand})"


KEPT = "\0kept\0"  # before a line that has its space already


def at_indent(text: str, indent: str) -> str:
    """A statement whose first line stands at an indent, of which others have theirs already where they say so."""
    return re.sub(r"\n +(?=\n)", "\n", text.replace("\n", f"\n{indent}").replace(f"{indent}{KEPT}", ""))


def _always_returns(block: Sequence[ast.stmt]) -> bool:
    """Whether every way through it ends with a value that is returned."""
    last = block[-1] if block else None
    if isinstance(last, ast.If):
        return _always_returns(last.body) and _always_returns(last.orelse)
    return isinstance(last, ast.Return) and last.value is not None


def falls_through(block: Sequence[ast.stmt]) -> bool:
    """Whether nothing in it leaves it: what is behind it comes next, always."""
    return not any(map(_leaves, block))


def _leaves(node: ast.AST) -> bool:
    if isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue | ast.Yield | ast.YieldFrom):
        return True
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        return False
    if isinstance(node, ast.For | ast.While):
        inside = [each for each in ast.walk(node) if isinstance(each, ast.Return | ast.Raise | ast.Yield)]
        return bool(inside)
    return any(map(_leaves, ast.iter_child_nodes(node)))


def has_long_text(node: ast.AST) -> bool:
    """Whether a text in it goes over several lines, which another indent would change."""
    texts = [each for each in ast.walk(node) if isinstance(each, ast.Constant | ast.JoinedStr)]
    return any(each.end_lineno != each.lineno for each in texts)


def _is_given(node: ast.AST) -> bool:
    """Whether what a node of the port changes is a local name, or a variable of a module."""
    if isinstance(node, ast.Attribute):
        return not isinstance(node.ctx, ast.Store | ast.Del)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return ast.unparse(node.slice) == "..."
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return _HARMLESS.match(ast.unparse(node.value)) is not None
    return not isinstance(node, ast.Global | ast.Nonlocal | ast.Delete | ast.Try | ast.Yield | ast.YieldFrom)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all inside that is not in a function, or a comprehension, of its own."""
    yield node
    if not isinstance(
        node, ast.FunctionDef | ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp
    ):
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)


def stored(tree: ast.AST) -> list[str]:
    nodes = [each for each in _outside_functions(tree) if isinstance(each, ast.Name)]
    return list(dict.fromkeys(each.id for each in nodes if isinstance(each.ctx, ast.Store)))


def binds(tree: ast.Module, name: str) -> bool:
    """Whether a branch binds a name wherever it goes."""
    return any(isinstance(each, ast.Assign | ast.AnnAssign) and name in stored(each) for each in tree.body)


def reads_first(tree: ast.Module, name: str) -> bool:
    """Whether a branch reads a name that it binds, perhaps before that."""
    if name not in stored(tree):
        return False
    for each in tree.body:
        changed = isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name) and each.target.id == name
        if changed or name in _loaded(each):
            return True
        if name in stored(each):  # if not always, in one of its branches, or loops
            return not isinstance(each, ast.Assign | ast.AnnAssign)
    return False


def _loaded(node: ast.AST) -> set[str]:
    """The names that are read, those aside that a function inside has for its own."""
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    found = {name for child in ast.iter_child_nodes(node) for name in _loaded(child)}
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        found -= {each.arg for each in all_arguments(node.args)}
    if isinstance(node, ast.FunctionDef):
        found -= {each for one in node.body for each in stored(one)}
    return found


def known_before(node: ast.stmt, function: ast.FunctionDef) -> set[str]:
    names = [each for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    return {each.arg for each in all_arguments(function.args)} | {e.id for e in names if e.lineno < node.lineno}


def _one_value(branch: Branch, given: list[str], *, returns: bool) -> str | None:
    """The expression that a branch is, if it is one."""
    statements = branch.tree.body
    if "#" in branch.text or (not returns and len(given) != 1):
        return None
    if not statements:
        return given[0] if given else None
    node = statements[0]
    if len(statements) > 1:
        return None
    if returns and isinstance(node, ast.Return):
        return _in_lambda(branch.text.removeprefix("return").strip(), node.value)
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and ast.unparse(node.targets[0]) == given[0]:
        return _in_lambda(branch.text.partition("=")[2].strip(), node.value)
    if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == given[0]:
        return ast.unparse(ast.BinOp(ast.Name(given[0], ast.Load()), node.op, node.value))
    return None


def _in_lambda(text: str, value: ast.expr | None) -> str:
    is_bare = isinstance(value, ast.Tuple) and not text.startswith("(")
    return f"({text})" if is_bare else without_parentheses(text)
