"""`partition`: the rows that a mask picks first, then the others, at a fixed size and without a sort."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def partition(x: ArrayLike, mask: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Rows of `x` where `mask` holds first, then the others, each in the order that they had.

    What `torch.cat([x[mask], x[~mask]])` gives, with no shape that depends on a value: the prefix sum of the mask says
    where each row goes, and one scatter moves them all. Works under `jit`, `vmap` and `grad`; the gradient goes back to
    the row that it came from, and none to the mask.

    Args:
      x: `[N, ...]`, any dtype.
      mask: `[N]`, bool.

    Returns:
      The reordered rows, `[N, ...]` in the dtype of `x`, and the number of them where `mask` holds, a 0-d int32.

    Raises:
      ValueError: where `mask` is not bool, not of rank 1, or not as long as the first axis of `x`.

    Example:
      >>> import jax.numpy as jnp
      >>> x = jnp.array([3, -1, 4, -5])
      >>> rows, count = partition(x, x > 0)
      >>> rows.tolist(), int(count)
      ([3, 4, -1, -5], 2)
    """
    x, mask = jnp.asarray(x), jnp.asarray(mask)
    if x.ndim == 0:
        raise ValueError("x is a scalar, and an array [N, ...] of rows was wanted")
    if mask.dtype != jnp.bool_:
        raise ValueError(f"mask has dtype {mask.dtype}, and bool was wanted; compare it, as in mask != 0")
    if mask.shape != x.shape[:1]:
        raise ValueError(
            f"mask has shape {mask.shape}, and {x.shape[:1]} was wanted, one entry for each row of x, which has shape "
            f"{x.shape}; give one entry a row, or map over leading axes with jax.vmap"
        )
    length = mask.shape[0]
    picked_up_to = jnp.cumsum(mask, dtype=jnp.int32)
    count = jnp.sum(mask, dtype=jnp.int32)
    others_before = jnp.arange(length, dtype=jnp.int32) - picked_up_to
    target = jnp.where(mask, picked_up_to - 1, count + others_before)
    reordered = jnp.zeros_like(x).at[target].set(x, unique_indices=True, mode="promise_in_bounds")
    return reordered, count
