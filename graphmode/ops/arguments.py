"""Checks of the arguments that fixed-size operations share; each raises while the graph is traced."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

OnOverflow = Literal["flag", "raise", "nan"]


def as_array(x: ArrayLike, *, name: str) -> jax.Array:
    """What `jnp.asarray` gives; where it gives nothing, an error with the argument's name."""
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise TypeError(f"{name} is a {type(x).__name__}, and an array or a number was wanted: {why}") from error


def as_key(key: jax.Array, *, name: str = "key") -> jax.Array:
    """One key of `jax.random`, or one in the older form of it, uint32 words."""
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = not typed and getattr(key, "dtype", None) == jnp.uint32
    if not typed and not words:
        advice = f"jax.random.key({key})" if isinstance(key, int) else "jax.random.key(0)"
        came = repr(key) if isinstance(key, int) else f"a {getattr(key, 'dtype', type(key).__name__)}"
        raise TypeError(f"{name} is {came}, and a key of jax.random was wanted; give {advice}, or rngs() of nnx.Rngs")
    if key.ndim != (1 if words else 0):
        raise ValueError(
            f"{name} has shape {key.shape}, and one key was wanted; take one of them, or map over them with jax.vmap"
        )
    return key


def as_capacity(capacity: int, *, name: str = "capacity") -> int:
    """A static size of at least one."""
    if isinstance(capacity, jax.core.Tracer):
        raise TypeError(
            f"{name} is traced ({capacity.aval.str_short()}), and a Python integer was wanted: it sets a shape, "
            f"which a static graph must know; give an upper bound, or mark the argument with static_argnames"
        )
    try:
        size = operator.index(capacity)
    except TypeError:
        raise TypeError(f"{name} is {capacity!r}, and a positive integer was wanted") from None
    if isinstance(capacity, bool | np.bool_):
        raise TypeError(f"{name} is {capacity!r}, and a positive integer was wanted")
    if size < 1:
        raise ValueError(f"{name} is {size}; give an integer of at least 1, the most entries that there can be")
    return size


def as_on_overflow(on_overflow: str, *dtypes: np.dtype) -> OnOverflow:
    """The policy by name; `"nan"` only where every one of `dtypes` has a NaN."""
    if on_overflow not in get_args(OnOverflow):
        raise ValueError(
            f"on_overflow is {on_overflow!r}; choose 'flag' (the count tells), 'raise' (an error once the graph has "
            f"run) or 'nan' (every value becomes NaN)"
        )
    if on_overflow == "nan":
        for dtype in dtypes:
            if not jnp.issubdtype(dtype, jnp.inexact):
                raise ValueError(f"on_overflow is 'nan', and {dtype} has no NaN; choose 'flag' or 'raise'")
    return on_overflow  # type: ignore[return-value]


def as_mask(mask: ArrayLike, *, name: str = "mask") -> jax.Array:
    """An array of dtype bool; numbers are refused, since 0/1 masks and index lists look alike."""
    array = as_array(mask, name=name)
    if array.dtype != jnp.bool_:
        raise ValueError(f"{name} has dtype {array.dtype}, and bool was wanted; compare it, as in {name} != 0")
    return array


def as_row_mask(mask: ArrayLike, rows: int, *, of: str, shape: tuple[int, ...], name: str = "mask") -> jax.Array:
    """A mask `[N]`, one entry for each of the `rows` of the array named `of`, which has `shape`."""
    array = as_mask(mask, name=name)
    if array.shape != (rows,):
        raise ValueError(
            f"{name} has shape {array.shape}, and {(rows,)} was wanted, one entry for each row of {of}, which has "
            f"shape {shape}; give one entry a row, or map over leading axes with jax.vmap"
        )
    return array


