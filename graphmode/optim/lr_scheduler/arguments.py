"""Checks of the numbers and counts that schedulers take: Python's own, known while the graph is traced."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

GREATEST = 2**31 - 1  # a count is an int32 where x64 is off


def as_number(name: str, value: Any, *, wanted: str = "a number") -> float:
    """A Python float of what is known while the graph is traced."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"{name} is traced ({value.aval.str_short()}), and {wanted} was wanted that is known before the graph "
            f"runs; build the schedule outside of jax.jit"
        )
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} is {value!r}, and {wanted} was wanted; for parameter groups build one schedule each"
        ) from None


def as_lr(name: str, value: Any) -> float:
    """A learning rate as torch's optimizers take it: zero or more."""
    lr = as_number(name, value, wanted="a learning rate")
    if not lr >= 0:
        raise ValueError(f"{name} is {value!r}; give a learning rate of at least 0")
    return lr


def as_whole(name: str, value: Any) -> int:
    """An integer; a float that is whole counts as one, as it does in torch."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    try:
        if isinstance(value, bool | np.bool_ | jax.core.Tracer):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, and an integer was wanted") from None


def as_period(name: str, value: Any) -> int:
    """An integer other than 0; torch takes a negative one for its size."""
    period = as_whole(name, value)
    if not period:
        raise ValueError(f"{name} is 0; give a number of steps of at least 1")
    return abs(period)


def as_wholes(name: str, values: Any) -> tuple[int, ...]:
    """A tuple of integers."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} is {values!r}, and a list of integers was wanted")
    return tuple(as_whole(f"{name}[{i}]", value) for i, value in enumerate(values))


def as_word(name: str, value: Any, words: Sequence[str]) -> str:
    """One of the words."""
    if value not in words:
        raise ValueError(f"{name} is {value!r}; choose {' or '.join(map(repr, words))}")
    return value


def as_count(count: Any) -> int | jax.Array:
    """A Python int where the count is known; otherwise a traced int32, or int64 where it came as one."""
    dtype = getattr(count, "dtype", None)
    if isinstance(count, bool) or (dtype is None and not hasattr(count, "__index__")):
        raise TypeError(f"count is {count!r}, and an integer was wanted, the number of scheduler.step() calls so far")
    if dtype is None:
        return operator.index(count)
    if not jnp.issubdtype(dtype, jnp.integer):
        raise TypeError(f"count has dtype {dtype}, and an integer was wanted, the number of scheduler.step() calls")
    if np.shape(count):
        raise TypeError(f"count has shape {np.shape(count)}, and a scalar was wanted; map over counts with jax.vmap")
    if isinstance(count, jax.core.Tracer):
        return count.astype(jnp.int32 if dtype.itemsize <= 4 else jnp.int64)
    return int(count)
