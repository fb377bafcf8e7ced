"""Objects that a model was built of, as the code that makes their like in a port."""

from __future__ import annotations

import enum
import inspect
import math
import sys
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import torch

from .left import DTYPES
from .model import is_module
from .names import torch_name
from .rules import as_tuple
from .shapes import Shapes
from .tables import FUNCTIONS


class NotWrittenError(Exception):
    """An object that no code is known for."""


class Objects(Shapes):
    """Values, classes, functions, and what was made of them."""

    def _object(self, value: Any) -> str:
        """The code of an object.

        Raises:
          NotWrittenError: where there is none.
        """
        if isinstance(value, enum.Enum):
            return f"{self._imported(type(value))}.{value.name}"
        if isinstance(value, str):
            return repr(value) if '"' in repr(value) else f'"{repr(value)[1:-1]}"'
        if value is None or isinstance(value, bool | int | bytes | complex):
            return repr(value)
        if isinstance(value, float):
            return repr(float(value)) if math.isfinite(value) else f'float("{value}")'
        if isinstance(value, np.generic):
            return self._object(value.item())
        if isinstance(value, torch.dtype):
            return DTYPES[str(value).removeprefix("torch.")]
        if isinstance(value, list | tuple | dict | set):
            return self._container(value)
        if isinstance(value, type):
            return self._type(value)
        if isinstance(value, partial):
            return self._partial(value)
        if callable(value) and (torch_name(value) is not None or isinstance(value, FunctionType)):
            return self._function_object(value)
        return self._constructed(value)

    def _container(self, value: Any) -> str:
        if isinstance(value, dict):
            text = "{" + ", ".join(f"{self._object(key)}: {self._object(each)}" for key, each in value.items()) + "}"
            return text if type(value) is dict else f"{self._imported(type(value))}({text})"
        items = [self._object(each) for each in value]
        if hasattr(value, "_fields"):
            return f"{self._imported(type(value))}({', '.join(items)})"
        if isinstance(value, tuple):
            return as_tuple(items)
        return f"[{', '.join(items)}]" if isinstance(value, list) else f"{{{', '.join(items)}}}" if items else "set()"

    def _type(self, value: type) -> str:
        if value.__module__ == "builtins":
            return value.__name__
        return self._class_named(value) if is_module(value) else self._imported(value)

    def _partial(self, value: Any) -> str:
        self.model.imports.add("from functools import partial")
        items = [self._object(each) for each in (value.func, *value.args)]
        items += [f"{name}={self._object(each)}" for name, each in value.keywords.items()]
        return f"partial({', '.join(items)})"

    def _function_object(self, value: Any) -> str:
        name = torch_name(value)
        if name is None:
            return self.model.functions.get(value) or self._imported(value)
        rule = FUNCTIONS.get(name)
        text = self._function_of(name)
        if text is None:
            raise NotWrittenError(f"torch.{name}" + (" is called otherwise in JAX" if rule else ""))
        return text

    def _imported(self, value: Any) -> str:
        """A class or function of the original's, which the port imports, or has itself."""
        if value in self.model.classes:
            return self.model.classes[value]
        module, name = sys.modules.get(value.__module__), str(value.__qualname__)
        if getattr(module, name, None) is not value:
            raise NotWrittenError(f"{name} of {value.__module__}")
        self.model.imports.add(f"from {value.__module__} import {name}")
        return name

    def _constructed(self, value: Any) -> str:
        """The call that makes an object like one that was made while the original was built."""
        if id(value) not in self.model.recording.arguments:
            raise NotWrittenError(f"{type(value).__name__}, whose arguments are not known")
        _, given = self.model.recording.arguments[id(value)]
        name = self._type(type(value)) if not is_module(type(value)) else self.class_to_call(type(value))
        items = self._arguments_of(type(value), given)
        return f"{name}({', '.join([*items, *self._further_of(type(value))])})"

    def _arguments_of(self, kind: type, given: dict[str, Any]) -> list[str]:
        parameters = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
        positional, named = [], []
        has_rest = any(name.startswith("*") and value for name, value in given.items())
        for name, value in given.items():
            known = parameters.get(name)
            if name.startswith("*"):
                positional += [self._object(each) for each in value]
            elif known is not None and (has_rest or known.default is known.empty) and not _is_by_name(known):
                positional.append(self._object(value))
            elif known is None or not _is_same(value, known.default):
                named.append(f"{name}={self._object(value)}")
        return [*positional, *named]

    def class_to_call(self, kind: type) -> str:
        with self._in_types():
            return self._class_named(kind)

    def _further_of(self, kind: type) -> list[str]:
        raise NotImplementedError


def _is_by_name(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)


def _is_same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    return type(value) is type(default) and isinstance(value, bool | int | float | str | tuple) and value == default
