"""A case as bytes for another process, with the code that the other process could not import."""

from __future__ import annotations

import contextlib
import pickletools
import sys
from collections.abc import Collection, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import cloudpickle

from ..case import Case


def pickled(case: Case, import_path: Sequence[str]) -> bytes:
    """The case, to be loaded by a process that imports from these folders.

    What lies in a module that would not be found there under its name, or would be another file, is taken along with
    its code: a test module that pytest loads from its path is hidden where an installed package has its name.

    Raises:
      Exception: whatever an object raises that cannot be pickled.
    """
    packed = cloudpickle.dumps(case)
    elsewhere = [module for module in _mentioned(packed) if not _is_found(module, import_path)]
    if not elsewhere:
        return packed
    with _by_value(elsewhere):
        return cloudpickle.dumps(case)


def _mentioned(packed: bytes) -> list[ModuleType]:
    """The modules with a file whose names are among the strings of a pickle."""
    names = {argument for _, argument, _ in pickletools.genops(packed) if isinstance(argument, str)}
    modules = [sys.modules.get(name) for name in sorted(names)]
    return [module for module in modules if module is not None and getattr(module, "__file__", None)]


def _is_found(module: ModuleType, import_path: Sequence[str]) -> bool:
    """Whether a search from the top finds the file that the module is of."""
    folders: Collection[str] | None = import_path
    name, spec = "", None
    for part in module.__name__.split("."):
        if folders is None:
            return False
        name = f"{name}.{part}" if name else part
        spec = _spec(name, list(folders))
        if spec is None:
            return False
        folders = spec.submodule_search_locations
    if spec is None or not spec.has_location:  # part of the interpreter
        return spec is not None
    return Path(str(spec.origin)).resolve() == Path(str(module.__file__)).resolve()


def _spec(name: str, folders: list[str]) -> ModuleSpec | None:
    """As an interpreter finds it that has started as this one has: by the finders that it begins with."""
    for finder in sys.meta_path:
        kind = finder if isinstance(finder, type) else type(finder)
        if not kind.__module__.startswith("_pytest"):
            spec = finder.find_spec(name, folders)
            if spec is not None:
                return spec
    return None


@contextlib.contextmanager
def _by_value(modules: Sequence[ModuleType]) -> Iterator[None]:
    already = cloudpickle.list_registry_pickle_by_value()
    new = [module for module in modules if module.__name__ not in already]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)
