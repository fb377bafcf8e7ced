"""Functions that keep what they gave, as `functools.cache` does: what was made in one dtype is none of another."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from .errors import is_of_a_library

_CACHED = type(functools.lru_cache(lambda: None))
_Place = tuple[Any, str, Any]  # a module or class, the name there, and the function
_made_in: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # the dtype of what each keeps


class KeptResults:
    """Those that a model's code may call: of the files that its classes and functions are written in, and of those of
    the same project that these import. False where there are none.

    Args:
      around: modules, classes and functions of the model.
    """

    def __init__(self, around: Iterable[Any]):
        self._places = list(dict.fromkeys(_found(list(around))))
        self._own: dict[Any, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def forget(self, dtype: str) -> None:
        """Before something is run in this dtype: what was made in another is made anew."""
        for _, _, function in self._places:
            if _made_in.get(function) != dtype:
                function.cache_clear()
                _made_in[function] = dtype

    @contextlib.contextmanager
    def own(self) -> Iterator[None]:
        """In it they keep what they give for this alone, from one time to the next."""
        before = [vars(holder)[name] for holder, name, _ in self._places]
        for holder, name, function in self._places:
            if function not in self._own:
                self._own[function] = functools.lru_cache(**function.cache_parameters())(function.__wrapped__)
            held = vars(holder)[name]
            own = self._own[function]
            setattr(holder, name, type(held)(own) if isinstance(held, staticmethod | classmethod) else own)
        try:
            yield
        finally:
            for (holder, name, _), held in zip(self._places, before, strict=True):
                setattr(holder, name, held)


def _found(around: Sequence[Any]) -> Iterator[_Place]:
    around = [x.func if isinstance(x, functools.partial) else x for x in around]
    kinds = [kind for x in around for kind in ((x,) if isinstance(x, type | FunctionType) else type(x).__mro__)]
    waiting = [found for kind in kinds if (found := _module_of(kind)) is not None and _is_a_users(found)]
    projects = {each.__name__.partition(".")[0] for each in waiting}
    folders = tuple({str(Path(str(each.__file__)).parent) + os.sep for each in waiting})
    folders = tuple(folder for folder in folders if Path(folder).name != "site-packages")
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        seen.add(module.__name__)
        yield from _cached(module)
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield from _cached(value)
            found = _module_of(value) if isinstance(value, ModuleType | FunctionType | type | _CACHED) else None
            if found is None or found.__name__ in seen or not _is_a_users(found):
                continue
            if found.__name__.partition(".")[0] in projects or str(found.__file__).startswith(folders):
                waiting.append(found)


def _module_of(value: Any) -> ModuleType | None:
    return value if isinstance(value, ModuleType) else sys.modules.get(getattr(value, "__module__", None) or "")


def _cached(holder: Any) -> Iterator[_Place]:
    for name, value in list(vars(holder).items()):
        held = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(held, _CACHED):
            yield holder, name, held


def _is_a_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and not is_of_a_library(file)
