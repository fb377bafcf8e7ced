"""What ran while the original was built: which call made which module, and what each object was made of."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch

from .names import is_of_torch

# where a call stands: the file, and the line and column of its begin and end
Place = tuple[str, int, int, int, int]


@dataclass
class Recording:
    """What ran while the original was built.

    Attributes:
      arguments: by the id of each module, and of each object that is not PyTorch's, itself and what its `__init__` was
        given.
      made: by the place of a call, what gave a module there, a class or a function's code, and the module.
    """

    arguments: dict[int, tuple[Any, dict[str, Any]]] = field(default_factory=dict)
    made: dict[Place, list[tuple[type | CodeType, torch.nn.Module]]] = field(default_factory=dict)
    _positions: dict[CodeType, list[Any] | None] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        outer = sys.getprofile()
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(outer)

    def at(self, file: str, node: ast.expr) -> list[tuple[type | CodeType, torch.nn.Module]]:
        """What gave a module where an expression stands, and the modules; none where it gave none or did not run."""
        return self.made.get(_place(file, node), [])

    def _see(self, frame: FrameType, event: str, given: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name == "__init__" and code.co_argcount:
            made = frame.f_locals[code.co_varnames[0]]
            if id(made) not in self.arguments and (isinstance(made, torch.nn.Module) or not is_of_torch(type(made))):
                self.arguments[id(made)] = made, _given(frame)
                if isinstance(made, torch.nn.Module):
                    self._note(frame, type(made), made)
        elif event == "return" and code.co_name != "__init__" and isinstance(given, torch.nn.Module):
            self._note(frame, code, given)

    def _note(self, frame: FrameType, by: type | CodeType, made: torch.nn.Module) -> None:
        place = self._where(frame.f_back) if frame.f_back is not None else None
        if place is not None:
            self.made.setdefault(place, []).append((by, made))

    def _where(self, caller: FrameType) -> Place | None:
        code = caller.f_code
        try:
            positions = self._positions[code]
        except KeyError:
            top = str(caller.f_globals.get("__name__")).split(".")[0]
            is_others = top == "torch" or top in sys.stdlib_module_names
            positions = self._positions[code] = None if is_others else list(code.co_positions())
        if positions is None:
            return None
        line, last, column, end = positions[caller.f_lasti // 2]
        return None if None in (line, last, column, end) else (code.co_filename, line, column, last, end)


def _place(file: str, node: ast.expr) -> Place:
    return file, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def _given(frame: FrameType) -> dict[str, Any]:
    """What a call was given, by the names of its parameters; containers as they were then."""
    code, (_, positional, keywords, held) = frame.f_code, inspect.getargvalues(frame)
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    given = {name: held[name] for name in names if name in held}
    if positional is not None:
        given[f"*{positional}"] = held[positional]
    if keywords is not None:
        given |= held[keywords]
    return {name: _as_it_is(value) for name, value in given.items()}


def _as_it_is(value: Any) -> Any:
    return type(value)(value) if type(value) in (list, dict, set) else value
