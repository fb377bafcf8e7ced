"""Functions of many small operations, which eager code runs as one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
T = TypeVar("T")


def compiled_once(*static: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`jax.jit` that `jax.disable_jit` leaves on, for functions of the library that call nothing of the user's.

    Run eagerly, each slice and product would be compiled for each shape by itself, and a scan at every call, since its
    body is a new function. Who disables jit wants to see the values of their model, not of the inside of a convolution.

    Args:
      static: names of the arguments that are no arrays, and hashable.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        compiled = jax.jit(function, static_argnames=static)

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            with jax.disable_jit(False):
                return compiled(*args, **kwargs)

        return run

    return decorate
