"""What the ports of causal language models share: their tokens checked, and the mask of scores."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def check_tokens(input_ids: jax.Array, attention_mask: jax.Array, positions: int) -> None:
    """Raises `ValueError` where tokens and mask are not both `[B, T]`, with `T` at most `positions`."""
    if input_ids.ndim != 2 or attention_mask.shape != input_ids.shape:
        raise ValueError(
            f"input_ids has shape {input_ids.shape} and attention_mask {attention_mask.shape}, and [B, T] was wanted "
            "of both; a single text is a batch of one"
        )
    if input_ids.shape[1] > positions:
        raise ValueError(f"input_ids has shape {input_ids.shape}, and there are {positions} positions; cut the text")


def causal_mask(attention_mask: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """What is added to scores: the least finite number where a key is padding or comes later than the query, else 0.

    A query that may attend to nothing, padding before a text, so attends to all alike, as `transformers` has it.

    Args:
      attention_mask: `[B, T]`, 0 where there is no text.
      dtype: of the scores.

    Returns:
      `[B, 1, T, T]`, queries before keys.
    """
    length = attention_mask.shape[1]
    causal = jnp.tril(jnp.ones((length, length), bool))
    seen = causal & (attention_mask != 0)[:, None, None]
    return jnp.where(seen, jnp.zeros((), dtype), jnp.finfo(dtype).min)
