"""`KVCache`: the keys and values of attention, at a fixed capacity, with a count that tells when it was too small."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from ..arguments import OnOverflow, as_capacity, as_on_overflow
from ..control.nnx_operands import described
from ..exporting import exportable
from ..host.checks import check
from ..sizes.lengths import NO_LENGTH, as_integers, saturating_add


@exportable
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KVCache:
    """Keys and values of up to `capacity` tokens; a pytree, to be carried by a loop or held in an `nnx.Variable`.

    The slot of a token is its position. What stands from the length on means nothing.

    Attributes:
      keys: `[B, H, capacity, D]`.
      values: `[B, H, capacity, E]`.
      lengths: int32, how many tokens there were to hold: 0-d where all sequences have one length, else `[B]`. More
        than `capacity` where some found no room.

    Example:
      >>> import jax.numpy as jnp
      >>> cache = KVCache.empty(1, 2, 4, capacity=3)  # of one sequence and two heads
      >>> token = jnp.ones((1, 2, 1, 4))
      >>> cache = cache.append(token, token).append(token, token)
      >>> int(cache.lengths), cache.mask().tolist(), bool(cache.overflow)
      (2, [[[[True, True, False]]]], False)

    Stands for `past_key_values` that grow with `torch.cat`; as transformers' `StaticCache`, but one that tells.
    """

    keys: jax.Array
    values: jax.Array
    lengths: jax.Array

    @classmethod
    def empty(
        cls,
        batch: int,
        heads: int,
        key_size: int,
        *,
        capacity: int,
        value_size: int | None = None,
        dtype: jax.typing.DTypeLike = jnp.float32,
        per_sequence: bool = False,
    ) -> KVCache:
        """No tokens, with room for `capacity`.

        Args:
          batch, heads, key_size: B, H and D.
          capacity: the most tokens of a sequence, static.
          value_size: E; that of the keys where it is None.
          dtype: of keys and values.
          per_sequence: whether each sequence has its own length. One for all is the faster: the write is then a slice,
            and no scatter.
        """
        capacity = as_capacity(capacity)
        value_size = key_size if value_size is None else value_size
        keys, values = (jnp.zeros((batch, heads, capacity, size), dtype) for size in (key_size, value_size))
        return cls(keys, values, jnp.zeros((batch,) if per_sequence else (), jnp.int32))

    @property
    def capacity(self) -> int:
        return self.keys.shape[-2]

    @property
    def overflow(self) -> jax.Array:
        """The shape of `lengths`, bool: whether tokens were lost for want of room."""
        return self.lengths > self.capacity

    def append(
        self,
        keys: ArrayLike,
        values: ArrayLike,
        *,
        lengths: ArrayLike | None = None,
        position: ArrayLike | None = None,
        on_overflow: OnOverflow = "flag",
    ) -> KVCache:
        """With the keys and values of T tokens more.

        What finds no room is counted and not written, whereas `jax.lax.dynamic_update_slice` alone would write it over
        the last tokens.

        Args:
          keys: `[B, H, T, D]` of the cache's dtype; T is at most `capacity`.
          values: `[B, H, T, E]`.
          lengths: integers, 0-d or `[B]`: how many of the T count, where prompts are padded on the right; T if left
            out.
          position: integers, 0-d or `[B]`: where the first of them goes, at most the length; after the last token if
            left out. Tokens from there on are forgotten. Beyond the length there would be a gap: the length is then
            2**31 - 1, an overflow, for good.
          on_overflow: where a sequence finds no room, `"flag"` sets the length alone, `"raise"` raises `ValueError`
            once the graph has run, `"nan"` makes all keys and values of the sequence NaN, which reaches the logits.

        Raises:
          ValueError: where shapes or dtypes do not fit, or on_overflow is unknown.
        """
        new = self._fitting(keys, "keys"), self._fitting(values, "values")
        tokens = new[0].shape[2]
        if new[1].shape[2] != tokens:
            raise ValueError(f"keys are of {tokens} tokens and values of {new[1].shape[2]}; give as many")
        as_on_overflow(on_overflow, self.keys.dtype, self.values.dtype)
        count = self._lengths_like(tokens if lengths is None else lengths, "lengths")
        at = self.lengths if position is None else self._lengths_like(position, "position")
        ok = (at >= 0) & (at <= self.lengths) & (count >= 0) & (count <= tokens) & (self.lengths < NO_LENGTH)
        total = jnp.where(ok, saturating_add(at, jnp.clip(count, 0, tokens)), NO_LENGTH)
        overflow = total > self.capacity
        if on_overflow == "raise":
            words = "KVCache.append: {length} tokens, and its capacity is {capacity}; give a larger capacity"
            check(~overflow, words, length=total, capacity=self.capacity)
        write = jax.vmap(partial(_written, axis=1)) if self.lengths.ndim else partial(_written, axis=2)
        written = KVCache(write(self.keys, new[0], at), write(self.values, new[1], at), total)
        if on_overflow == "nan":
            lost = overflow.reshape(-1, 1, 1, 1)
            return KVCache(jnp.where(lost, jnp.nan, written.keys), jnp.where(lost, jnp.nan, written.values), total)
        return written

    def mask(self, position: ArrayLike | None = None) -> jax.Array:
        """Which slots a query attends to, for the attention mask of `gm.nn.functional.scaled_dot_product_attention`.

        Args:
          position: integers, `[T]` or `[B, T]`, where the queries stand, each of which sees itself and what came
            before; if left out, one query that sees all tokens.

        Returns:
          `[1 or B, 1, T, capacity]` bool.
        """
        slots = jnp.arange(self.capacity, dtype=jnp.int32)
        held = slots < self.lengths.reshape(-1, 1, 1, 1)
        if position is None:
            return held
        position = as_integers(position, name="position")
        if position.ndim not in (1, 2):
            raise ValueError(
                f"position has shape {position.shape}, and [T] or [B, T] was wanted, a place for each query"
            )
        return held & (slots <= position.reshape(-1, 1, position.shape[-1], 1))

    def reorder(self, rows: ArrayLike) -> KVCache:
        """The cache of the sequences at `rows`, `[N]` integers from 0 to B - 1: of the beams that go on.

        A row that there is not has a length of 2**31 - 1, an overflow, for good; where all sequences have one length,
        that has.
        """
        rows = as_integers(rows, name="rows")
        ok = (rows >= 0) & (rows < self.keys.shape[0])
        lengths, ok = (self.lengths[rows], ok) if self.lengths.ndim else (self.lengths, jnp.all(ok))
        lengths = jnp.where(ok, lengths, NO_LENGTH)
        return replace(self, keys=self.keys[rows], values=self.values[rows], lengths=lengths)

    def _fitting(self, new: ArrayLike, name: str) -> jax.Array:
        array, room = jnp.asarray(new), getattr(self, name)
        wanted = (*room.shape[:2], *room.shape[3:])
        if array.ndim != 4 or (*array.shape[:2], array.shape[3]) != wanted or array.dtype != room.dtype:
            batch, heads, _, size = room.shape
            raise ValueError(
                f"{name} are {described(array)}, and {room.dtype}[{batch},{heads},T,{size}] was wanted, as the cache "
                f"holds; cast or reshape them"
            )
        if not 1 <= array.shape[2] <= self.capacity:
            raise ValueError(
                f"{name} are of {array.shape[2]} tokens, and the capacity is {self.capacity}; give from 1 to as many"
            )
        return array

    def _lengths_like(self, given: ArrayLike, name: str) -> jax.Array:
        array = as_integers(given, name=name)
        if array.shape not in ((), self.lengths.shape):
            raise ValueError(
                f"{name} has shape {array.shape}, and the lengths of this cache have {self.lengths.shape}; "
                f"KVCache.empty(..., per_sequence=True) has a length for each sequence"
            )
        return jnp.broadcast_to(array, self.lengths.shape)


def _written(room: jax.Array, new: jax.Array, at: jax.Array, *, axis: int) -> jax.Array:
    """`room` with `new` from `at` on, without what lies beyond its end."""
    tokens = new.shape[axis]
    begin = jnp.clip(at, 0, room.shape[axis] - tokens)
    late = jnp.minimum(at - begin, tokens)  # how far the slice had to move to the front
    old = lax.dynamic_slice_in_dim(room, begin, tokens, axis)
    if tokens > 1:
        new = jnp.roll(new, late, axis)
    shape = [tokens if i == axis else 1 for i in range(room.ndim)]
    mine = (jnp.arange(tokens, dtype=jnp.int32) >= late).reshape(shape)
    return lax.dynamic_update_slice_in_dim(room, jnp.where(mine, new, old), begin, axis)
