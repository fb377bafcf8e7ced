"""In a run in float64 a port that asks JAX for float32 gets float64, as `widened` gives it to the reference."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax._src import dtypes

WIDER = {np.dtype(np.float32): np.dtype(np.float64), np.dtype(np.complex64): np.dtype(np.complex128)}
CANONICAL = "check_and_canonicalize_user_dtype"
REINTERPRETS = ("view", "bitcast_convert_type")  # the bits: another dtype is another number

_FOLLOWS = jax.make_user_context(False)  # of one thread, and a part of every key that a traced function is kept under


@contextlib.contextmanager
def float32_is_float64() -> Iterator[None]:
    """Whatever dtype is asked for in it, `jnp.float32`, `np.float32` or `"float32"`, float32 is float64.

    Arrays that are float32 already stay so. Other threads see nothing of it.
    """
    _install()
    with _FOLLOWS(True):
        yield


@functools.cache
def _install() -> None:
    """JAX has one place where a dtype that is asked for becomes the one that is used: without x64 it narrows there. It
    has no public name; `lax.convert_element_type` and all that takes a dtype go through it.

    Raises:
      RuntimeError: where this version of JAX has it no more.
    """
    if not hasattr(dtypes, CANONICAL):
        raise RuntimeError(
            f"jax {jax.__version__} has no {CANONICAL}, by which a port follows its reference's casts to float32 in "
            "float64; install the version in constraints.txt"
        )
    usual: Callable[..., Any] = getattr(dtypes, CANONICAL)

    @functools.wraps(usual)
    def canonical(dtype: Any, fun_name: str | None = None) -> Any:
        used = usual(dtype, fun_name)
        if not _FOLLOWS.value or fun_name in REINTERPRETS:
            return used
        return WIDER.get(used, used)

    setattr(dtypes, CANONICAL, canonical)
