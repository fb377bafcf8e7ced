"""The loop that greedy decoding and sampling share: one sequence a row, until each has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..arguments import as_capacity
from ..control.loops import while_loop
from .decoded import Decoded, Step, as_eos_ids, as_first_tokens, as_pad_id, as_start, is_one_of, stepped


def one_by_one(
    step: Step[Any],
    state: Any,
    tokens: ArrayLike,
    choose: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
    *,
    max_new_tokens: int,
    eos_id: int | Sequence[int] | None,
    pad_id: int | None,
    start: ArrayLike,
) -> Decoded[Any]:
    """Feeds back what `choose` makes of each step's logits, until every sequence has ended.

    Args:
      choose: `(logits [B, V], index of the step, 0-d)` -> tokens `[B]`, and their scores `[B]`, which add up.
    """
    length = as_capacity(max_new_tokens, name="max_new_tokens")
    tokens = as_first_tokens(tokens)
    batch = tokens.shape[0]
    eos_ids = as_eos_ids(eos_id)
    pad = as_pad_id(pad_id, eos_ids)
    start = as_start(start, batch)

    def body(carry: Any) -> Any:
        i, token, ended, out, lengths, scores, state = carry
        logits, state = stepped(step, state, token, start + (lengths if start.ndim else i), eos_ids)
        chosen, score = choose(logits, i)
        # What has ended is fed its end token at one place again and again: a cache that writes there does not grow.
        token = jnp.where(ended, token, chosen)
        out = out.at[:, i].set(jnp.where(ended, pad, chosen))
        scores = scores + jnp.where(ended, 0, score)
        return i + 1, token, ended | is_one_of(chosen, eos_ids), out, lengths + ~ended, scores, state

    carry = (
        jnp.int32(0),
        tokens,
        jnp.zeros(batch, bool),
        jnp.full((batch, length), pad, jnp.int32),
        jnp.zeros(batch, jnp.int32),
        jnp.broadcast_to(0.0, (batch,)),  # of the dtype that the logits turn out to have
        state,
    )
    carry, _ = while_loop(lambda carry: ~jnp.all(carry[2]), body, carry, max_steps=length)
    _, _, ended, out, lengths, scores, state = carry
    return Decoded(out, lengths, scores, ~ended, state)


def score_of(log_probs: jax.Array, tokens: jax.Array) -> jax.Array:
    """`[B]`, the entry of each row `[V]` at its token."""
    return jnp.take_along_axis(log_probs, tokens[:, None], axis=-1)[:, 0]
