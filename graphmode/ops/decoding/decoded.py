"""`Decoded`: sequences that were generated, with their lengths, their scores, and which were cut short."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..control.nnx_operands import described
from ..exporting import exportable
from ..sizes.lengths import as_integers

S = TypeVar("S")

# (state, tokens [B], position) -> (logits [B, V], state)
Step = Callable[[S, jax.Array, jax.Array], tuple[jax.Array, S]]


@exportable
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Decoded(Generic[S]):
    """Generated sequences; a pytree.

    `L` is `max_new_tokens`. From `beam_search` all but `state` have an axis of the sequences of each row after `B`.

    Attributes:
      tokens: `[B, L]` int32, without what was given to begin with; the pad id after the end.
      lengths: `[B]` int32, how many tokens were generated, the end token among them.
      scores: `[B]` floating, the sum of their log-probabilities; in `beam_search` divided by the length's power.
      cut_short: `[B]` bool, whether `max_new_tokens` ended the sequence and no end token.
      state: what the last step gave: a cache whose `overflow` tells whether it was large enough.
    """

    tokens: jax.Array
    lengths: jax.Array
    scores: jax.Array
    cut_short: jax.Array
    state: S


def as_first_tokens(tokens: ArrayLike) -> jax.Array:
    """`[B]` int32."""
    array = as_integers(tokens, name="tokens")
    if array.ndim != 1:
        raise ValueError(
            f"tokens has shape {array.shape}, and [B] was wanted, one for each sequence to go on from; of a prompt, "
            f"run all but the last token through the model first, and give the last one with start"
        )
    return array


def as_start(start: ArrayLike, batch: int) -> jax.Array:
    """0-d or `[B]` int32."""
    array = as_integers(start, name="start")
    if array.shape not in ((), (batch,)):
        raise ValueError(f"start has shape {array.shape}, and () or {(batch,)} was wanted, the place of each of tokens")
    return array


def as_eos_ids(eos_id: int | Sequence[int] | None) -> tuple[int, ...]:
    """The end tokens, known to the graph; none where there is no end."""
    if eos_id is None:
        return ()
    listed = eos_id if isinstance(eos_id, Sequence | np.ndarray) else (eos_id,)
    ids = tuple(as_id(one, name="eos_id") for one in listed)
    if not ids or len(set(ids)) < len(ids):
        raise ValueError(f"eos_id is {eos_id!r}; give one id, several that differ, or None for no end")
    return ids


def as_pad_id(pad_id: int | None, eos_ids: tuple[int, ...]) -> int:
    """What stands after the end: where it is left out, the first end token, as in transformers."""
    if pad_id is None:
        return eos_ids[0] if eos_ids else 0
    return as_id(pad_id, name="pad_id", least=-(2**31))


def as_id(token: int, *, name: str, least: int = 0) -> int:
    """A token known to the graph."""
    try:
        number = operator.index(token)
    except TypeError:
        number = None
    if number is None or isinstance(token, bool | np.bool_):
        raise TypeError(f"{name} is {token!r}, and an integer known to the graph was wanted")
    if not least <= number < 2**31:
        raise ValueError(f"{name} is {number}; give an integer from {least} to {2**31 - 1}")
    return number


def is_one_of(tokens: jax.Array, ids: tuple[int, ...]) -> jax.Array:
    """Whether each token is among `ids`."""
    found = jnp.zeros(tokens.shape, bool)
    for one in ids:
        found |= tokens == one
    return found


def stepped(
    step: Step[Any], state: Any, tokens: jax.Array, position: jax.Array, eos_ids: tuple[int, ...]
) -> tuple[jax.Array, Any]:
    """One call of the user's step: logits in at least single precision, and the state."""
    out = step(state, tokens, position)
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(f"step returns {type(out).__name__}, and (logits, state) was wanted")
    logits, state = out
    logits = jnp.asarray(logits)
    rows = tokens.shape[0]
    if logits.ndim != 2 or logits.shape[0] != rows or not jnp.issubdtype(logits.dtype, jnp.floating):
        raise ValueError(
            f"step returns logits {described(logits)}, and floats of shape [{rows}, V] were wanted, the scores of the "
            f"token that comes next for each sequence"
        )
    vocabulary = logits.shape[1]
    if any(one >= vocabulary for one in eos_ids):
        raise ValueError(f"eos_id is {eos_ids}, and there are {vocabulary} tokens; give ids below it")
    return logits.astype(jnp.promote_types(logits.dtype, jnp.float32)), state
