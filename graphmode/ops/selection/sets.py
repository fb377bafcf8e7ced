"""Set operations at a fixed size: membership, and what is in one, both, either, or exactly one of two collections."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..arguments import OnOverflow
from ..bisection import bisected
from ..indices import IN_BOUNDS
from ..masking.padded import Padded, opened
from .sorting import sorted_entries
from .unique import unique

# Up to here, comparing with each is faster on a CPU than a binary search.
FEW = 32


def isin(
    elements: ArrayLike | Padded[Any], test_elements: ArrayLike | Padded[Any], *, invert: bool = False
) -> jax.Array:
    """Which of `elements` occur among `test_elements`: `torch.isin`, where padding is in nothing and holds nothing.

    One sort of the test elements and a binary search; for a few, a comparison with each. NaN equals nothing.
    Without a `Padded`, `jnp.isin` says the same.

    Args:
      elements: any shape, or a `Padded`.
      test_elements: any shape, or a `Padded`.
      invert: True for which of them do not occur; false for padding all the same.

    Returns:
      bool, in the shape of `elements`.

    Raises:
      TypeError: where a `Padded` holds anything but one array.

    Example:
      >>> import jax.numpy as jnp
      >>> isin(jnp.array([1, 2, 3]), jnp.array([3, 1])).tolist()
      [True, False, True]

    Source: https://docs.pytorch.org/docs/stable/generated/torch.isin.html
    """
    wanted, counted, _ = opened(elements, name="elements")
    tested, valid, _ = opened(test_elements, name="test_elements")
    dtype = jnp.result_type(wanted, tested)
    wanted, tested = wanted.astype(dtype), tested.astype(dtype)
    if valid is not None:
        valid = jnp.broadcast_to(_as_wide_as(valid, tested), tested.shape).reshape(-1)
    found = _among(wanted.reshape(-1), tested.reshape(-1), valid).reshape(wanted.shape)
    if invert:
        found = ~found
    return found if counted is None else found & _as_wide_as(counted, found)


def intersect1d(
    a: ArrayLike | Padded[Any],
    b: ArrayLike | Padded[Any],
    *,
    capacity: int,
    fill_value: ArrayLike = 0,
    on_overflow: OnOverflow = "flag",
) -> Padded[jax.Array]:
    """Distinct entries of `a` that are also in `b`, ascending: `numpy.intersect1d` at a fixed size.

    Args:
      a: any shape, flattened, or a `Padded`, whose padding takes no part.
      b: the same.
      capacity: the most distinct entries that there is room for; the least ones are kept.
      fill_value: stands beyond the count.
      on_overflow: as in `unique`.

    Returns:
      `Padded` of `[capacity]` in the dtype of both together. Entries that a `Padded` among the arguments lost are added
      to the count, which is an upper bound then.

    Raises:
      ValueError: where capacity, fill_value or on_overflow do not fit.
      TypeError: where capacity is no integer, or a traced one, or a `Padded` holds anything but one array.

    Example:
      >>> import jax.numpy as jnp
      >>> intersect1d(jnp.array([3, 1, 3]), jnp.array([2, 3]), capacity=2).values.tolist()
      [3, 0]

    Source: https://numpy.org/doc/stable/reference/generated/numpy.intersect1d.html
    """
    one, other = _collections(a, b)
    return unique(
        _chosen(one, isin(one, other), lost=other.count - _size(other)),
        capacity=capacity,
        fill_value=fill_value,
        on_overflow=on_overflow,
    )


def union1d(
    a: ArrayLike | Padded[Any],
    b: ArrayLike | Padded[Any],
    *,
    capacity: int,
    fill_value: ArrayLike = 0,
    on_overflow: OnOverflow = "flag",
) -> Padded[jax.Array]:
    """Distinct entries of `a` and `b`, ascending: `numpy.union1d` at a fixed size, each NaN an entry of its own.

    Arguments, result and errors are those of `intersect1d`.

    Example:
      >>> import jax.numpy as jnp
      >>> union1d(jnp.array([3, 1]), jnp.array([2, 3]), capacity=4).values.tolist()
      [1, 2, 3, 0]

    Source: https://numpy.org/doc/stable/reference/generated/numpy.union1d.html
    """
    if not isinstance(a, Padded) and not isinstance(b, Padded):
        joined: Any = jnp.concatenate([jnp.ravel(jnp.asarray(a)), jnp.ravel(jnp.asarray(b))])
    else:
        joined = _joined(*_collections(a, b))
    return unique(joined, capacity=capacity, fill_value=fill_value, on_overflow=on_overflow)


def setdiff1d(
    a: ArrayLike | Padded[Any],
    b: ArrayLike | Padded[Any],
    *,
    capacity: int,
    fill_value: ArrayLike = 0,
    on_overflow: OnOverflow = "flag",
) -> Padded[jax.Array]:
    """Distinct entries of `a` that are not in `b`, ascending: `numpy.setdiff1d` at a fixed size, each NaN kept.

    Arguments, result and errors are those of `intersect1d`.

    Example:
      >>> import jax.numpy as jnp
      >>> setdiff1d(jnp.array([3, 1, 2]), jnp.array([2]), capacity=3).values.tolist()
      [1, 3, 0]

    Source: https://numpy.org/doc/stable/reference/generated/numpy.setdiff1d.html
    """
    one, other = _collections(a, b)
    return unique(
        _chosen(one, isin(one, other, invert=True), lost=other.count - _size(other)),
        capacity=capacity,
        fill_value=fill_value,
        on_overflow=on_overflow,
    )


def setxor1d(
    a: ArrayLike | Padded[Any],
    b: ArrayLike | Padded[Any],
    *,
    capacity: int,
    fill_value: ArrayLike = 0,
    on_overflow: OnOverflow = "flag",
) -> Padded[jax.Array]:
    """Distinct entries that are in exactly one of `a` and `b`, ascending: `numpy.setxor1d` at a fixed size.

    Arguments, result and errors are those of `intersect1d`; each NaN is kept.

    Example:
      >>> import jax.numpy as jnp
      >>> setxor1d(jnp.array([3, 1, 1]), jnp.array([2, 3]), capacity=3).values.tolist()
      [1, 2, 0]

    Source: https://numpy.org/doc/stable/reference/generated/numpy.setxor1d.html
    """
    one, other = _collections(a, b)
    only = _joined(_chosen(one, isin(one, other, invert=True)), _chosen(other, isin(other, one, invert=True)))
    return unique(only, capacity=capacity, fill_value=fill_value, on_overflow=on_overflow)


def _among(elements: jax.Array, tested: jax.Array, valid: jax.Array | None) -> jax.Array:
    if not tested.size:
        return jnp.zeros(elements.shape, bool)
    if tested.size <= FEW:
        equal = elements[:, None] == tested
        return (equal if valid is None else equal & valid).any(axis=1)
    entries = tested.size if valid is None else jnp.sum(valid, dtype=jnp.int32)
    tested = sorted_entries(tested, valid)
    at = bisected(tested, elements)
    return (tested.at[jnp.minimum(at, tested.size - 1)].get(**IN_BOUNDS) == elements) & (at < entries)


def _collections(a: Any, b: Any) -> tuple[Padded[jax.Array], Padded[jax.Array]]:
    """Both as flat `Padded`s of one dtype."""
    dtype = jnp.result_type(*(opened(x, name=name)[0] for name, x in (("a", a), ("b", b))))
    collections = []
    for x in (a, b):
        values, valid, lost = opened(x)
        if valid is None or lost is None:
            valid, lost = jnp.ones(values.shape, bool), jnp.int32(0)
        else:
            valid = jnp.broadcast_to(_as_wide_as(valid, values), values.shape)
            lost = lost * math.prod(values.shape[1:])
        count = jnp.sum(valid, dtype=jnp.int32) + lost
        collections.append(Padded(values.reshape(-1).astype(dtype), valid.reshape(-1), count))
    return collections[0], collections[1]


def _chosen(one: Padded[jax.Array], chosen: jax.Array, lost: Any = 0) -> Padded[jax.Array]:
    """Those of a collection that are chosen; what was lost of it, and elsewhere, stays lost."""
    valid = one.valid & chosen
    return Padded(one.values, valid, jnp.sum(valid, dtype=jnp.int32) + one.count - _size(one) + lost)


def _joined(one: Padded[jax.Array], other: Padded[jax.Array]) -> Padded[jax.Array]:
    values = jnp.concatenate([one.values, other.values])
    return Padded(values, jnp.concatenate([one.valid, other.valid]), one.count + other.count)


def _size(collection: Padded[jax.Array]) -> jax.Array:
    return jnp.sum(collection.valid, dtype=jnp.int32)


def _as_wide_as(valid: jax.Array, values: jax.Array) -> jax.Array:
    return valid.reshape(-1, *(1 for _ in values.shape[1:]))
