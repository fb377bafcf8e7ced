"""Elementwise functions with the derivatives that PyTorch takes, halves computed in float32 as its kernels do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def kinked(value: Callable[..., jax.Array], tangent: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """The function `value(x, *constants)` of a real array, with derivative `tangent(t, x, *constants)`.

    `tangent` says what PyTorch's backward kernel does with a cotangent `t`, at kinks, infinities and NaN too; it is
    linear in `t`, and so serves forward and reverse mode. The constants are Python numbers.
    """
    count = len(inspect.signature(value).parameters)

    @functools.partial(jax.custom_jvp, nondiff_argnums=tuple(range(1, count)))
    def function(x: jax.Array, *constants: Any) -> jax.Array:
        return value(_wide(x), *constants).astype(x.dtype)

    @function.defjvp
    def _(*args: Any) -> tuple[jax.Array, jax.Array]:
        *constants, (x,), (t,) = args
        return function(x, *constants), tangent(_wide(t), _wide(x), *constants).astype(x.dtype)

    @functools.wraps(value)
    def checked(x: jax.Array, *constants: Any) -> jax.Array:
        x = real(x)
        # The tangent of integers has no arithmetic.
        return function(x, *constants) if jnp.issubdtype(x.dtype, jnp.floating) else value(x, *constants)

    return checked


def smooth(value: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """`value(x, *constants)` of a floating or complex array, whose own derivative is PyTorch's."""

    @functools.wraps(value)
    def function(x: jax.Array, *constants: Any) -> jax.Array:
        x = inexact(x)
        return value(_wide(x), *constants).astype(x.dtype)

    return function


def real(x: jax.Array, name: str = "input") -> jax.Array:
    """As a jax array; raises `TypeError` for complex numbers."""
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise TypeError(f"{name} is {x.dtype}, and a real dtype was wanted; take its real part")
    return x


def floating(x: jax.Array, name: str = "input") -> jax.Array:
    """As a jax array; raises `TypeError` unless it is floating."""
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{name} is {x.dtype}, and a floating dtype was wanted; cast it")
    return x


def inexact(x: jax.Array) -> jax.Array:
    """As a jax array; integers as float32, PyTorch's default dtype."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4 else x
