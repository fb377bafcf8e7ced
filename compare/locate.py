"""A case from where a user keeps it: `path/to/file.py:NAME` or `package.module:NAME`."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Collection
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, overload

from .case import Case, CaseError
from .early_exit import LeftEarly
from .errors import describe, describe_with_line, line_of
from .nearest import nearest

MOST_NAMES = 12


def is_location(text: str) -> bool:
    """Whether the text names a file or a module rather than a case of the zoo."""
    return ":" in text or "/" in text or text.endswith(".py") or "." in text


@overload
def locate(text: str) -> Case: ...
@overload
def locate(text: str, kinds: tuple[type[Any], ...], word: str) -> Any: ...
def locate(text, kinds=(Case,), word="case"):
    """Imports the file or module and gives the case that it names.

    Without `:NAME`, the only case in it; of several kinds, the only one of the first kind that is there.

    Args:
      text: `path/to/file.py:NAME` or `package.module:NAME`.
      kinds: what may be named there.
      word: what such a thing is called.

    Raises:
      CaseError: where there is no such file or module, it cannot be imported, or NAME is missing or no `Case`.
    """
    place, separator, attribute = text.rpartition(":") if ":" in text else (text, "", "")
    if not place:
        raise CaseError(f"{text!r} names no file and no module; give path/to/file.py:NAME or package.module:NAME")
    module = _from_file(Path(place)) if _is_file(place) else _from_module(place)
    found = {name: value for name, value in vars(module).items() if isinstance(value, kinds) and _is_own(value, module)}
    if not separator or not attribute:
        for kind in kinds:
            of_kind = [value for value in found.values() if isinstance(value, kind)]
            if len(of_kind) == 1:
                return of_kind[0]
        if not found:
            raise CaseError(f"{place} has no {word}; write one there, or name another file or module")
        one = f"name one, as in {place}:{next(iter(found))}"
        raise CaseError(f"{place} has {len(found)} {word}s ({_listed(found)}); {one}")
    its = f"its {word}s are {_listed(found)}" if found else f"it has no {kinds[0].__name__}"
    if not hasattr(module, attribute):
        near = nearest(attribute, found or vars(module))
        hint = f"; did you mean {near[0]}?" if near else ""
        raise CaseError(f"{place} has no attribute {attribute!r}; {its}{hint}")
    value = getattr(module, attribute)
    if not isinstance(value, kinds):
        wanted = " or ".join(map(_called, kinds))
        raise CaseError(f"{text} is {type(value).__name__}, and a {wanted} was wanted; {its}")
    return value


def _is_own(value: Any, module: ModuleType) -> bool:
    """Whether it is no class or function that the module has from another."""
    return not isinstance(value, type | FunctionType) or value.__module__ == module.__name__


def _called(kind: type[Any]) -> str:
    plain = {type: "class", FunctionType: "function"}
    return plain.get(kind) or f"{kind.__module__.rpartition('.')[0]}.{kind.__name__}"


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(itertools.islice(names, MOST_NAMES))
    return shown + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def absolute(text: str) -> str:
    """The same location for a process that works in another folder."""
    place, separator, attribute = text.rpartition(":") if ":" in text else (text, "", "")
    return f"{Path(place).absolute()}{separator}{attribute}" if _is_file(place) else text


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or place.startswith(".")


def _from_file(path: Path) -> ModuleType:
    if path.is_dir():
        raise CaseError(f"{path} is a folder; give path/to/file.py:NAME")
    if not path.is_file():
        raise CaseError(f"there is no file {path}; give path/to/file.py:NAME")
    path = path.resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CaseError(f"{path} cannot be imported as Python; give path/to/file.py:NAME")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # the file imports its neighbours, as when it is run
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise CaseError(f"{path.name} cannot be imported: {_where(error)}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _from_module(name: str) -> ModuleType:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise CaseError(f"there is no module {name!r} ({error}); give package.module:NAME") from error
    except (Exception, SystemExit) as error:
        raise CaseError(f"{name} cannot be imported: {_where(error)}") from error
    finally:
        sys.path.remove("")


def _where(error: Exception | SystemExit) -> str:
    if isinstance(error, LeftEarly):
        return f"{error}{line_of(error)}; move that below if __name__ == '__main__'"
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        return f"it calls sys.exit({code}){line_of(error)}; move that below if __name__ == '__main__'"
    if isinstance(error, SyntaxError):  # its text names file and line
        return describe(error) + (f": {error.text.strip()}" if error.text and error.text.strip() else "")
    return describe_with_line(error)
