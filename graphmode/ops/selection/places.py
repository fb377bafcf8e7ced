"""Where each entry goes when those that a mask picks come first: prefix sums, and no sort."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

WORD = 32
INT32_MAX = 2**31 - 1
COUNTED_GROUPS = 256


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


def in_order_of_groups(ids: jax.Array, groups: int) -> tuple[jax.Array, jax.Array]:
    """Where each row goes when rows stand by group, equal ones as they are, and the rows in that order.

    For few groups it counts, a mask a group in words, which is many times faster than a sort.

    Args:
      ids: `[N]` int32 in `0 ... groups - 1`.
      groups: static.

    Returns:
      Two permutations `[N]` int32, each the inverse of the other.
    """
    size = ids.shape[0]
    at = jnp.arange(size, dtype=jnp.int32)
    if groups > COUNTED_GROUPS or not isinstance(size, int):
        order = jnp.argsort(ids, stable=True).astype(jnp.int32)
        return jnp.zeros_like(at).at[order].set(at, unique_indices=True), order
    words, before, counts = jax.vmap(lambda group: _words_of(ids == group))(jnp.arange(groups, dtype=jnp.int32))
    first = jnp.cumsum(counts, dtype=jnp.int32) - counts
    word, bit = at // WORD, (at % WORD).astype(jnp.uint32)
    lower = words[ids, word] & ((jnp.uint32(1) << bit) - jnp.uint32(1))
    place = (first[:, None] + before)[ids, word] + lax.population_count(lower).astype(jnp.int32)
    return place, jnp.zeros_like(at).at[place].set(at, unique_indices=True)


def _words_of(mask: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A mask `[N]` in words `[ceil(N / 32)]`, how many entries are picked before each word, and in all."""
    bit = jnp.arange(WORD, dtype=jnp.uint32)
    words = jnp.sum(_in_words(mask).astype(jnp.uint32) << bit, axis=1, dtype=jnp.uint32)
    populations = lax.population_count(words).astype(jnp.int32)
    ends = prefix_sum(populations)
    return words, ends - populations, ends[-1] if mask.shape[0] else jnp.int32(0)


def _in_words(mask: jax.Array) -> jax.Array:
    return jnp.pad(mask, (0, -mask.shape[0] % WORD)).reshape(-1, WORD)


def _picked_before_in_words(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`picked_before`, `[ceil(N / 32), 32]`: what is elementwise stays so until the end, and fuses."""
    size = mask.shape[0]
    if size > INT32_MAX - WORD:
        raise ValueError(f"the mask has {size} entries, and indices are int32; pick from parts of at most 2**31 - 33")
    words, before_word, count = _words_of(mask)
    bit = jnp.arange(WORD, dtype=jnp.uint32)
    lower = words[:, None] & ((jnp.uint32(1) << bit) - jnp.uint32(1))
    return before_word[:, None] + lax.population_count(lower).astype(jnp.int32), count
