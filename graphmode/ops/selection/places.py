"""Where each entry goes when those that a mask picks come first: prefix sums, and no sort."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

WORD = 32
INT32_MAX = 2**31 - 1


def places(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A permutation that brings the picked entries to the front, the others behind, each in the order that they had.

    Args:
      mask: `[N]`, bool.

    Returns:
      `target`, `[N]` int32, the place of each entry; and the number that is picked, a 0-d int32.
    """
    before, count = _picked_before_in_words(mask)
    at = jnp.arange(before.size, dtype=jnp.int32).reshape(before.shape)
    return jnp.where(_in_words(mask), before, count + at - before).reshape(-1)[: mask.shape[0]], count


def picked_before(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How many entries are picked before each one, `[N]` int32, and in all, a 0-d int32.

    Thirty-two entries of the mask make a word; a prefix sum over the words' populations, and within a word the
    population of its lower bits. On a CPU several times faster than `jnp.cumsum`.

    Args:
      mask: `[N]`, bool.

    Raises:
      ValueError: where N is beyond what an int32 counts.
    """
    before, count = _picked_before_in_words(mask)
    return before.reshape(-1)[: mask.shape[0]], count


def prefix_sum(numbers: jax.Array) -> jax.Array:
    """Inclusive prefix sums `[N]` of int32 `[N]`, by rows of 32."""
    size = numbers.shape[0]
    if size <= 4 * WORD:
        return jnp.cumsum(numbers, dtype=jnp.int32)
    rows = jnp.pad(numbers, (0, -size % WORD)).reshape(-1, WORD)
    up_to = jnp.tril(jnp.ones((WORD, WORD), jnp.int32))
    within = jnp.sum(rows[:, None, :] * up_to, axis=2, dtype=jnp.int32)
    totals = within[:, -1]
    return ((prefix_sum(totals) - totals)[:, None] + within).reshape(-1)[:size]


def _in_words(mask: jax.Array) -> jax.Array:
    return jnp.pad(mask, (0, -mask.shape[0] % WORD)).reshape(-1, WORD)


def _picked_before_in_words(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`picked_before`, `[ceil(N / 32), 32]`: what is elementwise stays so until the end, and fuses."""
    size = mask.shape[0]
    if size > INT32_MAX - WORD:
        raise ValueError(f"the mask has {size} entries, and indices are int32; pick from parts of at most 2**31 - 33")
    bit = jnp.arange(WORD, dtype=jnp.uint32)
    words = jnp.sum(_in_words(mask).astype(jnp.uint32) << bit, axis=1, dtype=jnp.uint32)
    populations = lax.population_count(words).astype(jnp.int32)
    ends = prefix_sum(populations)
    lower = words[:, None] & ((jnp.uint32(1) << bit) - jnp.uint32(1))
    before = (ends - populations)[:, None] + lax.population_count(lower).astype(jnp.int32)
    return before, ends[-1] if size else jnp.int32(0)
