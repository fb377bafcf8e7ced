"""Sizes as the config.json beside a file of weights declares them. Importing it imports no framework."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

C = TypeVar("C")


def read_config(kind: type[C], weights: str | PathLike[str], *, fixed: Mapping[str, Any]) -> C:
    """The `kind` whose fields stand in the config.json beside a file of weights; what it leaves out is the default.

    Args:
      kind: a dataclass with the names of the library that wrote the file.
      weights: path of the weights, in whose folder config.json lies.
      fixed: what the port has one form of, by the file's names: a file that asks for another is refused.

    Raises:
      ValueError: where there is no config.json, it is no JSON object, or it asks for what `fixed` excludes.
    """
    path = Path(weights).with_name("config.json")
    try:
        declared = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"path is {Path(weights)}, and no config.json lies beside it, which says what the shapes of tensors do not "
            "(the number of heads); put it there, or give config="
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(declared, dict):
        raise ValueError(f"{path} holds a {type(declared).__name__}, and an object of names and sizes was wanted")
    other = [f"{name} is {declared[name]!r}" for name, only in fixed.items() if declared.get(name, only) != only]
    if other:
        raise ValueError(f"{path} says that {' and '.join(other)}; the port knows {dict(fixed)} alone")
    return kind(**{field.name: declared[field.name] for field in fields(kind) if field.name in declared})  # type: ignore[arg-type]
