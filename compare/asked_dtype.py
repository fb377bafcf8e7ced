"""In a run in float64 a port that asks JAX for float32, or for the narrow dtype that it is meant for, gets float64, as
`widened` gives it to the reference."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import dtypes

from .constants import Constants, is_float32

WIDER: dict[str, np.dtype[Any]] = {
    **dict.fromkeys(("float32", "bfloat16", "float16"), np.dtype(np.float64)),
    "complex64": np.dtype(np.complex128),
}
CANONICAL = "check_and_canonicalize_user_dtype"
REINTERPRETS = ("view", "bitcast_convert_type")  # the bits: another dtype is another number

ATTENTION = "_dot_product_attention_core"  # of jax.nn.dot_product_attention: its softmax is always in float32

# names of dtypes; of one thread, and a part of every key that a traced function is kept under
_FOLLOWS = jax.make_user_context(())
_ATTENDS = jax.make_user_context(False)
_HOLDS = jax.make_user_context(False)


@contextlib.contextmanager
def as_float64(*names: str) -> Iterator[None]:
    """However a dtype of these names is asked for in it, as `jnp.float32`, `np.float32` or `"float32"`, it is float64,
    or complex128; further ones where it is around another.

    Arrays that have that dtype already keep it. Other threads see nothing of it.
    """
    _install()
    with _FOLLOWS(tuple(sorted({*_FOLLOWS.value, *names}))):
        yield


@contextlib.contextmanager
def attention_in_float64() -> Iterator[None]:
    """In it `jax.nn.dot_product_attention` takes the softmax of float64 scores in float64.

    JAX casts them to float32 there, which no caller can change: what a port computes is not seen in float64 otherwise.
    """
    _install_attention()
    with _ATTENDS(True):
        yield


@contextlib.contextmanager
def constants_in_float64(constants: Constants) -> Iterator[None]:
    """In it float32 that a port computes from is float64, as the reference's buffers are: numpy's arrays that become
    JAX's without a dtype, and those that stand around its classes."""
    _install_constants()
    with constants.wide(), _HOLDS(True):
        yield


@functools.cache
def _install_constants() -> None:
    for name in ("asarray", "array"):
        setattr(jnp, name, _widening(getattr(jnp, name)))


def _widening(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def made(object: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _HOLDS.value and dtype is None and isinstance(object, np.ndarray | np.generic) and is_float32(object):
            object = object.astype(np.float64)
        return usual(object, dtype, *args, **kwargs)

    return made


@functools.cache
def _install_attention() -> None:
    names = inspect.unwrap(jax.nn.dot_product_attention).__globals__
    usual = names.get(ATTENTION)
    if usual is None:
        return  # another JAX: its casts are found and named, as any other

    @functools.wraps(usual)
    def core(query: Any, *args: Any, **kwargs: Any) -> Any:
        wide = _ATTENDS.value and query.dtype == np.float64
        with as_float64("float32") if wide else contextlib.nullcontext():
            return usual(query, *args, **kwargs)

    names[ATTENTION] = core


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
    def canonical(dtype: Any, fun_name: str | None = None, **options: Any) -> Any:
        used = usual(dtype, fun_name, **options)  # jax 0.11 has further ones
        if not _FOLLOWS.value or fun_name in REINTERPRETS:
            return used
        name = np.dtype(used).name
        return WIDER[name] if name in _FOLLOWS.value else used

    setattr(dtypes, CANONICAL, canonical)
