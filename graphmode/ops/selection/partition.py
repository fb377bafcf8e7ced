"""`partition`: the rows that a mask picks first, then the others, at a fixed size and without a sort."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import as_row_mask, as_rows
from ..indices import IN_BOUNDS
from ..masking.padded import Padded
from .places import places

T = TypeVar("T")


def partition(x: T, mask: ArrayLike) -> tuple[T, jax.Array]:
    """Rows of `x` where `mask` holds first, then the others, each in the order that they had.

    What `torch.cat([x[mask], x[~mask]])` gives, with no shape that depends on a value: the prefix sum of the mask says
    where each row goes, and one scatter moves them all. Works under `jit`, `vmap` and `grad`; the gradient goes back to
    the row that it came from, and none to the mask.

    Args:
      x: `[N, ...]`, any dtype, or a pytree of such; all are reordered alike.
      mask: `[N]`, bool.

    Returns:
      The reordered rows, `[N, ...]` in the dtype of `x`, and the number of them where `mask` holds, a 0-d int32.

    Raises:
      ValueError: where `mask` is not bool, not of rank 1, or not as long as the first axis of `x`.
      TypeError: where `x` is a `Padded`.

    Example:
      >>> import jax.numpy as jnp
      >>> x = jnp.array([3, -1, 4, -5])
      >>> rows, count = partition(x, x > 0)
      >>> rows.tolist(), int(count)
      ([3, 4, -1, -5], 2)
    """
    if isinstance(x, Padded) and x.valid.ndim == 1:
        raise TypeError(
            "x is a Padded, and arrays were wanted; its own methods are x.compact(mask) and x.sort(by=..., "
            "descending=True)"
        )
    x, rows = as_rows(x)
    mask = as_row_mask(mask, rows, of="x", shape=np.shape(jax.tree.leaves(x)[0]))
    target, count = places(mask)

    def reordered(leaf: jax.Array) -> jax.Array:
        return jnp.zeros_like(leaf).at[target].set(leaf, unique_indices=True, **IN_BOUNDS)

    return jax.tree.map(reordered, x), count
