"""Hooks: a function of a value, or of the gradient that comes back to it, in the middle of a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..control.closures import hoisted

T = TypeVar("T")


def gradient_hook(x: T, fn: Callable[[Any], Any]) -> T:
    """`x`, with `fn` applied to its gradient on the way back: `x.register_hook(fn)` of PyTorch.

    Identity with a `custom_vjp`. The gradient is that of what is given back, so go on with `x = gradient_hook(x, fn)`:
    a use of the old `x` passes the hook by. There is no handle: a hook is removed by not being traced. Reverse mode
    only; `jax.jvp`, and `jax.hessian` with it, raise `TypeError`. Second derivatives, as of `jax.grad` twice, go
    through `fn` and once more through the hook, as PyTorch's under `create_graph=True` do. `fn` may close over arrays,
    and no gradient goes to them.

    Args:
      x: floating array `[...]`, or a pytree; leaves that have no gradient are `None` in what `fn` gets.
      fn: gradient of the shape and dtype of `x` -> another of the same, or `None` to look only; traced.

    Returns:
      `x`, the same values.

    Raises:
      TypeError: where no leaf of `x` is floating, or `fn` is not callable.
      ValueError: where `fn` gives another structure, shape or dtype.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp
      >>> jax.grad(lambda x: gm.gradient_hook(x, lambda g: 10 * g) ** 2)(3.0).item()
      60.0
    """
    x = _floating(x, "gradient_hook")
    hook = hoisted(_checked_hook(fn), _differentiable(x))

    @jax.custom_vjp
    def identity(x: T, constants: list[Any]) -> T:
        return x

    def backward(constants: list[Any], gradient: Any) -> tuple[Any, None]:
        seen = _differentiable(gradient)
        found = hook.call(constants, seen)
        changed = seen if found is None else found
        return jax.tree.map(lambda g, new: g if new is None else new, gradient, changed, is_leaf=_is_none), None

    # hooked again: a backward pass that is differentiated computes with the value given back
    identity.defvjp(lambda x, constants: (identity(x, constants), constants), backward)
    return identity(x, hook.constants)


def value_hook(x: T, fn: Callable[[T], T | None]) -> T:
    """`fn(x)`, or `x` where that is `None`: what a forward hook of PyTorch gives, checked to be of the same kind.

    For a hook on a module, apply it to what the module gives. Differentiable, in every mode, as `fn` is.

    Args:
      x: array `[...]`, or a pytree.
      fn: -> values of the structure, shapes and dtypes of `x`, or `None` to look only; traced, so it sees no number:
        print with `debug_print`.

    Returns:
      Values like `x`.

    Raises:
      TypeError: where `fn` is not callable.
      ValueError: where `fn` gives another structure, shape or dtype.

    Example:
      >>> import graphmode as gm
      >>> gm.value_hook(2.0, lambda x: x + 1).item()
      3.0
    """
    x = jax.tree.map(jnp.asarray, x)
    return _like(x, _callable(fn)(x), "x")


@jax.custom_jvp
def _scaled(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x


@_scaled.defjvp
def _scaled_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    (x, scale), (tangent, _) = primals, tangents
    return _scaled(x, scale), tangent * scale.astype(tangent.dtype)


def scale_gradient(x: T, scale: ArrayLike) -> T:
    """`x`, its gradient multiplied by `scale`.

    `x.register_hook(lambda g: g * scale)` of PyTorch; as `optax.scale_gradient`, with a `scale` that may be traced.
    Forward mode scales the tangent.

    Args:
      x: floating array `[...]`, or a pytree; leaves of other dtypes pass.
      scale: a number, or 0-d array; no gradient goes to it.

    Returns:
      `x`, the same values.

    Raises:
      TypeError: where no leaf of `x` is floating.
      ValueError: where scale is no 0-d array.

    Example:
      >>> import graphmode as gm, jax
      >>> jax.grad(lambda x: gm.scale_gradient(x, 0.5) ** 2)(3.0).item()
      3.0
    """
    scale = _scalar(scale, "scale")
    return jax.tree.map(
        lambda leaf: _scaled(leaf, scale) if _has_gradient(leaf) else leaf, _floating(x, "scale_gradient")
    )


def reverse_gradient(x: T, scale: ArrayLike = 1.0) -> T:
    """`x`, its gradient multiplied by `-scale`: the gradient reversal layer of domain-adversarial training.

    Ganin and Lempitsky, "Unsupervised Domain Adaptation by Backpropagation" (2015). Arguments, result and errors are
    those of `scale_gradient`; `scale` may follow a schedule without a new compilation.

    Example:
      >>> import graphmode as gm, jax
      >>> jax.grad(lambda x: gm.reverse_gradient(x) ** 2)(3.0).item()
      -6.0
    """
    return scale_gradient(x, -_scalar(scale, "scale"))


def clip_gradient(x: T, *, max_value: ArrayLike | None = None, max_norm: ArrayLike | None = None) -> T:
    """`x`, its gradient clipped on the way back, where `optax.clip` would come too late: inside a network or a loop.

    Args:
      x: floating array `[...]`, or a pytree.
      max_value: the most of an entry's magnitude, `register_hook(lambda g: g.clamp(-max_value, max_value))`.
      max_norm: the most of the 2-norm of all of `x`'s gradient, as `torch.nn.utils.clip_grad_norm_` clips: times
        `max_norm / (norm + 1e-6)` where that is below one.

    Returns:
      `x`, the same values.

    Raises:
      TypeError: where no leaf of `x` is floating.
      ValueError: where not exactly one limit is given, or one is no 0-d array, or known to be negative or NaN.

    Example:
      >>> import graphmode as gm, jax
      >>> jax.grad(lambda x: gm.clip_gradient(x, max_value=1.0) ** 2)(3.0).item()
      1.0
    """
    if (max_value is None) == (max_norm is None):
        raise ValueError(f"max_value is {max_value} and max_norm is {max_norm}; give one of them")
    x = _floating(x, "clip_gradient")
    if max_value is not None:
        limit = _limit(max_value, "max_value")

        def by_value(g: jax.Array) -> jax.Array:
            return jnp.clip(g, -limit.astype(g.dtype), limit.astype(g.dtype))

        return gradient_hook(x, partial(jax.tree.map, by_value))
    limit = _limit(max_norm, "max_norm")

    def by_norm(gradient: Any) -> Any:
        wide = [g.astype(jnp.promote_types(g.dtype, jnp.float32)) for g in jax.tree.leaves(gradient)]
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(jnp.abs(g))) for g in wide))
        factor = jnp.minimum(limit / (norm + 1e-6), 1)
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), gradient)

    return gradient_hook(x, by_norm)


def _has_gradient(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def _is_none(leaf: Any) -> bool:
    return leaf is None


def _differentiable(tree: Any) -> Any:
    """`None` in place of integers, whose cotangents JAX gives as float0, and of keys."""
    return jax.tree.map(lambda leaf: leaf if _has_gradient(leaf) else None, tree)


def _floating(x: Any, operation: str) -> Any:
    tree = jax.tree.map(jnp.asarray, x)
    leaves = jax.tree.leaves(tree)
    if not any(map(_has_gradient, leaves)):
        came = ", ".join(str(leaf.dtype) for leaf in leaves) or "no array"
        raise TypeError(f"x of {operation} holds {came}, which has no gradient; give floating-point arrays")
    return tree


def _scalar(value: ArrayLike | None, name: str) -> jax.Array:
    array = jnp.asarray(value)
    if array.shape or not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise ValueError(f"{name} is {array.dtype}{list(array.shape)}, and one real number was wanted")
    return jax.lax.stop_gradient(array)


def _limit(value: ArrayLike | None, name: str) -> jax.Array:
    if isinstance(value, int | float | np.number) and not value >= 0:
        raise ValueError(f"{name} is {value}; give a number of at least 0")
    return _scalar(value, name)


def _callable(fn: Any) -> Callable[..., Any]:
    if not callable(fn):
        raise TypeError(f"fn is {fn!r}, and a function was wanted")
    return fn


def _checked_hook(fn: Any) -> Callable[[Any], Any]:
    _callable(fn)

    def hook(gradient: Any) -> Any:
        found = fn(gradient)
        return None if found is None else _like(gradient, found, "the gradient")

    return hook


def _like(wanted: Any, found: Any, what: str) -> Any:
    """`found`, or `wanted` where it is `None`; of one structure, and the same shapes and dtypes."""
    if found is None:
        return wanted
    came: Any = jax.tree.structure(found)
    if came != jax.tree.structure(wanted):
        raise ValueError(
            f"fn gives {came}, and {jax.tree.structure(wanted)} was wanted, the structure of "
            f"{what}; give the same structure, or None to leave it as it is"
        )
    found = jax.tree.map(jnp.asarray, found)
    for (path, old), new in zip(jax.tree_util.tree_leaves_with_path(wanted), jax.tree.leaves(found), strict=True):
        if (old.shape, np.dtype(old.dtype)) != (new.shape, np.dtype(new.dtype)):
            raise ValueError(
                f"fn gives {new.dtype}{list(new.shape)}, and {old.dtype}{list(old.shape)} was wanted, as "
                f"{what}{jax.tree_util.keystr(path)} is; keep shape and dtype, or give None to leave it as it is"
            )
    return found
