"""Checks of the arguments that many layers share: sizes, fractions, words, dtypes."""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Word = TypeVar("Word", bound=str)


def as_integer(name: str, value: Any, *, least: int) -> int:
    """A Python integer (numpy's too, booleans not) of at least `least`."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        integer = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; give an integer of at least {least}") from None
    if integer < least:
        raise ValueError(f"{name} is {value!r}; give an integer of at least {least}")
    return integer


def as_integers(name: str, value: Any, count: int, *, least: int) -> tuple[int, ...]:
    """One integer for all of `count` axes, or one each."""
    items = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * count
    if len(items) != count:
        raise ValueError(f"{name} is {value!r}; give an integer, or a tuple of {count}, one for each spatial axis")
    return tuple(as_integer(name, item, least=least) for item in items)


def as_number(name: str, value: Any) -> float:
    """A Python float: of a Python or numpy number, or an array whose one value is known.

    Raises:
      TypeError: for anything else, what is only known when a graph runs among it.
    """
    try:
        if isinstance(value, str):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):  # of a value in a graph too
        raise TypeError(f"{name} is {value!r}; give a number that is known when the graph is traced") from None


def as_word(name: str, value: Any, words: Sequence[Word]) -> Word:
    """One of the words, `reduction="mean"` for instance."""
    if value not in words:
        raise ValueError(f"{name} is {value!r}; choose {' or '.join(map(repr, words))}")
    return value


def as_probability(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value!r}; give a probability from 0 to 1")
    return float(value)


def check_array(name: str, value: Any) -> None:
    """Raises `TypeError` for what is no array of JAX's or numpy's: a tensor of PyTorch's, a list, None."""
    kind = type(value)
    of_torch = kind.__module__.split(".")[0] == "torch"
    if hasattr(value, "dtype") and not of_torch:
        return
    if value is None:
        raise TypeError(f"{name} is None, and an array was wanted")
    told = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    values = f"{name}.detach().cpu().numpy()" if of_torch else name
    raise TypeError(f"{name} is a {told}, and an array was wanted: give jnp.asarray({values})")


def check_same_dtype(**arrays: jax.Array | None) -> None:
    """Raises `TypeError` unless all arrays that are there have one dtype, as PyTorch's kernels do."""
    for name, array in arrays.items():
        if array is not None:
            check_array(name, array)
    dtypes = {name: jnp.dtype(array.dtype) for name, array in arrays.items() if array is not None}
    if len(set(dtypes.values())) > 1:
        told = " and ".join(f"{name} is {dtype}" for name, dtype in dtypes.items())
        raise TypeError(f"{told}; cast them to one dtype, or run under gm.nn.autocast")


def check_floating(name: str, array: jax.Array) -> None:
    check_array(name, array)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise TypeError(f"{name} is {array.dtype}, and a floating dtype was wanted; cast it")


def warn(message: str) -> None:
    """A `UserWarning` that points at the nearest caller outside of `graphmode.nn`."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("graphmode.nn."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
