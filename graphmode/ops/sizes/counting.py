"""`bincount` and `one_hot` without a size: as many classes as the values say, at a fixed capacity."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_capacity
from ..groups.segments import unpadded
from ..indices import DROP
from ..masking.padded import Padded
from .lengths import NO_LENGTH, as_integers, settled_if


def bincount(
    x: ArrayLike | Padded[jax.Array],
    weights: ArrayLike | None = None,
    *,
    capacity: int,
    minlength: int = 0,
    valid: ArrayLike | None = None,
    on_overflow: OnOverflow = "flag",
) -> Padded[jax.Array]:
    """How often each value occurs: `torch.bincount(x, weights, minlength)` at a fixed size.

    `jnp.bincount(length=)` drops what is out of range and does not tell.

    Args:
      x: `[N]` integers, none negative; or a `Padded` of such.
      weights: `[N]`, added up in place of ones; with a gradient.
      capacity: the most classes that there is room for; the first ones are kept.
      minlength: the count is at least this, static.
      valid: `[N]` bool, false for entries that do not count.
      on_overflow: where an entry is negative, or `capacity` or more, `"flag"` sets the count alone, `"raise"` raises
        `ValueError` once the graph has run, `"nan"` makes every value NaN.

    Returns:
      `Padded` of `[capacity]`: valid, and counted, up to the largest entry of `x`, as long as torch's result. int32, or
      with weights their dtype if that is float32 or float64, and JAX's default float otherwise. The count is 2**31 - 1,
      an overflow, where an entry is negative, for which PyTorch raises, or where a `Padded` had lost entries.

    Raises:
      ValueError: where weights, capacity, minlength, valid or on_overflow do not fit.
      TypeError: where x has no integers, or capacity is no integer, or a traced one.

    Example:
      >>> import jax.numpy as jnp
      >>> counts = bincount(jnp.array([1, 3, 1]), capacity=5)
      >>> counts.values.tolist(), int(counts.count)
      ([0, 2, 0, 1, 0], 4)
    """
    capacity = as_capacity(capacity)
    least = as_capacity(minlength, name="minlength") if minlength else 0
    if least > capacity:
        raise ValueError(f"minlength is {least}, and capacity {capacity}; give a capacity of at least minlength")
    x, inside, lost = unpadded(x, valid, name="x")
    x = as_integers(x, name="x")
    if x.ndim != 1:
        raise ValueError(f"x has shape {x.shape}, and [N] was wanted; flatten it, or map over batches with jax.vmap")
    count, ok = _classes(x, inside, least)
    place = jnp.where(inside & (x >= 0), x, NO_LENGTH)
    if weights is None:
        amounts = jnp.ones((), jnp.int32)
    else:
        amounts = jnp.asarray(weights)
        if amounts.shape != x.shape:
            raise ValueError(f"weights has shape {amounts.shape}, and {x.shape} was wanted, one for each entry of x")
        if amounts.dtype not in (np.float32, np.float64):
            amounts = amounts.astype(jnp.result_type(float))
    counts = jnp.zeros(capacity, amounts.dtype).at[place].add(amounts, **DROP)
    held = Padded(counts, jnp.arange(capacity, dtype=jnp.int32) < count, count)
    return settled_if(ok & (lost == 0), WHY_NOT, held, on_overflow, "bincount")


def one_hot(
    x: ArrayLike, *, capacity: int, valid: ArrayLike | None = None, on_overflow: OnOverflow = "flag"
) -> Padded[jax.Array]:
    """`torch.nn.functional.one_hot(x)`, with as many classes as the largest entry says, at a fixed size.

    Where the number of classes is known and entries out of range are wanted as zeros, use `jax.nn.one_hot`.

    Args:
      x: `[...]` integers, none negative.
      capacity: the most classes that there is room for; the first ones are kept.
      valid: the shape of `x`, bool, false for entries that have no class.
      on_overflow: where an entry is negative, or `capacity` or more, `"flag"` sets the count alone, `"raise"` raises
        `ValueError` once the graph has run.

    Returns:
      `Padded` of `[capacity, ...]` int32, the axis of classes first, where a capacity always is:
      `jnp.moveaxis(values, 0, -1)` is torch's layout. The count, of classes, is 2**31 - 1, an overflow, where an entry
      is negative, for which PyTorch raises.

    Raises:
      ValueError, TypeError: as `bincount`.

    Example:
      >>> import jax.numpy as jnp
      >>> hot = one_hot(jnp.array([0, 2]), capacity=4)
      >>> hot.values.T.tolist(), int(hot.count)
      ([[1, 0, 0, 0], [0, 0, 1, 0]], 3)
    """
    capacity = as_capacity(capacity)
    x = as_integers(x, name="x")
    inside = jnp.ones(x.shape, jnp.bool_) if valid is None else jnp.asarray(valid)
    if inside.shape != x.shape or inside.dtype != jnp.bool_:
        raise ValueError(f"valid is {inside.dtype}{list(inside.shape)}, and bool{list(x.shape)} was wanted, as x")
    count, ok = _classes(x, inside, 0)
    classes = jnp.arange(capacity, dtype=jnp.int32)
    hot = (classes.reshape(-1, *[1] * x.ndim) == x) & inside
    held = Padded(hot.astype(jnp.int32), classes < count, count)
    return settled_if(ok, WHY_NOT, held, on_overflow, "one_hot")


WHY_NOT = "x has negative entries, or was a Padded that had lost some; give entries of at least 0"


def _classes(x: jax.Array, inside: jax.Array, least: int) -> tuple[jax.Array, jax.Array]:
    """The number of classes up to the largest entry, and whether none is negative."""
    largest = jnp.max(jnp.where(inside, x, -1), initial=-1)
    ok = jnp.all((x >= 0) | ~inside)
    return jnp.maximum(jnp.minimum(largest, NO_LENGTH - 1) + 1, least), ok
