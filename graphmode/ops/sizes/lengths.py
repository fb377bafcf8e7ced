"""Lengths that were computed: int32, and one that no capacity holds where eager code would have refused."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_array
from ..host.checks import check
from ..masking.padded import Padded, settled
from ..selection.places import prefix_sum

T = TypeVar("T")

NO_LENGTH = 2**31 - 1
"""The count where there is none: an int32 cannot hold it, or eager code raises (a negative length)."""


def as_integers(x: ArrayLike, *, name: str) -> jax.Array:
    """An int32 array; entries that do not fit become the nearest that do. Floats and bools are refused."""
    array = np.asarray(x, np.int64) if isinstance(x, int) and not isinstance(x, bool) else as_array(x, name=name)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(
            f"{name} has dtype {array.dtype}, and integers were wanted; convert it, as in {name}.astype(jnp.int32)"
        )
    limits = jnp.iinfo(jnp.int32)
    if jnp.iinfo(array.dtype).max > limits.max:
        lowest = max(limits.min, jnp.iinfo(array.dtype).min)
        array = array.clip(array.dtype.type(lowest), array.dtype.type(limits.max))
    return jnp.asarray(array.astype(jnp.int32))


def as_integer(x: ArrayLike, *, name: str) -> jax.Array:
    """One int32, as `as_integers`."""
    array = as_integers(x, name=name)
    if array.shape:
        raise ValueError(f"{name} has shape {array.shape}, and one integer was wanted; map over several with jax.vmap")
    return array


def saturating_cumsum(lengths: jax.Array) -> jax.Array:
    """Prefix sums of int32 lengths, none negative; `NO_LENGTH` from where an int32 does not hold them."""
    ends = prefix_sum(lengths)
    # Two int32 that are not negative add up to less than 2**32: the first sum that wraps is negative.
    return jax.lax.cond(jnp.any(ends < 0), _from_the_first_wrap, lambda ends: ends, ends)


def _from_the_first_wrap(ends: jax.Array) -> jax.Array:
    return jnp.where(jax.lax.cummax((ends < 0).astype(jnp.int8)) > 0, NO_LENGTH, ends)


def saturating_add(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a + b` of int32 that are not negative, at most `NO_LENGTH`."""
    return a + jnp.minimum(b, NO_LENGTH - a)


def settled_if(
    ok: jax.Array, why_not: str, padded: Padded[T], on_overflow: OnOverflow, operation: str, **values: Any
) -> Padded[T]:
    """`settled`, and an overflow with the count `NO_LENGTH` where `ok` is false; `why_not` is the message then."""
    if on_overflow == "raise":
        check(ok, f"{operation}: {why_not}", **values)
        settled(dataclasses.replace(padded, count=jnp.where(ok, padded.count, 0)), on_overflow, operation)
        return dataclasses.replace(padded, count=jnp.where(ok, padded.count, NO_LENGTH))
    return settled(dataclasses.replace(padded, count=jnp.where(ok, padded.count, NO_LENGTH)), on_overflow, operation)
