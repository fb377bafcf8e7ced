"""Arrays in float32 that a port computes from, and that are no variables of its own, where they stand."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import jax
import jax.tree_util as jtu
import numpy as np
from flax import nnx

from .errors import is_of_a_library

LARGEST = 4_000_000  # elements
DEPTH = 4  # containers in each other
MOST = 10_000  # entries of one


class _Place(NamedTuple):
    """Where an array, or a tuple that has some, can be put, and what stands there."""

    put: Callable[[Any], None]
    value: Any


class Constants:
    """Those around the classes of a model: in the names that their methods are written in, or have from around them, in
    their defaults, and in the classes, as arrays or in containers, configurations and modules of Python.

    Args:
      model: a port.
    """

    def __init__(self, model: nnx.Module):
        self._seen: set[int] = set()
        kinds = dict.fromkeys(kind for _, module in nnx.iter_modules(model) for kind in type(module).__mro__)
        self._places = [place for kind in kinds if _is_a_users(kind.__module__) for place in self._of_class(kind)]
        self._kept: list[Any] | None = None

    @contextlib.contextmanager
    def wide(self) -> Iterator[None]:
        """With them in float64; x64 has to be on."""
        if self._kept is None:
            with jax.ensure_compile_time_eval():  # or they would be of the graph that is being traced
                self._kept = [_widened(value) for _, value in self._places]
        try:
            for (put, _), value in zip(self._places, self._kept, strict=True):
                put(value)
            yield
        finally:
            for put, value in self._places:
                put(value)

    def _of_class(self, kind: type) -> Iterator[_Place]:
        for name, value in list(vars(kind).items()):
            yield from self._found(value, functools.partial(setattr, kind, name), DEPTH)

    def _of_function(self, function: FunctionType) -> Iterator[_Place]:
        self._seen.add(id(function))
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # nothing stands there yet
                yield from self._found(cell.cell_contents, functools.partial(setattr, cell, "cell_contents"), DEPTH)
        for name in ("__defaults__", "__kwdefaults__"):
            yield from self._found(getattr(function, name), functools.partial(setattr, function, name), DEPTH)
        yield from self._found(function.__globals__, _refuse, DEPTH)

    def _found(self, value: Any, put: Callable[[Any], None], depth: int) -> Iterator[_Place]:
        if is_float32(value):
            yield _Place(put, value)
            return
        if depth == 0 or id(value) in self._seen:
            return
        function = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else None
        if isinstance(function, FunctionType):
            if id(function) not in self._seen and not is_of_a_library(function.__code__.co_filename):
                yield from self._of_function(function)
            return
        if isinstance(value, dict | list | tuple) and len(value) > MOST:
            return
        if isinstance(value, tuple):
            if any(map(is_float32, jtu.tree_leaves(value))):
                yield _Place(put, value)
            return
        named = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else None
        set_item: Callable[[Any, Any, Any], None] = _set_item
        if named is None and _has_names(value):
            named, set_item = vars(value), object.__setattr__
        if named is None:
            return
        self._seen.add(id(value))
        for name, each in list(named.items()):
            yield from self._found(each, functools.partial(set_item, value, name), depth - 1)


def is_float32(value: Any) -> bool:
    """Whether it is an array of numpy's or JAX's in that dtype, and not too large to have twice."""
    is_array = isinstance(value, np.ndarray | np.generic | jax.Array) and not isinstance(value, jax.core.Tracer)
    return is_array and value.dtype == np.float32 and value.size <= LARGEST


def _has_names(value: Any) -> bool:
    """Whether it is a module of Python or an object, such as a configuration, that is no library's."""
    if isinstance(value, ModuleType):
        return _is_a_users(value.__name__)
    if isinstance(value, type | FunctionType | nnx.Module) or not hasattr(value, "__dict__"):
        return False
    return _is_a_users(type(value).__module__) or type(value).__name__ == "SimpleNamespace"


@functools.cache
def _is_a_users(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and not is_of_a_library(file)


def _widened(value: Any) -> Any:
    return jtu.tree_map(lambda leaf: leaf.astype(np.float64) if is_float32(leaf) else leaf, value)


def _set_item(holder: Any, name: Any, value: Any) -> None:
    holder[name] = value


def _refuse(value: Any) -> None:
    raise TypeError("the names of a module are changed one by one")
