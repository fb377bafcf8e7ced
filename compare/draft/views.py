"""Local names that share their memory with something else: what is written to one is written back there, too."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .calls import Calls
from .in_place import is_view, is_written
from .kinds import Kind
from .later import read_later
from .model import is_self
from .shapes import number_in
from .weight_layout import turn_of

# of these, an element of the result is of the same element of what is given
COMPUTED = (
    "abs exp log sqrt sin cos tanh sigmoid floor ceil round sign neg square add sub mul div pow maximum minimum "
    "log1p expm1 reciprocal relu rsqrt clamp clip"
)
# besides these, what gives a new tensor
_NEW = "sort topk cumsum repeat matmul sum mean gather softmax masked_fill clone"
_JOINED = {"chunk": "concatenate", "split": "concatenate", "tensor_split": "concatenate", "unbind": "stack"}


@dataclass(frozen=True)
class View:
    """What a local name shares its memory with.

    Attributes:
      value: the code that gave it.
      statement: which bound the name.
      base: what it is of; empty where nothing can be written back.
      line: of the port, which writes the name's value back.
      needs: the names that the line reads.
    """

    value: str
    statement: ast.stmt
    base: str = ""
    line: str = ""
    needs: frozenset[str] = frozenset()


class Views(Calls):
    """Of one function."""

    def _learn_views(self, target: ast.expr, value: ast.expr) -> None:
        """What the names in a target share their memory with."""
        names = [each for each in ast.walk(target) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
        self._forget_views({each.id for each in names})
        if self._builds or self._code is None or self._now is None:
            return
        literal = ast.Tuple | ast.List
        if isinstance(target, literal) and isinstance(value, literal) and len(target.elts) == len(value.elts):
            for each, part in zip(target.elts, value.elts, strict=True):
                if isinstance(each, ast.Name):
                    self._learn_view(each.id, part)
        elif isinstance(target, ast.Name):
            self._learn_view(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Call):
            self._learn_parts(target.elts, value)

    def _forget_views(self, names: set[str]) -> None:
        """Names stand for something else now."""
        self._views = {name: view for name, view in self._views.items() if name not in names and not view.needs & names}

    def _learn_view(self, name: str, value: ast.expr) -> None:
        assert self._now is not None
        text, base = ast.unparse(value), value.value if isinstance(value, ast.Subscript) else value
        begin = self._written_base(base)
        if begin == name:  # which stands for the part from here on, and nothing for the whole
            return
        if isinstance(value, ast.Subscript) and begin and self._is_basic(value.slice) and self._gives_part(base, name):
            needs = frozenset(each.id for each in ast.walk(value.slice) if isinstance(each, ast.Name))
            needs |= {begin} if isinstance(base, ast.Name) else set()
            self._views[name] = View(text, self._now, begin, self._line_of_part(value, begin, name), needs)
        elif isinstance(value, ast.Name | ast.Attribute) and begin and self._is_surely_tensor(value):
            self._views[name] = View(text, self._now, begin, f"{begin} = {self._kept(base, name)}", frozenset({begin}))
        elif is_view(value) and is_of_something(value) and self._is_tensor(value):
            self._views[name] = View(text, self._now)

    def _is_surely_tensor(self, node: ast.expr) -> bool:
        """Whether it is a tensor for all that is known, and not for want of it, as an argument is."""
        if not isinstance(node, ast.Name):
            return self._is_tensor(node)
        if self._code is None or self._key(self._code) in self.model.observed.kinds:
            return self._seen(node) == "Tensor"
        is_argument = any(each.arg == node.id for each in ast.walk(self._code) if isinstance(each, ast.arg))
        return self._is_tensor(node) and not is_argument

    def _gives_part(self, base: ast.expr, name: str) -> bool:
        """Whether a part of it, which has this name, shares its memory: numbers in a list do not."""
        if self._holds_tensors(base):
            return self._seen(base) != "tuple" and self._seen(ast.Name(name)) == "Tensor"
        return self._is_surely_tensor(base)

    def _written_base(self, base: ast.expr) -> str:
        """What a new value of it is given to, in the port; empty where that is not known."""
        if isinstance(base, ast.Name) and (self._is_tensor(base) or self._seen(base) in ("Tensor", "list", "dict")):
            return base.id
        is_plain = self._is_state(base) and self._is_buffer(base)
        return f"{ast.unparse(base)}[...]" if is_plain else ""

    def _kept(self, base: ast.expr, value: str) -> str:
        """A value as a buffer takes it, without a gradient where PyTorch records none."""
        is_stopped = self._keeps_no_grad and not self._in_no_grad and self._is_buffer(base)
        return f"jax.lax.stop_gradient({value})" if is_stopped else value

    def _line_of_part(self, value: ast.Subscript, begin: str, name: str) -> str:
        self._learn_slices(value.slice)
        has_place = hasattr(value.slice, "lineno")
        index = self.written(value.slice) if has_place else ast.unparse(value.slice)
        if self._holds_tensors(value.value):
            return f"{begin}[{index}] = {name}"
        index = index[1:-1] if isinstance(value.slice, ast.Tuple) and index.startswith("(") else index
        return f"{begin} = {begin}.at[{index}].set({self._kept(value.value, name)})"

    def _holds_tensors(self, base: ast.expr) -> bool:
        """Whether it is a list or a dict, rather than a tensor."""
        seen = self._seen(base)
        return seen != "Tensor" if seen else self._is_list(base) or self._kind(base) in (Kind.SEQUENCE, Kind.MAPPING)

    def _is_basic(self, index: ast.expr) -> bool:
        """Whether an index of these gives a part of the same memory."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        basic = ast.Slice | ast.Constant | ast.UnaryOp
        return all(
            isinstance(part, basic)
            or self._kind(part) is Kind.NUMBER
            or (isinstance(part, ast.Name) and self._seen(part) in ("int", "str"))
            for part in parts
        )

    def _learn_parts(self, targets: Sequence[ast.expr], call: ast.Call) -> None:
        """The parts that a tensor is split into, if all have names."""
        assert self._now is not None
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        given = call.func.value if isinstance(call.func, ast.Attribute) else None
        if method not in _JOINED or not isinstance(given, ast.Name) or not self._is_tensor(given):
            return
        further = call.args[method != "unbind" :]
        axis = further[0] if further else next((each.value for each in call.keywords if each.arg == "dim"), None)
        number = 0 if axis is None else number_in(axis)
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        is_whole = number is not None and len(names) == len(targets) == len(set(names)) and given.id not in names
        joined = f"{given.id} = jnp.{_JOINED[method]}([{', '.join(names)}], axis={number})"
        for name in names:
            needs = frozenset({given.id, *names} - {name})
            found = View(ast.unparse(call), self._now, given.id, joined, needs)
            self._views[name] = found if is_whole else View(ast.unparse(call), self._now)

    def _write_back(self, name: str) -> None:
        """What is written to a name that shares its memory is written to the other, too, or noted."""
        view = self._views[name]
        if not self._is_read_through(view):
            return
        if view.line and self._now is not None and self.spans.indent(self._now) is not None and self._is_on_way(view):
            self._after[-1].append(view.line)
            if view.base in self._views:
                self._write_back(view.base)
            return
        if self._was_seen_writing():  # what it changed besides is told where all that was seen is gone through
            return
        self._note(f"M02: {name} is a view, {view.value}: write to what it is of, by .at[]")

    def _was_seen_writing(self) -> bool:
        """Whether the original wrote something in place in this statement as it ran."""
        now: Any = self._now
        begin, end = (now.lineno, now.col_offset), (now.end_lineno, now.end_col_offset)
        places = (each.standing[0].place for each in self.model.observed.writes)
        return any(file == self.spans.file and begin <= (line, at) < end for file, line, at, *_ in places)

    def _is_read_through(self, view: View) -> bool:
        """Whether anything reads what a view is of, under that name, or under one that it is a view of itself."""
        if not view.base.isidentifier() or view.base in self._given_back or self._code is None or self._now is None:
            return True
        if read_later(self._code, self._now, view.base):
            return True
        outer = self._views.get(view.base)
        return outer is not None and self._is_read_through(outer)

    def _is_on_way(self, view: View) -> bool:
        """Whether the name is bound by the statement of the view wherever what is written now runs."""
        assert self._code is not None
        for node in ast.walk(self._code):
            for block in (getattr(node, each, None) for each in ("body", "orelse", "finalbody")):
                if isinstance(block, list) and view.statement in block:
                    rest = block[block.index(view.statement) :]
                    return any(each is self._now for one in rest for each in ast.walk(one))
        return False

    def _loop_header(self, node: ast.For) -> str | None:
        """A loop whose body writes into what it goes over; None where nothing is to be said of that."""
        names = {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        self._forget_views(names)
        if self._in_no_grad and not self._may_have_gradient(node.iter):
            self._stopped_names |= names
        self._variables -= names
        if self._builds or node.orelse:
            return None
        written = {each for each in names if is_written(each, node.body, self.scope.outer)}
        over = node.iter
        called = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
        if isinstance(node.target, ast.Name) and node.target.id in written and self._base_of_loop(over, node.target.id):
            place = f"{node.target.id}_at"
            while place in self.scope.local:
                place += "_"
            self._learn_element(node, node.target.id, over, place)
            return f"for {place}, {node.target.id} in enumerate({self.written(over)}):"
        if called == "enumerate" and isinstance(node.target, ast.Tuple) and len(over.args) == 1:  # type: ignore[attr-defined]
            number, each = node.target.elts
            if isinstance(number, ast.Name) and isinstance(each, ast.Name) and each.id in written:
                self._learn_element(node, each.id, over.args[0], number.id)  # type: ignore[attr-defined]
            return None
        for name, elements in _elements_of_loop(node.target, over).items():
            is_bound = any(isinstance(e, ast.Name) and e.id == name and _is_bound(e, node) for e in ast.walk(node))
            if name in written and not is_bound and elements and all(map(self._is_variable, elements)):
                self._variables.add(name)
                self._tensors.add(name)
                self._bare |= set(map(id, elements))
                if all(map(self._is_buffer, elements)):
                    self._stopped_names.add(name)
        return None

    def _base_of_loop(self, over: ast.expr, name: str) -> str:
        is_part = isinstance(over, ast.Name) and self._seen(over) != "dict" and self._gives_part(over, name)
        return self._written_base(over) if is_part else ""

    def _learn_element(self, node: ast.For, name: str, over: ast.expr, place: str) -> None:
        base = self._base_of_loop(over, name)
        if not base:
            return
        part = ast.Subscript(over, ast.Name(place, ast.Load()), ast.Load())
        line = self._line_of_part(part, base, name)
        self._views[name] = View(ast.unparse(part), node, base, line, frozenset({base, place}))

    def _is_variable(self, node: ast.expr) -> bool:
        """Whether it is a parameter or buffer that lies here as in PyTorch."""
        if not isinstance(node, ast.Attribute):
            return False
        if is_self(node.value):
            return self._is_state(node) and not (node.attr == "weight" and turn_of(self.owner))
        found = self.modules_at(node.value)
        is_turned = node.attr == "weight" and any(turn_of(type(each)) for each in found)
        return bool(found) and not is_turned and (self._variable_at(node) or "").endswith("[...]")


def is_of_something(view: ast.expr) -> bool:
    """Whether what a view is of may have a name, and is not computed there."""
    while is_view(view):
        view = view.value if isinstance(view, ast.Subscript) else view.func.value  # type: ignore[attr-defined]
    is_method = isinstance(view, ast.Call) and isinstance(view.func, ast.Attribute)
    is_new = is_method and view.func.attr in [*COMPUTED.split(), *_NEW.split()]  # type: ignore[attr-defined]
    return not (isinstance(view, ast.BinOp | ast.Compare) or is_new)


def _elements_of_loop(target: ast.expr, over: ast.expr) -> dict[str, list[ast.expr]]:
    """By the names of a loop over a literal, or over several by `zip`, the elements that each stands for."""
    literal = ast.Tuple | ast.List
    if isinstance(over, ast.Call) and ast.unparse(over.func) == "zip" and isinstance(target, ast.Tuple):
        pairs = zip(target.elts, over.args, strict=False)
        return {name.id: each.elts for name, each in pairs if isinstance(name, ast.Name) and isinstance(each, literal)}
    if not isinstance(over, literal):
        return {}
    if isinstance(target, ast.Name):
        return {target.id: over.elts}
    found: dict[str, list[ast.expr]] = {}
    for i, name in enumerate(target.elts if isinstance(target, ast.Tuple) else ()):
        if isinstance(name, ast.Name) and all(isinstance(each, literal) and len(each.elts) > i for each in over.elts):
            found[name.id] = [each.elts[i] for each in over.elts]  # type: ignore[attr-defined]
    return found


def _is_bound(name: ast.Name, loop: ast.For) -> bool:
    """Whether it is bound by `=` in the body of a loop."""
    targets = [target for each in ast.walk(loop) if isinstance(each, ast.Assign) for target in each.targets]
    return any(one is name for target in targets for one in ast.walk(target)) and isinstance(name.ctx, ast.Store)
