"""Writes where a mask holds: `masked_fill` of one value, `masked_scatter` of one value after the other."""

from __future__ import annotations

from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_array, as_fill_value, as_mask, as_on_overflow
from ..host.checks import check
from ..indices import IN_BOUNDS
from ..masking.padded import Padded, opened
from .compact import compact
from .places import places


def masked_fill(x: ArrayLike, mask: ArrayLike, value: ArrayLike) -> jax.Array:
    """`x` with `value` where `mask` holds: `torch.Tensor.masked_fill`, or `x[mask] = value` for a mask of full shape.

    `jnp.where` with PyTorch's rules: the dtype stays that of `x`, a value that it cannot hold (-1e9 in float16) is
    refused. For a mask of rows, `x[mask] = value`, give it the axes of `x`: `mask[:, None]`. No NaN or infinity under
    the mask reaches the result or a gradient; the gradient of `value` is the sum over the mask.

    Args:
      x: any shape and dtype.
      mask: bool, broadcast against `x`, last axes aligned.
      value: a number or a 0-d array, cast to the dtype of `x`.

    Returns:
      An array of the dtype of `x` and the shape of both together.

    Raises:
      ValueError: where mask is not bool, the shapes do not broadcast, value has axes or is out of range.

    Example:
      >>> import jax.numpy as jnp
      >>> masked_fill(jnp.array([1.0, jnp.nan, 3.0]), jnp.array([False, True, False]), 0).tolist()
      [1.0, 0.0, 3.0]

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_fill_.html
    """
    x, mask, _ = _aligned(x, mask)
    return jnp.where(mask, as_fill_value(value, x.dtype, name="value", truncate=True), x)


@overload
def masked_scatter(
    x: ArrayLike, mask: ArrayLike, source: ArrayLike | Padded[Any], *, on_overflow: Literal["raise", "nan"] = "raise"
) -> jax.Array: ...


@overload
def masked_scatter(
    x: ArrayLike, mask: ArrayLike, source: ArrayLike | Padded[Any], *, on_overflow: Literal["flag"]
) -> tuple[jax.Array, jax.Array]: ...


def masked_scatter(
    x: ArrayLike, mask: ArrayLike, source: ArrayLike | Padded[Any], *, on_overflow: OnOverflow = "raise"
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """`x` with the entries of `source`, in order, where `mask` holds: `torch.Tensor.masked_scatter`, `x[mask] = rows`.

    The prefix sum of the mask says which entry of the source each place takes, and a gather brings it; what the mask
    does not take of the source is left. The way back from `compact`: `masked_scatter(x, mask, picked)` writes what
    `picked = compact(x, mask, ...)` has become. For a mask of rows, give it the axes of `x`: `mask[:, None]`.

    A plain array has no count to tell that the source was too short, so that, unlike elsewhere, the default is to
    raise as PyTorch does. A source as large as `x` cannot be too short, and costs no check.

    Args:
      x: any shape and dtype.
      mask: bool, broadcast against `x`, last axes aligned.
      source: of the dtype of `x` and any shape, read in row-major order; or a `Padded` of such, whose valid entries
        are read.
      on_overflow: where the mask picks more places than the source has entries, `"raise"` raises `ValueError` once
        the graph has run, `"nan"` makes every value NaN, `"flag"` keeps `x` in the places that are left over and
        returns `(result, count)`.

    Returns:
      An array of the dtype of `x` and the shape of x and mask together; with `"flag"` also the number of places that
      the mask picks, a 0-d int32.

    Raises:
      ValueError: where mask is not bool, the shapes do not broadcast, or on_overflow does not fit.
      TypeError: where the dtype of source is not that of x.

    Example:
      >>> import jax.numpy as jnp
      >>> masked_scatter(jnp.zeros(4), jnp.array([True, False, True, True]), jnp.array([5.0, 6.0, 7.0])).tolist()
      [5.0, 0.0, 6.0, 7.0]

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_scatter_.html
    """
    x, mask, shape = _aligned(x, mask)
    as_on_overflow(on_overflow, x.dtype)
    entries, held = _entries(source)
    if entries.dtype != x.dtype:
        raise TypeError(f"source has dtype {entries.dtype}, and that of x, {x.dtype}, was wanted; cast one of them")
    x, mask = jnp.broadcast_to(x, shape), jnp.broadcast_to(mask, shape).reshape(-1)
    size = mask.shape[0]
    target, count = places(mask)
    # As long as x, so that the gather is a permutation, and its transpose a scatter without collisions.
    fitting = jnp.pad(entries[:size], (0, max(size - entries.shape[0], 0)))
    taken = fitting.at[target].get(**IN_BOUNDS, unique_indices=True)
    written = jnp.where((mask & (target < held)).reshape(shape), taken.reshape(shape), x)
    if on_overflow == "flag":
        return written, count
    if isinstance(held, int) and held >= size:
        return written
    if on_overflow == "nan":
        return jnp.where(count > held, jnp.asarray(jnp.nan, x.dtype), written)
    check(
        count <= held,
        "masked_scatter: mask picks {count} places, and source has {held} entries; give at least as many entries",
        count=count,
        held=held,
    )
    return written


def _entries(source: ArrayLike | Padded[Any]) -> tuple[jax.Array, int | jax.Array]:
    """What is to be written, flat and in order, and how many there are."""
    values, valid, _ = opened(source, name="source")
    if valid is None:
        return values.reshape(-1), values.size
    in_front = compact(values, valid, capacity=max(values.shape[0], 1))
    row = int(np.prod(values.shape[1:]))
    return in_front.values.reshape(-1), in_front.count * row


def _aligned(x: ArrayLike, mask: ArrayLike) -> tuple[jax.Array, jax.Array, tuple[int, ...]]:
    array, mask = as_array(x, name="x"), as_mask(mask)
    try:
        return array, mask, np.broadcast_shapes(array.shape, mask.shape)
    except ValueError:
        raise ValueError(
            f"mask has shape {mask.shape}, and x has shape {array.shape}, and shapes that broadcast were wanted, last "
            f"axes aligned; a mask of the leading axes needs an axis of one for each of the others, as in mask[:, None]"
        ) from None
