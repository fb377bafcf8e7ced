"""`greedy`: the most likely token at every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from .decoded import Decoded, Step
from .one_by_one import one_by_one, score_of

S = TypeVar("S")


def greedy(
    step: Step[S],
    state: S,
    tokens: ArrayLike,
    *,
    max_new_tokens: int,
    eos_id: int | Sequence[int] | None = None,
    pad_id: int | None = None,
    start: ArrayLike = 0,
) -> Decoded[S]:
    """Generates with the most likely token at every step, and stops when every sequence has ended.

    A loop that ends with the last sequence: no step is wasted. `step` takes one token of each sequence; a sequence that
    has ended is fed its end token again, and what `step` makes of it is ignored.

    A prompt of several tokens goes through the model at once, all but its last token, which fills the caches; then
    `tokens` holds the last token of each prompt, and `start` the place of it. Where prompts differ in length, pad them
    on the right, count the tokens of each with `KVCache.append(..., lengths=...)`, and give a `start` for each; `step`
    then writes at `position`, so that no cache grows after its sequence has ended.

    Args:
      step: `(state, tokens [B] int32, position int32) -> (logits [B, V] floating, state)`; `position`, of the shape of
        `start`, is where `tokens` stand. It may read NNX modules that it closes over, and change those in the state.
      state: a pytree of arrays, caches, NNX modules and variables, of fixed shapes and dtypes.
      tokens: `[B]` integers, what each sequence goes on from: a start token, or the last one of its prompt.
      max_new_tokens: L, the most tokens to generate, static; as in transformers, tokens that are given do not count.
      eos_id: the token, or any of the tokens, that ends a sequence; None where only `max_new_tokens` does.
      pad_id: stands after the end; the first end token where it is None.
      start: 0-d or `[B]` integers, the position of `tokens`.

    Returns:
      `Decoded`. Of equally likely tokens the lowest is taken, and NaN before all others, as `torch.argmax` does. The
      scores are differentiable.

    Raises:
      ValueError: where arguments or logits do not fit in shape or range.
      TypeError: where ids or sizes are no integers known to the graph; where `step` returns no pair, or changes the
        form of the state.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp
      >>> def counting(state, tokens, position):  # after 2 comes 3, and 3 ends
      ...     return jax.nn.one_hot(tokens + 1, 4) * 50, state
      >>> found = gm.greedy(counting, None, jnp.array([0, 2]), max_new_tokens=5, eos_id=3)
      >>> found.tokens.tolist(), found.lengths.tolist(), found.cut_short.tolist()
      ([[1, 2, 3, 3, 3], [3, 3, 3, 3, 3]], [3, 1], [False, False])

    Stands for the loop of `generate(do_sample=False)`:
    https://huggingface.co/docs/transformers/main_classes/text_generation.
    """

    def likeliest(logits: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
        chosen = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        return chosen, score_of(jax.nn.log_softmax(logits, axis=-1), chosen)

    options: Any = {"max_new_tokens": max_new_tokens, "eos_id": eos_id, "pad_id": pad_id, "start": start}
    return one_by_one(step, state, tokens, likeliest, **options)
