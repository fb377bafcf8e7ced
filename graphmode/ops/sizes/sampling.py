"""Random choices of a computed size: permutations, subsets, and nucleus sampling."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_capacity, as_key, as_mask
from ..masking.padded import Padded
from ..selection.compact import compact
from .lengths import as_integer, settled_if


def random_permutation(
    key: jax.Array, n: ArrayLike, *, capacity: int, on_overflow: OnOverflow = "flag"
) -> Padded[jax.Array]:
    """`torch.randperm(n)` with a computed `n`: every order of `0 ... n - 1` is equally likely.

    A permutation of `0 ... capacity - 1`, of which the numbers below `n` are kept in their order.

    Args:
      key: of `jax.random`.
      n: integer.
      capacity: the most entries that there is room for.
      on_overflow: where `n` is above `capacity`, `"flag"` sets the count alone, `"raise"` raises `ValueError` once the
        graph has run.

    Returns:
      `Padded` of `[capacity]` int32; 0 beyond the count, which is 2**31 - 1, an overflow, where `n` is negative:
      PyTorch raises there.

    Raises:
      ValueError, TypeError: where key, n, capacity or on_overflow do not fit.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> order = random_permutation(jax.random.key(0), jnp.array(3), capacity=5)
      >>> sorted(order.values[:3].tolist()), order.valid.tolist()
      ([0, 1, 2], [True, True, True, False, False])
    """
    capacity = as_capacity(capacity)
    n = as_integer(n, name="n")
    order = jax.random.permutation(as_key(key), capacity).astype(jnp.int32)
    held = compact(order, order < n, capacity=capacity)
    held = Padded(held.values, held.valid, jnp.maximum(n, 0))
    return settled_if(n >= 0, "n is {n}, and a length was wanted", held, on_overflow, "random_permutation", n=n)


def random_subset(
    key: jax.Array,
    mask: ArrayLike,
    size: ArrayLike | None = None,
    *,
    capacity: int,
    on_overflow: OnOverflow = "flag",
) -> Padded[jax.Array]:
    """Indices of some of the places where a mask holds, none twice, each subset and order equally likely.

    Eager PyTorch's `i = mask.nonzero()[:, 0]; i[torch.randperm(len(i))[:size]]`, as detectors draw boxes to train on.

    Args:
      key: of `jax.random`.
      mask: `[N]`, bool.
      size: integer, how many to draw; where fewer hold, all of them. All if left out.
      capacity: the most indices that there is room for.
      on_overflow: where more than `capacity` were to be drawn, `"flag"` sets the count alone, `"raise"` raises
        `ValueError` once the graph has run.

    Returns:
      `Padded` of `[capacity]` int32, in random order; `N`, which is no index, beyond the count. The count is 2**31 - 1,
      an overflow, where `size` is negative.

    Raises:
      ValueError, TypeError: where key, mask, size, capacity or on_overflow do not fit.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> mask = jnp.array([True, False, True, True])
      >>> drawn = random_subset(jax.random.key(0), mask, jnp.array(2), capacity=3)
      >>> int(drawn.count), bool(mask[drawn.values[:2]].all())
      (2, True)
    """
    capacity = as_capacity(capacity)
    mask = as_mask(mask)
    if mask.ndim != 1:
        raise ValueError(f"mask has shape {mask.shape}, and [N] was wanted; map over batches with jax.vmap")
    rows = mask.shape[0]
    order = jax.random.permutation(as_key(key), rows).astype(jnp.int32)
    held = compact(order, mask[order], capacity=capacity, fill_value=rows)
    if size is None:
        return settled_if(jnp.array(True), "", held, on_overflow, "random_subset")
    size = as_integer(size, name="size")
    valid = held.valid & (jnp.arange(capacity, dtype=jnp.int32) < size)
    count = jnp.minimum(held.count, jnp.maximum(size, 0))
    drawn = Padded(jnp.where(valid, held.values, rows), valid, count)
    return settled_if(
        size >= 0, "size is {size}, and a length was wanted", drawn, on_overflow, "random_subset", size=size
    )


def top_p_mask(logits: ArrayLike, p: ArrayLike) -> jax.Array:
    """The nucleus: the fewest most likely entries whose probabilities add up to `p` or more.

    Holtzman et al., The Curious Case of Neural Text Degeneration, 2020. Eager code cuts the sorted entries at a
    computed place; here a mask says which are in. The most likely entry always is; of equal ones the lowest index
    comes first.

    Args:
      logits: `[..., V]` floating; -inf for entries that are never drawn.
      p: of the shape of `logits` without its last axis, or one that broadcasts to it; 1 keeps all.

    Returns:
      `[..., V]` bool.

    Raises:
      ValueError: where logits are no floats `[..., V]`, p does not broadcast, or is a number that is negative or NaN.

    Example:
      >>> import jax.numpy as jnp
      >>> top_p_mask(jnp.log(jnp.array([0.1, 0.6, 0.3])), 0.7).tolist()
      [False, True, True]
    """
    logits = jnp.asarray(logits)
    if not logits.ndim or not logits.shape[-1] or not jnp.issubdtype(logits.dtype, jnp.floating):
        raise ValueError(f"logits is {logits.dtype}{list(logits.shape)}, and floats of shape [..., V] were wanted")
    if isinstance(p, int | float) and not p >= 0:
        raise ValueError(f"p is {p}; give a probability, from 0, for the most likely entry alone, to 1, for all")
    p = jnp.asarray(p)
    try:
        p = jnp.broadcast_to(p, logits.shape[:-1])
    except ValueError:
        raise ValueError(
            f"p has shape {p.shape}, and one that broadcasts to {logits.shape[:-1]} was wanted, one for each row"
        ) from None
    wide = jnp.promote_types(logits.dtype, jnp.float32)
    probabilities = jax.nn.softmax(logits.astype(wide), axis=-1)
    order = jnp.argsort(-logits, axis=-1, stable=True)
    ranked = jnp.take_along_axis(probabilities, order, axis=-1)
    before = jnp.cumsum(ranked, axis=-1) - ranked
    kept = (before < p[..., None]) | (p[..., None] >= 1)
    kept = kept.at[..., 0].set(True)
    place = jnp.argsort(order, axis=-1)
    return jnp.take_along_axis(kept, place, axis=-1)


def sample_top_p(key: jax.Array, logits: ArrayLike, p: ArrayLike) -> jax.Array:
    """One draw from the nucleus of each row: `torch.multinomial` of the probabilities that `top_p_mask` keeps.

    For a temperature, divide the logits. Draws without a nucleus are `jax.random.categorical`, and several without
    replacement `jax.random.choice(key, V, (n,), replace=False, p=...)`.

    Args:
      key: of `jax.random`.
      logits: `[..., V]` floating.
      p: see `top_p_mask`.

    Returns:
      `[...]` int32.

    Raises:
      ValueError: as `top_p_mask`, and where there is more than one key.
      TypeError: where key is none.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> int(sample_top_p(jax.random.key(0), jnp.array([0.0, 9.0, 1.0]), 0.5))
      1
    """
    logits = jnp.asarray(logits)
    kept = jnp.where(top_p_mask(logits, p), logits, -jnp.inf)
    return jax.random.categorical(as_key(key), kept, axis=-1).astype(jnp.int32)
