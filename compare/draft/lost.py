"""What a draft loses of what the original wrote in place: what else stands for the same memory, and is read later."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .later import read_later, statement_at
from .observed import Observed, Standing, Write
from .part import Part
from .recording import Place

# a statement by the file, line and column where it begins
At = tuple[str, int, int]
_TOLD = 6  # names in one note
_BLOCKS = ast.If | ast.For | ast.While | ast.With | ast.Try


class _Target(NamedTuple):
    """What a statement of the draft gives a new value: its text, and whether what it is goes on, by `[...]`."""

    text: str
    stays: bool


def lost(
    observed: Observed, parts: list[Part], drafted: Mapping[At, str], renamed: set[int], counted: set[At]
) -> dict[At, list[str]]:
    """The notes that statements of the original want.

    Args:
      observed: what the original did as it ran.
      parts: of the original.
      drafted: what its statements are in the draft.
      renamed: the names in it, by identity, that stand for what was written there.
      counted: branches that ask of no array in the draft.
    """
    search = _Search(parts, drafted, renamed)
    notes: dict[At, list[str]] = defaultdict(list)
    names: dict[At, list[str]] = defaultdict(list)
    for write in sorted(observed.writes, key=lambda each: [standing.place for standing in each.standing]):
        for at, found in search.lost_by(write):
            names[at] += found
    for at, found in names.items():
        told = ", ".join(sorted(set(found))[:_TOLD])
        notes[at].append(f"M02: in place, this writes into {told}, too: a new array there, by .at[] where it is a part")
    for place in sorted(observed.asked):
        if (branch := search.branch_at(place)) is not None and branch not in counted:
            notes[branch].append("C01: a branch on values: gm.cond, or jnp.where")
    return {at: list(dict.fromkeys(each)) for at, each in notes.items()}


class _Search:
    """Through the statements of the original."""

    def __init__(self, parts: list[Part], drafted: Mapping[At, str], renamed: set[int]):
        self._drafted, self._renamed = drafted, renamed
        self._functions: dict[str, list[ast.FunctionDef]] = defaultdict(list)
        for part in parts:
            inside = (node for node in ast.walk(part.node) if isinstance(node, ast.FunctionDef))
            self._functions[part.spans.file] += inside

    def lost_by(self, write: Write) -> Iterator[tuple[At, list[str]]]:
        """The statements that should write something back and do not, with what."""
        left = set(write.states)
        found: list[tuple[At, list[str]]] = []
        for standing in write.standing:
            function, statement = self._at(standing.place)
            if function is None or statement is None:
                left -= {each.state for each in standing.aliases}  # where no code of the draft is known
                continue
            targets = [*self._targets(standing.place[0], statement)]
            given = {each.text for each in targets}
            in_names = {each.text for each in targets if each.stays}
            for each in standing.aliases:
                if {each.text, _loosely(each.text)} & (given if "." in each.text else in_names):
                    left.discard(each.state)
            names = self._stale(standing, function, statement, targets)
            if names:
                found.append(((standing.place[0], statement.lineno, statement.col_offset), names))
        if left:
            found = self._with_states(write, left, found)
        return iter([each for each in found if not self._is_marked(each[0])])

    def _with_states(
        self, write: Write, left: set[str], found: list[tuple[At, list[str]]]
    ) -> list[tuple[At, list[str]]]:
        standing = write.standing[0]
        _, statement = self._at(standing.place)
        if statement is None:
            return found
        names = sorted({_as_code(each.text) for each in standing.aliases if each.state in left and "." in each.text})
        shown = {each.state for each in standing.aliases if "." in each.text}
        names += sorted(f"{each} of the model" for each in left - shown)
        return [*found, ((standing.place[0], statement.lineno, statement.col_offset), names)]

    def _stale(
        self, standing: Standing, function: ast.FunctionDef, statement: ast.stmt, targets: list[_Target]
    ) -> list[str]:
        """The local names whose old value is read later."""
        given = {each.text for each in targets}
        local = [each for each in standing.aliases if "." not in each.text or not each.state]
        by_root: dict[str, list[str]] = defaultdict(list)
        for each in local:
            by_root[each.root].append(each.text)
        names = []
        for root, texts in sorted(by_root.items()):
            is_one = len(texts) == 1 and "." not in texts[0] and any(_root(each) == root for each in given)
            if root in given or is_one or all(each in given or _loosely(each) in given for each in texts):
                reads = []
            elif root == "self":
                names += sorted(texts)
                continue
            else:
                reads = read_later(function, statement, root)
            reads += _read_behind(statement, standing.place, root)
            if any(id(each) not in self._renamed for each in reads):
                names.append(root)
        return names

    def _at(self, place: Place) -> tuple[ast.FunctionDef | None, ast.stmt | None]:
        file, line, column, *_ = place
        within = [
            each
            for each in self._functions.get(file, ())
            if (each.lineno, each.col_offset) <= (line, column) <= (each.end_lineno or 0, each.end_col_offset or 0)
        ]
        function = max(within, key=lambda each: each.lineno, default=None)
        return function, statement_at(function, line, column) if function is not None else None

    def _targets(self, file: str, statement: ast.stmt) -> Iterator[_Target]:
        """What the statement is, in the draft, gives new values."""
        text = textwrap.dedent(self._drafted.get((file, statement.lineno, statement.col_offset), ""))
        if isinstance(statement, _BLOCKS):
            return
        try:
            nodes = ast.parse(text).body
        except SyntaxError:
            return
        for node in nodes:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                for each in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                    if isinstance(each, ast.expr):
                        stays = isinstance(each, ast.Subscript) and ast.unparse(each.slice) == "..."
                        bare = each.value if stays else each  # type: ignore[attr-defined]
                        yield _Target(_loosely(ast.unparse(bare)), stays)
                        yield _Target(ast.unparse(bare), stays)

    def _is_marked(self, at: At) -> bool:
        return re.search(r"# TODO M0[12]", self._drafted.get(at, "")) is not None

    def branch_at(self, place: Place) -> At | None:
        """A branch that asks for values and is not marked."""
        file, *where = place
        _, statement = self._at(place)
        if statement is None:
            return None
        at = file, statement.lineno, statement.col_offset
        if isinstance(statement, ast.If | ast.While):
            tests: list[ast.AST] = [statement.test]
            is_branch = where[:2] == [*at[1:]]  # where Python has a jump
        else:
            choices = [each for each in ast.walk(statement) if isinstance(each, ast.IfExp)]
            tests = [*choices, *(each.test for each in choices)]
            is_branch = False
        is_branch = is_branch or any(_holds(each, where) for each in tests)
        notes = re.match(r"(\s*# TODO.*\n)*", self._drafted.get(at, "# TODO C0\n"))
        is_told = re.search(r"# TODO [CH]0", notes[0] if notes else "") is not None
        return at if is_branch and not is_told else None


def _holds(node: ast.AST, where: Sequence[int]) -> bool:
    begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    return begin <= tuple(where[:2]) and tuple(where[2:]) <= end


def _read_behind(statement: ast.stmt, place: Place, name: str) -> list[ast.Name]:
    """Where the same statement reads a name behind what writes into it."""
    begin, behind = (place[1], place[2]), (place[3], place[4])
    value = getattr(statement, "value", None)
    if isinstance(statement, _BLOCKS) or value is None or begin < (value.lineno, value.col_offset):
        return []
    return [
        each
        for each in ast.walk(statement)
        if isinstance(each, ast.Name)
        and each.id == name
        and isinstance(each.ctx, ast.Load)
        and (each.lineno, each.col_offset) >= behind
    ]


def _root(text: str) -> str:
    return re.split(r"[.\[]", text)[0]


def _loosely(text: str) -> str:
    """Without the numbers that say which element it is."""
    return re.sub(r"\[[^\]]*\]|\.\d+(?![\w])", "[]", text)


def _as_code(text: str) -> str:
    return re.sub(r"\.(\d+)(?!\w)", r"[\1]", text)
