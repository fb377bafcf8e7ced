"""Records as JSON, and back from it with every type checked.

A record is a dataclass whose fields are str, int, float, bool, None, literals, lists, dicts with text for keys, tuples,
unions of these, and other records. By dataclasses and the json of the standard library alone, since the comparison
also runs on machines that have jax, torch and nothing that could be fetched.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union

T = TypeVar("T")


class RecordError(ValueError):
    """JSON that is not the record that it should be: where, what came, and what was wanted."""


def to_json(value: Any, *, indent: int | None = None, sort_keys: bool = False) -> bytes:
    """The JSON of a record, or of what holds records, in UTF-8; compact unless indented.

    JSON has no number for what is not finite, which is null, and UTF-8 no form for half a surrogate pair, which is `?`.
    The keys of dicts are sorted on request; fields stay in their order.

    Raises:
      TypeError: for what is none of the above.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(to_builtins(value, sort_keys=sort_keys), ensure_ascii=False, indent=indent, separators=separators)
    return text.encode("utf-8", "replace")


def to_builtins(value: Any, *, sort_keys: bool = False) -> Any:
    """What json can write: records as dicts, tuples as lists, numbers that are not finite as None.

    Raises:
      TypeError: for what is no part of a record.
    """
    convert = functools.partial(to_builtins, sort_keys=sort_keys)
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case list() | tuple():
            return [convert(each) for each in value]
        case Mapping():
            return {str(key): convert(value[key]) for key in (sorted(value) if sort_keys else value)}
    if dataclasses.is_dataclass(value):
        return {field.name: convert(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise TypeError(f"{value!r} is {type(value).__name__}, which no record holds: give a float, a str, a list, a dict")


def from_json(payload: bytes, kind: type[T]) -> T:
    """The record that `payload` holds. Fields that it does not know are passed over.

    Raises:
      RecordError: where it is no JSON, or lacks a field that has no default, or a value has another type, or a number
        is not finite: Python's json reads `NaN`, which is none of JSON's.
    """
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:  # of bytes that are no text, of text that is no JSON, of long numbers
        raise RecordError(f"{error}") from error
    return _read(value, kind, "$")


def _read(value: Any, kind: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _record(value, kind, where)
    if origin is Literal:
        if value not in typing.get_args(kind):
            _refuse(value, " or ".join(map(repr, typing.get_args(kind))), where)
        return value
    if origin in (Union, types.UnionType):
        return _union(value, typing.get_args(kind), where)
    if origin in (list, tuple):
        return _sequence(value, origin, typing.get_args(kind), where)
    if kind is dict or origin is dict:
        if not isinstance(value, dict):
            _refuse(value, "an object", where)
        each = typing.get_args(kind)[1] if origin else Any
        return {key: _read(item, each, f"{where}.{key}") for key, item in value.items()}
    if kind is float and type(value) in (int, float):
        return _finite(value, where)
    if type(value) is not kind:
        _refuse(value, "null" if kind is types.NoneType else kind.__name__, where)
    return value


def _finite(value: float, where: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RecordError(f"{where} is {number}, and a finite number was wanted")
    return number


def _record(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, dict):
        _refuse(value, "an object", where)
    given = {}
    for name, (type_, required) in _fields(kind).items():
        if name in value:
            given[name] = _read(value[name], type_, f"{where}.{name}")
        elif required:
            raise RecordError(f"{where} lacks the field {name!r} of a {kind.__name__}")
    try:
        return kind(**given)
    except ValueError as error:
        raise RecordError(f"{where}: {error}") from error


@functools.cache
def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    """By name, the type of a field and whether it must be there."""
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return {
        field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
    }


def _sequence(value: Any, origin: type, of: tuple[Any, ...], where: str) -> Any:
    if not isinstance(value, list):
        _refuse(value, "an array", where)
    alike = origin is list or of[-1] is Ellipsis
    kinds = [of[0]] * len(value) if alike else of
    if len(kinds) != len(value):
        _refuse(value, f"an array of {len(kinds)}", where)
    return origin(_read(item, kind, f"{where}[{i}]") for i, (item, kind) in enumerate(zip(value, kinds, strict=True)))


def _union(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    wanted = [kind for kind in kinds if kind is not types.NoneType]
    for kind in wanted[:-1]:
        try:
            return _read(value, kind, where)
        except RecordError:
            continue
    return _read(value, wanted[-1], where)


def _refuse(value: Any, wanted: str, where: str) -> typing.NoReturn:
    came = "an object" if isinstance(value, dict) else "an array" if isinstance(value, list) else json.dumps(value)
    raise RecordError(f"{where} is {came}, and {wanted} was wanted")
