"""What a name in a model's source stands for: an object of PyTorch, or of the file itself."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .given import Values, given_in

UNKNOWN = object()
_LIBRARIES = ("graphmode", "torch", "jax", "flax")  # wherever they were installed
_HOLDERS = (
    *("torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.nn.init", "torch", "torch.sparse"),
    *("torch.nn.utils", "torch.nn.utils.parametrizations", "torch.nn.utils.rnn", "torch.utils.checkpoint"),
    "torch.autograd",
)


@dataclass(frozen=True)
class Scope:
    """The names that a function's code sees.

    Attributes:
      outer: those of its module.
      local: those that it binds itself, which stand for what only a run knows.
      given: what each of these is given.
      parts: what is written into parts of it.
    """

    outer: Mapping[str, Any]
    local: frozenset[str] = field(default_factory=frozenset)
    given: Values = field(default_factory=dict)
    parts: Values = field(default_factory=dict)

    def within(self, function: ast.AST) -> Scope:
        given, parts = given_in(function)
        return Scope(self.outer, self.local | _bound(function), {**self.given, **given}, {**self.parts, **parts})

    def find(self, node: ast.AST) -> Any:
        """The object that an expression of names and dots stands for; `UNKNOWN` where only a run can tell."""
        if isinstance(node, ast.Name):
            if node.id in self.local:
                return UNKNOWN
            return _as_written(self.outer.get(node.id, getattr(builtins, node.id, UNKNOWN)))
        if isinstance(node, ast.Attribute):
            holder = self.find(node.value)
            if isinstance(holder, ModuleType | type) and holder is not torch.classes:  # has all names that one asks for
                return _as_written(getattr(holder, node.attr, UNKNOWN))
        return UNKNOWN


def _as_written(found: Any) -> Any:
    """The function that is kept in a cache of what it gave, or compiled by TorchScript; else the object itself."""
    if isinstance(found, functools._lru_cache_wrapper):
        return found.__wrapped__
    if isinstance(found, torch.jit.ScriptFunction):
        return getattr(found, "_torchdynamo_inline", found)
    return found


def _bound(function: ast.AST) -> frozenset[str]:
    names = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    names |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(names)


def torch_name(found: Any) -> str | None:
    """`nn.functional.relu`, `cat`, `linalg.norm`: a function of PyTorch by its place below `torch`; else None."""
    try:
        return _names().get(id(found))
    except TypeError:
        return None


@functools.cache
def _names() -> dict[int, str]:
    found: dict[int, str] = {}
    for holder in _HOLDERS:
        module: Any = functools.reduce(getattr, holder.split(".")[1:], torch)
        below = holder.removeprefix("torch").lstrip(".")
        for name in dir(module):
            each = getattr(module, name)
            if callable(each) and not isinstance(each, type) and not name.startswith("_") and _is_its_own(each):
                found.setdefault(id(each), f"{below}.{name}".lstrip("."))
    return found


def _is_its_own(found: Any) -> bool:
    """Not what PyTorch's modules import from elsewhere."""
    module = getattr(found, "__module__", None)
    return module is None or str(module).split(".")[0] == "torch"


def is_of_torch(found: Any) -> bool:
    """Whether an object, a class or a module is PyTorch's."""
    if isinstance(found, torch.dtype):
        return True
    module = found.__name__ if isinstance(found, ModuleType) else getattr(found, "__module__", None)
    return torch_name(found) is not None or str(module).split(".")[0] == "torch"


def is_of_einops(found: Any) -> bool:
    """Whether it is a layer of einops that only calls its function of the same name."""
    return getattr(found, "__module__", "") == "einops.layers.torch" and found.__name__ in ("Rearrange", "Reduce")


def are_near(name: str, other: str) -> bool:
    """Whether two modules, by name, are of one package, or both in files that nobody installed, as one's own are."""
    tops = name.split(".")[0], other.split(".")[0]
    return tops[0] == tops[1] or all(map(_is_loose, tops))


def _is_loose(name: str) -> bool:
    module = sys.modules.get(name)
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    folders = {part for place in places if place for part in Path(place).parts}
    is_library = name in sys.stdlib_module_names or name in _LIBRARIES
    return bool(folders) and not is_library and not folders & {"site-packages", "dist-packages"}


def imported_as(name: str, home: str) -> str:
    """The line that imports a name of a module: as that module does, where it has it from another."""
    for node in _imports(home):
        for each in node.names:
            if (each.asname or each.name) == name:
                return f"from {node.module} import {each.name}" + (f" as {name}" if name != each.name else "")
    return f"from {home} import {name}"


@functools.cache
def _imports(home: str) -> list[ast.ImportFrom]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[home]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return []
    return [node for node in tree.body if isinstance(node, ast.ImportFrom) and not node.level]
