"""Functions with a finite gradient where the plain ones have none, and the double-where as an operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from ..arguments import as_mask

T = TypeVar("T")


def where_safe(
    mask: ArrayLike, fn: Callable[..., Any], *args: Any, otherwise: Any = 0.0, safe_value: ArrayLike = 1.0
) -> Any:
    """`fn(*args)` where `mask` holds, else `otherwise`: `fn` never sees the other entries, nor do gradients.

    `out = torch.full(...); out[mask] = fn(x[mask])` in eager code. `jnp.where(mask, fn(x), otherwise)` has the right
    values, and NaN for a gradient where `fn` has none, since zero times infinity is NaN; the arguments must be made
    safe before `fn`, not after.

    Args:
      mask: bool, of the leading axes of each argument and of the result: an entry, or a row, `[N]` for `[N, ...]`.
      fn: elementwise, or of rows.
      args: arrays `[*mask.shape, ...]`, or pytrees of such; 0-d ones are shared by all entries and stay.
      otherwise: number, or arrays that broadcast against what `fn` gives.
      safe_value: stands in for the entries where `mask` is false; `fn` and its derivatives are finite there.

    Returns:
      What `fn` gives, `otherwise` in the other entries.

    Raises:
      ValueError: where `mask` is not bool, or does not fit the leading axes of an argument or of the result.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp
      >>> p = jnp.array([0.0, 1.0])
      >>> entropy = lambda p: gm.where_safe(p > 0, lambda p: -p * jnp.log(p), p).sum()
      >>> jax.grad(entropy)(p).tolist()
      [0.0, -1.0]
    """
    mask = as_mask(mask)

    def spread(leaf: jax.Array, what: str) -> jax.Array:
        if leaf.shape[: mask.ndim] != mask.shape:
            raise ValueError(
                f"mask has shape {mask.shape}, and {what} {leaf.shape}; the mask must be that of its leading axes"
            )
        return mask.reshape(mask.shape + (1,) * (leaf.ndim - mask.ndim))

    def guarded(leaf: Any) -> jax.Array:
        leaf = jnp.asarray(leaf)
        if not leaf.ndim and mask.ndim:
            return leaf
        return jnp.where(spread(leaf, "an argument has"), leaf, jnp.asarray(safe_value).astype(leaf.dtype))

    result = jax.tree.map(jnp.asarray, fn(*jax.tree.map(guarded, args)))
    otherwise = _for_each(otherwise, result)
    return jax.tree.map(
        lambda leaf, other: jnp.where(spread(leaf, "fn gives"), leaf, jnp.asarray(other).astype(leaf.dtype)),
        result,
        otherwise,
    )


def attempt(fn: Callable[..., T], *args: Any, otherwise: T) -> T:
    """`fn(*args)` where all of it is finite, else `otherwise`: `try: fn(*args) except LinAlgError: otherwise`.

    JAX raises nothing for a singular matrix, it gives NaN or infinity. All or nothing, for each lane of a `vmap`; where
    the attempt failed no gradient goes to `args`, and none is NaN. `fn` runs twice, once to see what it gives; for
    single entries of a result without gradients, `jnp.where(jnp.isfinite(y), y, otherwise)` does.

    Args:
      fn: of arrays, -> pytree of arrays.
      args: pytrees of arrays.
      otherwise: of the structure and shapes of what `fn` gives, or a number for all of it.

    Returns:
      What `fn` gives, or `otherwise` in its dtypes.

    Raises:
      ValueError: where `otherwise` does not broadcast to what `fn` gives.

    Example:
      >>> import graphmode as gm, jax.numpy as jnp
      >>> gm.attempt(jnp.linalg.inv, jnp.zeros((2, 2)), otherwise=jnp.eye(2)).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    args = jax.tree.map(jnp.asarray, args)
    seen = jax.tree.map(jnp.asarray, fn(*lax.stop_gradient(args)))
    otherwise = _for_each(otherwise, seen)

    def like(leaf: jax.Array, other: Any) -> jax.Array:
        other = jnp.asarray(other).astype(leaf.dtype)
        if jnp.broadcast_shapes(other.shape, leaf.shape) != leaf.shape:
            raise ValueError(
                f"otherwise has shape {other.shape}, and fn gives {leaf.shape}; give that shape, or a number"
            )
        return jnp.broadcast_to(other, leaf.shape)

    otherwise = jax.tree.map(like, seen, otherwise)
    finite = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(seen) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    succeeded = jnp.all(jnp.array(finite, dtype=bool))
    return lax.cond(succeeded, lambda *args: jax.tree.map(jnp.asarray, fn(*args)), lambda *_: otherwise, *args)


