"""Straight-through estimators: the value of a function that has no useful gradient, with the gradient of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

T = TypeVar("T")


@jax.custom_jvp
def _value_with_gradient_of(value: jax.Array, through: jax.Array) -> jax.Array:
    return value


@_value_with_gradient_of.defjvp
def _tangent_of_through(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    return _value_with_gradient_of(*primals), tangents[1]


def straight_through(fn: Callable[[T], T], x: T, *, surrogate: Callable[[T], T] | None = None) -> T:
    """`fn(x)`, with the gradient of `surrogate(x)`, or of `x` itself.

    `x + (fn(x) - x).detach()` in PyTorch, whose sum rounds: here the value is `fn(x)` to the last bit, and infinities
    stay. `fn` need not be differentiable, and may be `opaque`. Reverse and forward mode, and higher derivatives, which
    are those of the surrogate.

    Args:
      fn: -> array of the shape and dtype of `x`, or of what `surrogate` gives.
      x: floating array `[...]`, or a pytree.
      surrogate: -> as `fn`; differentiable.

    Returns:
      What `fn` gives.

    Raises:
      TypeError: where `fn` or `surrogate` is not callable, or an array is not floating.
      ValueError: where `fn` gives another structure, shape or dtype than `surrogate`.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp
      >>> spike = lambda x: gm.straight_through(lambda x: jnp.heaviside(x, 0), x, surrogate=jax.nn.sigmoid)
      >>> [round(float(y), 3) for y in jax.value_and_grad(spike)(1.0)]
      [1.0, 0.197]
    """
    for name, given in (("fn", fn), ("surrogate", surrogate)):
        if not callable(given) and (name, given) != ("surrogate", None):
            raise TypeError(f"{name} is {given!r}, and a function was wanted")
    x = jax.tree.map(jnp.asarray, x)
    through = x if surrogate is None else jax.tree.map(jnp.asarray, surrogate(x))
    of = "x" if surrogate is None else "surrogate(x)"
    for leaf in jax.tree.leaves(through):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise TypeError(f"{of} is {leaf.dtype}, which has no gradient; give floating-point arrays")
    value = jax.tree.map(jnp.asarray, fn(lax.stop_gradient(x)))
    came: Any = jax.tree.structure(value)
    if came != jax.tree.structure(through):
        raise ValueError(f"fn gives {came}, and {jax.tree.structure(through)} was wanted, the structure of {of}")
    for found, wanted in zip(jax.tree.leaves(value), jax.tree.leaves(through), strict=True):
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            raise ValueError(
                f"fn gives {found.dtype}{list(found.shape)}, and {wanted.dtype}{list(wanted.shape)} was wanted, as {of}"
                f" is; cast it, or give a surrogate of that shape"
            )
    return jax.tree.map(lambda v, t: _value_with_gradient_of(lax.stop_gradient(v), t), value, through)


def ste_round(x: ArrayLike) -> jax.Array:
    """`x` rounded, halves to even as `torch.round` does, with the gradient of `x`: fake quantization.

    Args:
      x: floating `[...]`.

    Returns:
      `[...]` in the dtype of `x`.

    Raises:
      TypeError: where `x` is not floating.

    Example:
      >>> import graphmode as gm, jax
      >>> [float(y) for y in jax.value_and_grad(lambda x: 3 * gm.ste_round(x))(2.5)]
      [6.0, 3.0]
    """
    return straight_through(jnp.round, jnp.asarray(x))


def ste_sign(x: ArrayLike, *, window: float | None = None) -> jax.Array:
    """Sign of `x`, 0 at 0 and NaN as `torch.sign`'s, with the gradient of `x`: binarized networks.

    Courbariaux et al., "Binarized Neural Networks" (2016), let the gradient through where `|x| <= 1`: `window=1`.

    Args:
      x: floating `[...]`.
      window: the largest magnitude of an entry that gets a gradient; all do without.

    Returns:
      `[...]` in the dtype of `x`.

    Raises:
      TypeError: where `x` is not floating.
      ValueError: where window is negative or NaN.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp
      >>> jax.grad(lambda x: gm.ste_sign(x, window=1.0).sum())(jnp.array([-3.0, 0.5])).tolist()
      [0.0, 1.0]
    """
    if window is None:
        return straight_through(_sign, jnp.asarray(x))
    if isinstance(window, int | float) and not window >= 0:
        raise ValueError(f"window is {window}; give a number of at least 0, or None for a gradient everywhere")

    def windowed(x: jax.Array) -> jax.Array:
        return jnp.where(jnp.abs(x) <= window, x, lax.stop_gradient(x))

    return straight_through(_sign, jnp.asarray(x), surrogate=windowed)


def _sign(x: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(x), 0, jnp.sign(x)).astype(x.dtype)


def straight_through_one_hot(weights: ArrayLike, *, axis: int = -1) -> jax.Array:
    """One at the largest of `weights` along `axis`, the first of equals, else zero; with the gradient of `weights`.

    `one_hot(p.argmax(-1)) - p.detach() + p` in PyTorch, without its rounding.

    Args:
      weights: floating `[..., C, ...]`, mostly a softmax.
      axis: of the classes.

    Returns:
      `[..., C, ...]` in the dtype of `weights`.

    Raises:
      TypeError: where `weights` is not floating.

    Example:
      >>> import graphmode as gm, jax.numpy as jnp
      >>> gm.straight_through_one_hot(jnp.array([0.2, 0.5, 0.3])).tolist()
      [0.0, 1.0, 0.0]
    """

    def one_hot(weights: jax.Array) -> jax.Array:
        return jax.nn.one_hot(jnp.argmax(weights, axis), weights.shape[axis], dtype=weights.dtype, axis=axis)

    return straight_through(one_hot, jnp.asarray(weights))


def gumbel_softmax(
    logits: ArrayLike, noise: ArrayLike, *, tau: ArrayLike = 1.0, hard: bool = False, axis: int = -1
) -> jax.Array:
    """Sample of a relaxed categorical distribution: `torch.nn.functional.gumbel_softmax` with the noise given.

    Jang et al., "Categorical Reparameterization with Gumbel-Softmax" (2017).

    Args:
      logits: floating `[..., C, ...]`, unnormalised log-probabilities.
      noise: of the shape and dtype of `logits`, `jax.random.gumbel(key, logits.shape, logits.dtype)`.
      tau: temperature, a positive number or 0-d array.
      hard: whether to give one-hot vectors, with the gradient of the soft sample.
      axis: of the classes.

    Returns:
      `[..., C, ...]` in the dtype of `logits`; sums to one along `axis`.

    Raises:
      TypeError: where `logits` is not floating.
      ValueError: where `noise` has another shape.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp
      >>> logits = jnp.array([1.0, 2.0, 3.0])
      >>> gm.gumbel_softmax(logits, jax.random.gumbel(jax.random.key(0), (3,)), hard=True).sum().item()
      1.0
    """
    logits, noise = jnp.asarray(logits), jnp.asarray(noise)
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise TypeError(f"logits is {logits.dtype}, and a floating dtype was wanted")
    if noise.shape != logits.shape:
        raise ValueError(
            f"noise has shape {noise.shape}, and {logits.shape} was wanted, that of logits; "
            f"draw it with jax.random.gumbel(key, logits.shape, logits.dtype)"
        )
    soft = jax.nn.softmax((logits + noise.astype(logits.dtype)) / jnp.asarray(tau, logits.dtype), axis=axis)
    return straight_through_one_hot(soft, axis=axis) if hard else soft
