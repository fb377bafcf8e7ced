"""Numbers that a call is handed as arguments, such as a time or a scale: Python's, or arrays of no axis."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Numbers = dict[str, float]


def numbers_of(function: Callable[..., Any], args: Any, kwargs: Any) -> Numbers:
    """By the names of its parameters, the floats that a function is given."""
    return {name: float(value) for name, value in _bound(function, args, kwargs).items() if _is_number(value)}


def with_numbers(function: Callable[..., Any], args: Any, kwargs: Any, numbers: Mapping[str, float]) -> tuple[Any, Any]:
    """The arguments with these floats in the places of the function's own."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    for name, value in numbers.items():
        usual = bound.arguments[name]
        bound.arguments[name] = value if isinstance(usual, float) else jnp.asarray(value, usual.dtype)
    return bound.args, bound.kwargs


def _bound(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        return dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # a built-in, or what takes its arguments in a way of its own
        return {}


def _is_number(value: Any) -> bool:
    if isinstance(value, jax.core.Tracer):
        return False
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return value.ndim == 0 and value.dtype.kind == "f"
    return isinstance(value, float)
