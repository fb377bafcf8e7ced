"""Cosine similarity, and vectors brought to length 1."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..arguments import check_floating
from ..autocast import autocasts
from ..folded_sum import joint_row_sums
from ..layer import Layer
from ..straight_through import valued
from .norms import vector_norm


@autocasts
def cosine_similarity(x1: jax.Array, x2: jax.Array, dim: int = 1, eps: float = 1e-8) -> jax.Array:
    """The cosine of the angle between vectors along `dim`, each length at least `eps`.

    The derivative is PyTorch's: that of a length below `eps` is taken as though it were not bounded, and 0 at zero.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cosine_similarity.html

    Args:
      x1, x2: floating; their shapes broadcast.
      dim: axis of the broadcast shape.
      eps: least length.

    Returns:
      That shape without `dim`, in the wider of the dtypes.

    Raises:
      ValueError: where the shapes do not broadcast, or there is no such axis.
      TypeError: where the wider dtype is no floating one.
    """
    dtype = jnp.promote_types(x1.dtype, x2.dtype)
    x1, x2 = (x.astype(dtype) for x in _broadcast(x1, x2))
    check_floating("x1", x1)
    axis = as_axis("dim", dim, x1.ndim)
    return jnp.squeeze(_cosine(x1, x2, axis, eps), axis)


def products(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of each with the other, and with itself."""
    return a * b, jnp.square(a), jnp.square(b)


class _Cosine(NamedTuple):
    """Of vectors along an axis, which is kept: their cosine, their lengths, and what counts of these."""

    value: jax.Array
    norms: tuple[jax.Array, jax.Array]
    lengths: tuple[jax.Array, jax.Array]


def _parts(x1: jax.Array, x2: jax.Array, axis: tuple[int, ...], eps: float) -> _Cosine:
    if axis == (x1.ndim - 1,) and x1.shape[-1] > 1 and x1.dtype.itemsize >= 4:
        product, *squares = (total[..., None] for total in joint_row_sums(products, x1, x2))
        # with a derivative of 0 at 0, as `vector_norm` has it
        norm1, norm2 = (jnp.where(s == 0, s, jnp.sqrt(jnp.where(s == 0, 1, s))) for s in squares)
        length1, length2 = (jnp.maximum(norm, eps) for norm in (norm1, norm2))
        value = product / length1 / length2  # whose product may be too small or too large
    else:
        norm1, norm2 = (vector_norm(x, 2, axis, keepdim=True) for x in (x1, x2))
        length1, length2 = (jnp.maximum(norm, eps) for norm in (norm1, norm2))
        value = jnp.sum(x1 / length1 * (x2 / length2), axis, keepdims=True)
    return _Cosine(value, (norm1, norm2), (valued(norm1, length1), valued(norm2, length2)))


# Left to itself, JAX sums both vectors up again on its way back, where the cosine and two lengths say all.
@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _cosine(x1: jax.Array, x2: jax.Array, axis: tuple[int, ...], eps: float) -> jax.Array:
    return _parts(x1, x2, axis, eps).value


@_cosine.defjvp
def _cosine_jvp(axis: tuple[int, ...], eps: float, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    x1, x2 = primals
    cosine = _cosine(x1, x2, axis, eps)  # by its own rule, where it is differentiated once more
    _, norms, (length1, length2) = _parts(x1, x2, axis, eps)
    moved = jnp.zeros_like(cosine)
    sides = zip((primals, primals[::-1]), tangents, norms, (length1, length2), strict=True)
    for (x, other), dx, norm, length in sides:
        by_length = jnp.where(norm == 0, 0, cosine / (jnp.where(norm == 0, 1, norm) * length))
        moved += jnp.sum(dx * (other / (length1 * length2) - x * by_length), axis, keepdims=True)
    return cosine, moved


@autocasts
def normalize(input: jax.Array, p: float = 2.0, dim: int | Sequence[int] = 1, eps: float = 1e-12) -> jax.Array:
    """`input` divided by its p-norm along `dim`, which counts as `eps` where it is less.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.normalize.html

    Args:
      input: floating, any shape.
      p: of the norm.
      dim: axis or axes of `input` as given: PyTorch's default of 1 is no channel axis where channels are last.
      eps: least norm.

    Raises:
      ValueError: where there is no such axis.
      TypeError: where `input` is not floating.
    """
    check_floating("input", input)
    norm = vector_norm(input, p, as_axis("dim", dim, input.ndim), keepdim=True)
    return input / jnp.where(norm < eps, jnp.asarray(eps, norm.dtype), norm)


class CosineSimilarity(Layer):
    """The cosine of the angle between vectors along `dim`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CosineSimilarity.html

    Args:
      dim: axis of the arrays as given: PyTorch's default of 1 is no channel axis where channels are last.
      eps: least length.

    Example:
      >>> CosineSimilarity(dim=-1)(jnp.asarray([3.0, 4.0]), jnp.asarray([6.0, 8.0])).item()
      1.0
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        self.dim = dim
        self.eps = eps

    def __call__(self, x1: jax.Array, x2: jax.Array) -> jax.Array:
        return cosine_similarity(x1, x2, self.dim, self.eps)


def as_axis(name: str, value: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """One axis or several, counted from 0; the axis of a number is 0 or -1, as in PyTorch, and is none."""
    axes = tuple(value) if isinstance(value, Sequence) else (value,)
    for axis in axes:
        if not -max(ndim, 1) <= axis < max(ndim, 1):
            raise ValueError(f"{name} is {value!r}, and the array has {ndim} axes")
    return tuple(axis % ndim for axis in axes) if ndim else ()


def _broadcast(x1: jax.Array, x2: jax.Array) -> list[jax.Array]:
    try:
        return jnp.broadcast_arrays(x1, x2)
    except ValueError:
        raise ValueError(
            f"x1 has shape {tuple(x1.shape)} and x2 {tuple(x2.shape)}, which do not broadcast to one shape"
        ) from None