def safe_norm(
    x: ArrayLike, *, ord: float = 2, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> jax.Array:
    """Norm of vectors with gradient 0 at 0, as `torch.linalg.vector_norm` has it, where `jnp.linalg.norm` has NaN.

    `optax.safe_norm(x, 0.0, axis=axis)` agrees for `ord=2` and reads `x` twice; it takes a matrix norm where `x` has
    two axes and `axis` is `None`, and its second derivatives for `1 < ord < 2` are infinite at zeros.

    Args:
      x: floating `[...]`.
      ord: 1, 2, `inf` or another number above 0.
      axis: of the vectors, one or several; all axes by default.
      keepdims: whether reduced axes stay, with size 1.

    Returns:
      `[...]` without `axis`, in the dtype of `x`.

    Raises:
      TypeError: where `x` is not real floating.
      ValueError: where `ord` is not above 0.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp
      >>> jax.grad(gm.safe_norm)(jnp.zeros(2)).tolist()
      [0.0, 0.0]
    """
    x = _floating(x, "x")
    if isinstance(ord, bool | jax.Array) or not ord > 0:
        raise ValueError(f"ord is {ord}, and a number above 0 was wanted: 1, 2, inf or another")
    axis = tuple(axis) if isinstance(axis, Sequence) else axis
    if ord == math.inf:
        is_nan = jnp.isnan(x)  # left out of the maximum, whose gradient would be NaN, where PyTorch has 0
        most = jnp.max(jnp.where(is_nan, 0, _magnitude(x)), axis, keepdims=keepdims)
        return jnp.where(jnp.any(is_nan, axis, keepdims=keepdims), jnp.nan, most).astype(x.dtype)
    if ord == 1:
        return jnp.sum(_magnitude(x), axis=axis, keepdims=keepdims)
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    if ord == 2:
        return safe_sqrt(jnp.sum(jnp.square(wide), axis=axis, keepdims=keepdims)).astype(x.dtype)
    powers = where_safe(wide != 0, lambda x: jnp.abs(x) ** ord, wide)
    total = jnp.sum(powers, axis=axis, keepdims=keepdims)
    return where_safe(total != 0, lambda total: total ** (1 / ord), total).astype(x.dtype)


def _magnitude(x: jax.Array) -> jax.Array:
    """`abs(x)`, whose gradient at 0 and NaN is 0 in PyTorch; in JAX it is 1 at 0 and -1 or NaN at NaN."""
    return where_safe(jnp.abs(x) > 0, jnp.abs, x, otherwise=lax.stop_gradient(jnp.abs(x)))


def safe_sqrt(x: ArrayLike) -> jax.Array:
    """`sqrt(x)` with gradient 0 at 0, where `jnp.sqrt` and `torch.sqrt` have infinity.

    Args:
      x: floating `[...]`; NaN comes of negative entries, as of `jnp.sqrt`.

    Returns:
      `[...]` in the dtype of `x`.

    Raises:
      TypeError: where `x` is not real floating.

    Example:
      >>> import graphmode as gm, jax
      >>> jax.grad(gm.safe_sqrt)(0.0).item()
      0.0
    """
    x = _floating(x, "x")
    return where_safe(x != 0, jnp.sqrt, x, otherwise=lax.stop_gradient(x))


def safe_log(x: ArrayLike, *, otherwise: ArrayLike | None = None) -> jax.Array:
    """`log(x)` with gradient 0 at 0, where `jnp.log` and `torch.log` have infinity.

    Args:
      x: floating `[...]`.
      otherwise: value where `x <= 0`, without gradient; by default that of `jnp.log`, -inf at 0 and NaN below.

    Returns:
      `[...]` in the dtype of `x`.

    Raises:
      TypeError: where `x` is not real floating.

    Example:
      >>> import graphmode as gm, jax.numpy as jnp
      >>> gm.safe_log(jnp.array([0.0, 1.0]), otherwise=-100.0).tolist()
      [-100.0, 0.0]
    """
    x = _floating(x, "x")
    if otherwise is None:
        return where_safe(x != 0, jnp.log, x, otherwise=-jnp.inf)
    return where_safe(~(x <= 0), jnp.log, x, otherwise=otherwise)


def safe_divide(x: ArrayLike, y: ArrayLike, otherwise: ArrayLike = 0.0) -> jax.Array:
    """`x / y`, and `otherwise` where `y` is 0: `torch.where(y == 0, otherwise, x / y)` without its NaN gradients.

    Args:
      x: `[...]`, a number.
      y: `[...]`, broadcasts against `x`.
      otherwise: where `y` is 0; broadcasts against both. A gradient goes to it there.

    Returns:
      `[...]` in the dtype of `x / y`.

    Example:
      >>> import graphmode as gm, jax
      >>> [float(d) for d in jax.grad(gm.safe_divide, (0, 1))(1.0, 0.0)]
      [0.0, 0.0]
    """
    x, y = jnp.asarray(x), jnp.asarray(y)
    shape = jnp.broadcast_shapes(x.shape, y.shape, jnp.shape(otherwise))
    dtype = jax.eval_shape(jnp.true_divide, x, y).dtype
    x, y = jnp.broadcast_to(x.astype(dtype), shape), jnp.broadcast_to(y.astype(dtype), shape)
    return where_safe(y != 0, jnp.true_divide, x, y, otherwise=jnp.asarray(otherwise).astype(dtype))


def safe_arcsin(x: ArrayLike) -> jax.Array:
    """`arcsin(x)` with gradient 0 at -1 and 1, where `jnp.arcsin` and `torch.asin` have infinity.

    What rounding puts beyond is NaN, as it is plain: `jnp.clip(x, -1, 1)` first.

    Args:
      x: floating `[...]`.

    Returns:
      `[...]` in the dtype of `x`.

    Raises:
      TypeError: where `x` is not real floating.

    Example:
      >>> import graphmode as gm, jax
      >>> jax.grad(gm.safe_arcsin)(1.0).item()
      0.0
    """
    x = _floating(x, "x")
    return where_safe(jnp.abs(x) != 1, jnp.arcsin, x, otherwise=jnp.arcsin(lax.stop_gradient(x)), safe_value=0)


def safe_arccos(x: ArrayLike) -> jax.Array:
    """`arccos(x)` with gradient 0 at -1 and 1, where `jnp.arccos` and `torch.acos` have infinity: angles of vectors.

    Arguments, result and errors are those of `safe_arcsin`.

    Example:
      >>> import graphmode as gm, jax
      >>> jax.grad(gm.safe_arccos)(-1.0).item()
      0.0
    """
    x = _floating(x, "x")
    return where_safe(jnp.abs(x) != 1, jnp.arccos, x, otherwise=jnp.arccos(lax.stop_gradient(x)), safe_value=0)


def safe_arctan2(y: ArrayLike, x: ArrayLike) -> jax.Array:
    """`arctan2(y, x)` with gradient 0 where both are 0, as `torch.atan2` has it, where `jnp.arctan2` has NaN.

    Args:
      y: floating `[...]`.
      x: floating `[...]`, broadcasts against `y`.

    Returns:
      `[...]` in their common dtype.

    Raises:
      TypeError: where one is not real floating.

    Example:
      >>> import graphmode as gm, jax
      >>> jax.grad(gm.safe_arctan2)(0.0, 0.0).item()
      0.0
    """
    y, x = jnp.broadcast_arrays(_floating(y, "y"), _floating(x, "x"))
    at_zero = jnp.arctan2(lax.stop_gradient(y), lax.stop_gradient(x))
    return where_safe((y != 0) | (x != 0), jnp.arctan2, y, x, otherwise=at_zero)


def _for_each(otherwise: Any, result: Any) -> Any:
    """`otherwise` in the structure of `result`: as it is, or one for all leaves."""
    structure: Any = jax.tree.structure(otherwise)
    return otherwise if structure == jax.tree.structure(result) else jax.tree.map(lambda _: otherwise, result)


def _floating(x: ArrayLike, name: str) -> jax.Array:
    array = jnp.asarray(x)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} is {array.dtype}, and a real floating dtype was wanted; cast it")
    return array
