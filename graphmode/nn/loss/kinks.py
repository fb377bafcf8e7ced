"""Functions that are not smooth, with PyTorch's derivatives where they bend."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from ...extremes import largest, smallest
from ..folded_sum import joint_row_sums


def _sign(x: jax.Array) -> jax.Array:
    """PyTorch's: 0 for NaN too."""
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


@jax.custom_jvp
def absolute(x: jax.Array) -> jax.Array:
    """|x|, whose derivative at 0 is 0."""
    return jnp.abs(x)


@absolute.defjvp
def _absolute_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return absolute(x), _sign(x) * dx


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def at_least(x: jax.Array, bound: float) -> jax.Array:
    """max(x, bound), whose derivative at the bound is 1, and 0 at NaN."""
    return jnp.maximum(x, bound)  # not `where`: XLA's CPU backend takes a maximum into the sum over a loss


@at_least.defjvp
def _at_least_jvp(bound, primals, tangents):
    (x,), (dx,) = primals, tangents
    return at_least(x, bound), jnp.where(x >= bound, dx, 0)


def above(x: jax.Array) -> jax.Array:
    """x where it is positive, else 0: at 0 the derivative is 0, and NaN gives 0."""
    return jnp.where(x > 0, x, 0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def raised_to(x: jax.Array, bound: float) -> jax.Array:
    """max(x, bound), whose derivative is 1 everywhere."""
    return jnp.maximum(x, bound)


@raised_to.defjvp
def _raised_to_jvp(bound, primals, tangents):
    return raised_to(*primals, bound), tangents[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def norm(x: jax.Array, p: float) -> jax.Array:
    """The p-norm over the last axis, whose derivative at 0 is 0."""
    if p == 2:
        return jnp.sqrt(jnp.square(x).sum(-1))
    if p == 1:
        return jnp.abs(x).sum(-1)
    if p == 0:
        return (x != 0).sum(-1).astype(x.dtype)
    if math.isinf(p):
        return (largest if p > 0 else smallest)(jnp.abs(x), -1)
    return (jnp.abs(x) ** p).sum(-1) ** (1 / p)


@norm.defjvp
def _norm_jvp(p, primals, tangents):
    (x,), (dx,) = primals, tangents
    length = norm(x, p)
    return length, (_slope(x, length, p) * dx).sum(-1)


def _slope(x: jax.Array, length: jax.Array, p: float) -> jax.Array:
    """The derivative of the norm by each entry."""
    wide = length[..., None]
    if p == 2:
        return jnp.where(wide == 0, 0, x / jnp.where(wide == 0, 1, wide))
    if p == 1:
        return _sign(x)
    if p == 0:
        return jnp.zeros_like(x)
    if math.isinf(p):
        reached = (jnp.abs(x) == wide).astype(x.dtype)
        return _sign(x) * reached / reached.sum(-1, keepdims=True)
    safe = jnp.where(x == 0, 1, jnp.abs(x))
    power = jnp.where(wide == 0, 1, wide) ** (p - 1)
    return jnp.where((x == 0) | (wide == 0), 0, _sign(x) * safe ** (p - 1) / power)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def distances(a: jax.Array, others: tuple[jax.Array, ...], p: float, eps: float) -> tuple[jax.Array, ...]:
    """`norm(a - other + eps, p)` of each other, whose differences are not kept for the derivative but taken again."""
    if p == 2:
        return tuple(map(jnp.sqrt, joint_row_sums(_squared_differences, a, *others, eps=eps)))
    return tuple(norm(a - other + eps, p) for other in others)


@distances.defjvp
def _distances_jvp(p, eps, primals, tangents):
    lengths = distances(*primals, p, eps)
    da, moved = tangents
    rates = []
    for other, dother, length in zip(primals[1], moved, lengths, strict=True):
        # Behind the barrier nothing is shared with the length: XLA would write it out between the two.
        a, b, apart = lax.optimization_barrier((primals[0], other, jnp.asarray(eps, length.dtype)))
        rates.append((_slope(a - b + apart, length, p) * (da - dother)).sum(-1))
    return lengths, tuple(rates)


def _squared_differences(a: jax.Array, *others: jax.Array, eps: float) -> tuple[jax.Array, ...]:
    return tuple(jnp.square(a - other + eps) for other in others)