def as_picked_rows(x: Any, mask: ArrayLike, *, name: str = "x") -> tuple[Any, jax.Array]:
    """A pytree of arrays `[N, ...]` and a mask `[N]`, of arrays whose leading axes, all N together, a mask covers."""
    tree = jax.tree.map(lambda leaf: as_array(leaf, name=name), x)
    mask = as_mask(mask)
    shapes = {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    if not shapes:
        raise ValueError(f"{name} holds no array, and an array, or a pytree of such, was wanted")
    for where, shape in shapes.items():
        if not mask.ndim or shape[: mask.ndim] != mask.shape:
            leading = shape[: max(mask.ndim, 1)] or "an array [N, ...] of rows"
            raise ValueError(
                f"mask has shape {mask.shape}, and {name}{where} has shape {shape}; a mask has the shape of the "
                f"leading axes of all that it picks from, {leading} was wanted; or map over leading axes with jax.vmap"
            )
    rows = jax.tree.map(lambda leaf: leaf.reshape(mask.size, *leaf.shape[mask.ndim :]), tree)
    return rows, mask.reshape(-1)


def as_fill_value(value: ArrayLike, dtype: np.dtype, *, name: str = "fill_value", truncate: bool = False) -> jax.Array:
    """A 0-d array of `dtype`, which must be able to hold a known value; an integer, with `truncate`, its whole part."""
    if np.shape(value):
        raise ValueError(f"{name} has shape {np.shape(value)}, and a number or an array of shape () was wanted")
    if not isinstance(value, jax.core.Tracer) and not _fits(np.asarray(value), dtype, truncate):
        raise ValueError(f"{name} is {value}, which {dtype} cannot hold; give one within its range")
    return jnp.asarray(value, dtype)


def _fits(value: np.ndarray, dtype: np.dtype, truncate: bool) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        held = value.astype(dtype)
    if jnp.issubdtype(dtype, jnp.inexact):
        return bool(np.isfinite(held.astype(np.complex128)) or not np.isfinite(value))
    if truncate:
        return dtype == np.bool_ or bool(np.isfinite(value) and held == np.trunc(value))
    return bool(np.isfinite(value) and held == value)


def as_rows(x: Any, *, name: str = "x") -> tuple[Any, int]:
    """A pytree of arrays `[N, ...]` with one `N`, and that `N`."""
    tree = jax.tree.map(lambda leaf: as_array(leaf, name=name), x)
    shapes = {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    if not shapes:
        raise ValueError(f"{name} holds no array, and an array [N, ...] of rows, or a pytree of such, was wanted")
    for where, shape in shapes.items():
        if not shape:
            raise ValueError(f"{name}{where} is a scalar, and an array [N, ...] of rows was wanted")
    lengths = {shape[0] for shape in shapes.values()}
    if len(lengths) > 1:
        listed = ", ".join(f"{name}{where} {shape}" for where, shape in shapes.items())
        raise ValueError(f"the arrays of {name} differ in their first axis: {listed}; give all as many rows")
    return tree, lengths.pop()


def as_broadcast_mask(mask: ArrayLike, shape: tuple[int, ...], *, of: str = "x", name: str = "mask") -> jax.Array:
    """A mask broadcast to `shape`, that of the array named `of`; it may not enlarge it."""
    array = as_mask(mask, name=name)
    try:
        fits = np.broadcast_shapes(array.shape, shape) == tuple(shape)
    except ValueError:
        fits = False
    if not fits:
        leading = array.ndim < len(shape) and array.shape == tuple(shape[: array.ndim])
        advice = f"; give {name}[{', '.join(['...'] + ['None'] * (len(shape) - array.ndim))}]" if leading else ""
        raise ValueError(
            f"{name} has shape {array.shape}, which does not broadcast to {tuple(shape)}, the shape of {of} "
            f"(axes are aligned from the last one){advice}"
        )
    return jnp.broadcast_to(array, shape)


def as_axes(axis: int | Sequence[int] | None, ndim: int, *, name: str = "axis") -> tuple[int, ...]:
    """Axes to reduce over, each counted from the front; `None` is all of them."""
    if axis is None:
        return tuple(range(ndim))
    listed = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    if not listed:
        raise ValueError(f"{name} is empty, which NumPy and PyTorch read differently; give None for all axes")
    axes = []
    for one in listed:
        if isinstance(one, bool | np.bool_ | jax.core.Tracer) or not hasattr(one, "__index__"):
            raise TypeError(
                f"{name} is {axis!r}, and an integer, a tuple of such or None was wanted, known to the graph"
            )
        number = operator.index(one)
        if not -ndim <= number < ndim:
            raise ValueError(f"{name} is {number}, and the array has {ndim} axes; give one from {-ndim} to {ndim - 1}")
        axes.append(number % ndim)
    if len(set(axes)) < len(axes):
        raise ValueError(f"{name} is {axis!r}, which names an axis twice; give each once")
    return tuple(axes)


def as_axis(axis: int, ndim: int, *, name: str = "axis") -> int:
    """One axis, counted from the front."""
    if axis is None or isinstance(axis, tuple | list):
        raise TypeError(f"{name} is {axis!r}, and one integer was wanted")
    return as_axes(axis, ndim, name=name)[0]


def as_inexact(x: ArrayLike, operation: str, *, name: str = "x") -> jax.Array:
    """An array of a floating or complex dtype."""
    array = as_array(x, name=name)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise ValueError(
            f"{name} has dtype {array.dtype}, and {operation} wants a floating one, as in PyTorch; "
            f"give {name}.astype(jnp.float32)"
        )
    return array


def as_ordered(x: ArrayLike, operation: str, *, name: str = "x") -> jax.Array:
    """An array of a dtype that has an order: any but complex."""
    array = as_array(x, name=name)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"{name} has dtype {array.dtype}, which has no order for {operation}; give jnp.abs({name})")
    return array
