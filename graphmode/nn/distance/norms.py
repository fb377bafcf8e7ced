"""The p-norm along axes, with the derivative that PyTorch takes where it has none: 0 at zero."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

from ...extremes import first_extreme, largest, smallest


def vector_norm(
    input: jax.Array, p: float, axes: tuple[int, ...], *, keepdim: bool = False, split_ties: bool = True
) -> jax.Array:
    """`torch.linalg.vector_norm`, in the dtype of `input`; half precisions are summed in float32.

    Its derivative is 0 where the norm is 0. For p = inf, entries that tie for the largest share the derivative.

    Args:
      input: floating, any shape.
      p: any number; inf, -inf and 0 (the count of entries that are not 0) too.
      axes: that are summed over, all others stay.
      keepdim: whether those keep their place, with length 1.
      split_ties: False for the whole derivative to each of the entries that tie, as `torch.cdist` has it.
    """
    p = float(p)
    axes = tuple(axis % input.ndim for axis in axes) if input.ndim else ()
    wide = input.astype(jnp.promote_types(input.dtype, jnp.float32))
    norm = _norm(wide, p, axes, split_ties).astype(input.dtype)
    return norm if keepdim else jnp.squeeze(norm, axes)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3))
def _norm(x: jax.Array, p: float, axes: tuple[int, ...], split_ties: bool) -> jax.Array:
    size = jnp.abs(x)
    if p != 0 and all(x.shape[axis] == 1 for axis in axes):
        return size
    if p == 2:
        return jnp.sqrt(jnp.sum(x * x, axes, keepdims=True))
    if p == 1:
        return jnp.sum(size, axes, keepdims=True)
    if p == 0:
        return jnp.sum(x != 0, axes, keepdims=True).astype(x.dtype)
    if math.isinf(p):
        return (largest if p > 0 else smallest)(size, axes, keepdims=True)
    return _power(jnp.sum(_power(size, p), axes, keepdims=True), 1 / p)


@_norm.defjvp
def _norm_jvp(p, axes, split_ties, primals, tangents):
    (x,), (tangent,) = primals, tangents
    norm = _norm(x, p, axes, split_ties)
    return norm, jnp.sum(_slope(x, norm, p, axes, split_ties) * tangent, axes, keepdims=True)


def _slope(x: jax.Array, norm: jax.Array, p: float, axes: tuple[int, ...], split_ties: bool) -> jax.Array:
    """The derivative of the norm by each entry: `norm_backward` of PyTorch."""
    size = jnp.abs(x)
    zero = norm == 0
    safe = jnp.where(zero, 1, norm)
    if p == 0:
        return jnp.zeros_like(x)
    if p == 1:
        return jnp.sign(x)
    if p == 2:
        return jnp.where(zero, 0, x / safe)
    if math.isinf(p):
        top = (size == norm) | (jnp.isnan(size) & jnp.isnan(norm)) | first_extreme(size, axes, is_largest=p > 0)
        slope = jnp.where(top, jnp.sign(x), 0)
        return slope / jnp.sum(top, axes, keepdims=True).astype(x.dtype) if split_ties else slope
    if p < 1:
        power = jnp.sign(x) * _power(jnp.where(x == 0, 1, size), p - 1)
        return jnp.where((x == 0) | zero, 0, power * _power(safe, 1 - p))
    power = jnp.sign(x) * _power(size, p - 1) if p < 2 else x * _power(size, p - 2)
    return jnp.where(zero, 0, power / _power(safe, p - 1))


def _power(base: jax.Array, exponent: float) -> jax.Array:
    """By multiplications where the exponent is whole: fewer roundings, and no logarithm of 0 in a derivative."""
    whole = exponent == int(exponent) and exponent >= 0
    return jax.lax.integer_pow(base, int(exponent)) if whole else jnp.power(base, exponent)
