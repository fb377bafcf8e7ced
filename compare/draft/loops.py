"""Loops that go on as long as values say, which a graph has as `gm.while_loop`."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from .branches import (
    DEEPER,
    KEPT,
    Branch,
    Branches,
    at_indent,
    binds,
    falls_through,
    has_long_text,
    known_before,
    reads_first,
    stored,
)
from .draws import STREAM
from .later import read_later
from .rules import as_operand, without_parentheses

_NAMES = re.compile(r"(?<![.\w])[a-zA-Z_]\w*")
_MOST = 1000  # turns, where nothing says how many there may be
_TOLD = "C07, C08: max_steps: the most turns that it may take"


class _Turn(NamedTuple):
    """What one turn of a loop does: what comes before it may be left, when that is, and what comes after."""

    first: Sequence[ast.stmt]
    leaves: ast.expr | None
    rest: Sequence[ast.stmt]


class Loops(Branches):
    """`while`, and `for ... in range(...)` that is left early, of one class or function."""

    def _looped(self, node: ast.For | ast.While) -> str | None:
        """The whole as a call of `gm.while_loop`; None where a turn does what no function can give."""
        indent, turn = self.spans.indent(node), _turn(node)
        if indent is None or turn is None or node.orelse or self._code is None or self._builds or self._given_back:
            return None
        if any(map(has_long_text, node.body)) or not falls_through([*turn.first, *turn.rest]) or _grows(node):
            return None
        over = _range_of(node)
        goes_on = self._goes_on(node, over)
        if goes_on is None:
            return None
        outer, known = set(self._tensors), known_before(node, self._code)
        changed = {each for each in stored(ast.Module(node.body, [])) if each in known and not self._is_no_array(each)}
        self._tensors |= changed | ({node.target.id} if isinstance(node, ast.For) else set())  # type: ignore[attr-defined]
        first = self._of_branch(turn.first, self.spans.of(node.body[0])[0], indent)
        left = "" if turn.leaves is None else self._condition(turn.leaves)
        rest = self._of_branch(turn.rest, self.spans.of(turn.rest[0])[0] if turn.rest else 0, indent)
        self._tensors -= changed - outer | (set() if isinstance(node, ast.While) else {node.target.id} - outer)  # type: ignore[attr-defined]
        if first is None or rest is None or left is None:
            return None
        made = self._as_loop(node, [first, rest], goes_on, left, over)
        if made is None:
            return None
        if over is None:
            self._note(_TOLD)
        self.model.imports.add("import graphmode as gm")
        self.model.counted.add((self.spans.file, node.lineno, node.col_offset))
        return at_indent(made, indent)

    def _may_be_left_by_values(self, node: ast.For | ast.While) -> bool:
        """Whether it goes on as long as values say, or is left when they do."""
        turn = _turn(node)
        if isinstance(node, ast.While) and self._asks_for_values(node.test):
            return True
        return turn is not None and turn.leaves is not None and self._is_asked_in(node, turn.leaves)

    def _is_asked_in(self, node: ast.For | ast.While, test: ast.expr) -> bool:
        """Whether a condition in a loop asks for values, of what its turns give, too."""
        outer, masks = set(self._tensors), set(self._masks)
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            self._tensors.add(node.target.id)
        names = [each for each in ast.walk(node) if isinstance(each, ast.Assign)]
        for each in names:
            name = each.targets[0].id if isinstance(each.targets[0], ast.Name) else ""
            self._tensors |= {name} if self._is_tensor(each.value) else set()
            self._masks |= {name} if self._is_mask(each.value) else set()
        asks = self._asks_for_values(test)
        self._tensors, self._masks = outer, masks
        return asks

    def _goes_on(self, node: ast.For | ast.While, over: ast.expr | None) -> str | None:
        """When there is another turn, unless it is left; empty for always."""
        if isinstance(node, ast.While):
            is_always = isinstance(node.test, ast.Constant) and bool(node.test.value)
            return "" if is_always else self._condition(node.test)
        if over is None or self._is_counted(over) or self._is_tensor(over):
            return None
        return f"({node.target.id} < {as_operand(self.written(over))})"  # type: ignore[attr-defined]

    def _as_loop(
        self, node: ast.For | ast.While, parts: list[Branch], goes_on: str, left: str, over: ast.expr | None
    ) -> str | None:
        assert self._code is not None
        whole = ast.Module([each for part in parts for each in part.tree.body], [])
        known, asked = known_before(node, self._code), {*_NAMES.findall(f"{goes_on} {left}")}
        later = [name for name in stored(whole) if read_later(self._code, node, name)]
        state = [
            name
            for name in stored(whole)
            if name in later or reads_first(whole, name) or (name in asked and (name in known or not left))
        ]
        begins = dict.fromkeys((each for each in state if each not in known and each in self._masks), "False")
        is_first = left and goes_on == ""  # what a turn gives before it may be left is given in any case
        if begins and not (is_first and all(binds(parts[0].tree, each) for each in begins)):
            return None
        if not set(state) <= known | set(begins) or any(map(self._is_no_array, state)):
            return None
        texts = [each.text for each in parts]
        if any(re.search(rf"(?<!self\.)\b{STREAM}\b", text) for text in texts):
            return None
        number = [node.target.id] if isinstance(node, ast.For) else []  # type: ignore[attr-defined]
        if any(read_later(self._code, node, each) for each in number):
            return None
        if number == ["_"]:
            number, goes_on = [self._free("i")], goes_on.replace("(_ ", f"({self._free('i')} ")
        stopped = self._free("stopped") if left else ""
        modules = ["self"] * any(map(self._changes, texts))
        names = [*modules, *state, *number, *[stopped] * bool(left)]
        self._forget_views(set(stored(whole)))
        self._tensors |= set(state)
        inner = parts[0].indent if parts[0].text else parts[1].indent
        lines = [parts[0].text] if parts[0].text else []
        if left:
            lines.append(f"{stopped} = {without_parentheses(left)}")
        if parts[1].text:
            lines.append(self._unless(stopped, parts[1], [*modules, *state], inner) if left else parts[1].text)
        lines += [f"{each} += 1" for each in number]
        holds = " & ".join(each for each in (goes_on, f"~{stopped}" if left else "") if each)
        return self._loop_of(names, holds, lines, inner, {stopped: "False", **dict.fromkeys(number, "0")}, begins, over)

    def _unless(self, stopped: str, part: Branch, names: list[str], indent: str) -> str:
        """What a turn does behind the place where it may be left."""
        bound = stored(part.tree)
        given = [each for each in names if each in bound]
        operands = ["self"] * ("self" in names) + given
        deeper = Branch(re.sub(r"\n(?=[^\n])", f"\n{DEEPER}", part.text), part.indent + DEEPER, part.tree)
        empty = Branch("", deeper.indent, ast.Module([], []))
        functions, before = self._functions([empty, deeper], operands, given, returns=False)
        target = f"{', '.join(given)} = " if given else ""
        return at_indent(f"{before}{target}gm.cond({', '.join([stopped, *functions, *operands])})", indent)

    def _loop_of(
        self,
        names: list[str],
        holds: str,
        lines: list[str],
        indent: str,
        starts: dict[str, str],
        begins: dict[str, str],
        over: ast.expr | None,
    ) -> str:
        is_one, line = len(names) == 1, f"\n{KEPT}{indent}"
        taken = names[0] if is_one else "state"
        unpacked = [] if is_one else [f"{', '.join(names)} = state"]
        going, turn, cut_short = self._free("goes_on"), self._free("turn"), self._free("cut_short")
        test = [*unpacked, f"return {without_parentheses(holds)}"]
        steps = [*unpacked, *(each.replace("\n", f"\n{KEPT}") for each in lines), f"return {', '.join(names)}"]
        functions = f"def {going}({taken}):{line}{line.join(test)}\n\ndef {turn}({taken}):{line}{line.join(steps)}\n\n"
        begin = [{**starts, **begins}.get(each, each) for each in names]
        kept = ["_" if each in starts or each == "self" else each for each in names]
        target, init = (kept[0], begin[0]) if is_one else (f"({', '.join(kept)})", f"({', '.join(begin)})")
        most = _MOST if over is None else without_parentheses(self.written(over))
        flag = cut_short if over is None else "_"
        call = f"{target}, {flag} = gm.while_loop({going}, {turn}, {init}, max_steps={most})"
        check = f'\ngm.check(~{cut_short}, "the loop would take more than {_MOST} turns")' if over is None else ""
        return f"{functions}{call}{check}"

    def _free(self, name: str) -> str:
        """A name that the function has not."""
        assert self._code is not None
        taken = {each.id for each in ast.walk(self._code) if isinstance(each, ast.Name)}
        return next(each for each in (name + "_" * n for n in range(len(taken) + 1)) if each not in taken)


def _turn(node: ast.For | ast.While) -> _Turn | None:
    """What a turn does, if there is at most one place where it may be left, and nothing else is done there."""
    breaks = [each for each in ast.walk(node) if isinstance(each, ast.Break | ast.Continue)]
    if not breaks:
        return _Turn(node.body, None, []) if isinstance(node, ast.While) else None
    places = [i for i, each in enumerate(node.body) if isinstance(each, ast.If) and each.body == breaks]
    if len(breaks) > 1 or not places or not isinstance(breaks[0], ast.Break) or node.body[places[0]].orelse:  # type: ignore[attr-defined]
        return None
    i = places[0]
    return _Turn(node.body[:i], node.body[i].test, node.body[i + 1 :])  # type: ignore[attr-defined]


def _range_of(node: ast.For | ast.While) -> ast.expr | None:
    """How many turns a loop has at most, if it counts them from 0, and the number stands for a place in no list."""
    if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
        return None
    over = node.iter
    is_range = isinstance(over, ast.Call) and ast.unparse(over.func) == "range" and len(over.args) == 1
    outside = (ast.Subscript, ast.JoinedStr, ast.Slice)
    places = [each for one in node.body for each in ast.walk(one) if isinstance(each, outside) or _is_range(each)]
    named = {each.id for place in places for each in ast.walk(place) if isinstance(each, ast.Name)}
    return over.args[0] if is_range and node.target.id not in named else None  # type: ignore[attr-defined]


def _grows(node: ast.AST) -> bool:
    """Whether a turn puts something beside what there was before: no state of a loop does."""
    for each in ast.walk(node):
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call):
            joins = re.search(r"(cat|stack|concat|concatenate|pad|append)$", ast.unparse(each.value.func))
            targets = {name.id for target in each.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            given = {name.id for name in ast.walk(each.value) if isinstance(name, ast.Name)}
            if joins and targets & given:
                return True
    return False


def _is_range(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("range", "len", "print")
