"""`beam_search`: the likeliest sequences that a beam finds, with the rules of transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..arguments import as_capacity
from ..control.loops import while_loop
from ..control.nnx_operands import is_nnx
from .decoded import Decoded, Step, as_eos_ids, as_first_tokens, as_pad_id, as_start, is_one_of, stepped

S = TypeVar("S")
EarlyStopping = Literal[False, True, "never"]


class Running(NamedTuple):
    """Sequences that go on, best first; with a score of -inf, none.

    Attributes:
      tokens: `[B, K, L]` int32.
      last: `[B, K]` int32, the token to go on from.
      scores: `[B, K]`, sums of log-probabilities.
    """

    tokens: jax.Array
    last: jax.Array
    scores: jax.Array


class Finished(NamedTuple):
    """The best sequences that have ended, best first; with a score of -inf, none.

    Attributes:
      tokens: `[B, K, L]` int32.
      lengths: `[B, K]` int32.
      scores: `[B, K]`, divided by the length's power.
      cut_short: `[B, K]` bool.
    """

    tokens: jax.Array
    lengths: jax.Array
    scores: jax.Array
    cut_short: jax.Array


def beam_search(
    step: Step[S],
    state: S,
    tokens: ArrayLike,
    *,
    num_beams: int,
    max_new_tokens: int,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = False,
    num_return_sequences: int = 1,
    eos_id: int | Sequence[int] | None = None,
    pad_id: int | None = None,
    start: ArrayLike = 0,
    reorder: Callable[[S, jax.Array], S] | None = None,
) -> Decoded[S]:
    """Keeps the `num_beams` likeliest sequences of each row at every step, and stops when none can become better.

    The rules are those of `generate(num_beams=...)` in transformers 5: of the `(1 + end tokens) * num_beams` likeliest
    continuations, those among the first `num_beams` that have ended compete with what ended before, by
    `score / length ** length_penalty`, and the first `num_beams` that have not ended go on. Where there are fewer
    sequences than beams, since the vocabulary is small or tokens have a logit of -inf, none is made up: what is missing
    has the score -inf and the length 0.

    Prompts are as in `greedy`: the caches are filled for B sequences, and spread over the beams here.

    Args:
      step: as in `greedy`, of `B * num_beams` sequences, those of one row side by side.
      state: for B sequences: a pytree of arrays `[B, ...]`, or 0-d, such as `KVCache`. Parameters are closed over.
      tokens: `[B]` integers, what each row goes on from.
      num_beams: K, static.
      max_new_tokens: L, the most tokens to generate, static.
      length_penalty: above 0 longer sequences win, below 0 shorter ones; static.
      early_stopping: when a row is done that has K sequences which ended. True: at once. False: when its best running
        one would not be better if it ended now. "never": when it could not be better at its best length.
      num_return_sequences: R, how many of the K to return, static.
      eos_id, pad_id, start: as in `greedy`.
      reorder: `(state, rows) -> state`, the state of the sequences at `rows`, `[B * K]` int32; takes the place of
        `x[rows]` for each array that is not 0-d. It spreads B sequences over the beams, too.

    Returns:
      `Decoded`: tokens `[B, R, L]`, lengths, scores and cut_short `[B, R]`, best first; the state is that of the
      beams, `[B * K, ...]`. Of equally likely continuations that of the better beam and the lower token comes first.
      Where a sequence that could still win gets a logit that is NaN, the scores of its row are NaN.

    Raises:
      ValueError, TypeError: as `greedy`; where the state holds an NNX object, or an array that is not of B sequences,
        and `reorder` is not given.

    Example:
      >>> import graphmode as gm, jax.numpy as jnp
      >>> table = jnp.log(jnp.array([[0.1, 0.5, 0.4, 0.0], [0.3, 0.0, 0.3, 0.4], [0.0, 0.0, 0.1, 0.9]]))
      >>> step = lambda state, tokens, position: (table[tokens], state)
      >>> best = gm.beam_search(step, None, jnp.array([0]), num_beams=2, max_new_tokens=3, eos_id=3)
      >>> best.tokens.tolist(), round(float(jnp.exp(best.scores[0, 0] * best.lengths[0, 0])), 2)
      ([[[2, 3, 3]]], 0.36)

    Source: https://huggingface.co/docs/transformers/main_classes/text_generation, `_beam_search`.
    """
    beams = as_capacity(num_beams, name="num_beams")
    length = as_capacity(max_new_tokens, name="max_new_tokens")
    returned = as_capacity(num_return_sequences, name="num_return_sequences")
    if returned > beams:
        raise ValueError(f"num_return_sequences is {returned}, and num_beams is {beams}; give at most as many")
    if not isinstance(early_stopping, bool) and early_stopping != "never":
        raise ValueError(f"early_stopping is {early_stopping!r}; choose False, True or 'never'")
    if not isinstance(length_penalty, int | float | np.integer | np.floating):
        raise TypeError(f"length_penalty is {length_penalty!r}, and a number known to the graph was wanted")
    tokens = as_first_tokens(tokens)
    batch = tokens.shape[0]
    eos_ids = as_eos_ids(eos_id)
    pad = as_pad_id(pad_id, eos_ids)
    start = as_start(start, batch)
    start = jnp.repeat(start, beams) if start.ndim else start
    powers = np.arange(1, length + 1, dtype=np.float64) ** float(length_penalty)
    spread = jnp.repeat(jnp.arange(batch, dtype=jnp.int32), beams)
    first_row = jnp.arange(batch, dtype=jnp.int32)[:, None] * beams

    def at_rows(state: Any, rows: jax.Array, count: int) -> Any:
        return _rows_of(state, rows, count) if reorder is None else reorder(state, rows)

    def body(carry: Any) -> Any:
        i, running, finished, improvable, state = carry
        logits, state = stepped(step, state, running.last.reshape(-1), start + i, eos_ids)
        vocabulary = logits.shape[-1]
        log_probs = _log_softmax(logits).reshape(batch, beams, vocabulary)
        broken = jnp.any(jnp.isnan(log_probs) & (running.scores > -jnp.inf)[..., None], axis=(1, 2))
        power = jnp.asarray(powers, log_probs.dtype)

        kept = min(max(2, 1 + len(eos_ids)), vocabulary) * beams
        totals = (log_probs + running.scores[..., None]).reshape(batch, beams * vocabulary)
        scores, index = jax.lax.top_k(totals, kept)
        parent, token = (index // vocabulary).astype(jnp.int32), (index % vocabulary).astype(jnp.int32)
        continued = _picked(running.tokens, parent).at[:, :, i].set(token)
        ended = is_one_of(token, eos_ids)
        stops = ended | (i + 1 == length)

        next_scores, place = jax.lax.top_k(jnp.where(stops, -jnp.inf, scores), beams)
        parent = _picked(parent, place)
        going = Running(_picked(continued, place), _picked(token, place), next_scores)

        counts = stops & (jnp.arange(kept) < beams) & improvable[:, None]
        new = Finished(
            continued,
            jnp.full_like(token, i + 1),
            jnp.where(counts, scores / power[i], -jnp.inf),
            ~ended,
        )
        best, place = jax.lax.top_k(jnp.concatenate([finished.scores, new.scores], axis=1), beams)
        joined = jax.tree.map(lambda old, more: _picked(jnp.concatenate([old, more], axis=1), place), finished, new)
        finished = joined._replace(scores=jnp.where((improvable & broken)[:, None], jnp.nan, best))

        longest = power[-1] if early_stopping == "never" and length_penalty > 0 else power[i]
        improvable &= ~broken
        hoped = going.scores[:, 0] / longest
        full = finished.scores[:, -1] > -jnp.inf  # they are in order
        improvable &= hoped > jnp.where(full, finished.scores[:, -1], -jnp.inf)
        if early_stopping is True:
            improvable &= ~full
        return i + 1, going, finished, improvable, at_rows(state, (first_row + parent).reshape(-1), batch * beams)

    none = jnp.full((batch, beams, length), pad, jnp.int32)
    alone = jnp.broadcast_to(jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf), (batch, beams))
    no_scores = jnp.broadcast_to(-jnp.inf, (batch, beams))
    running = Running(none, jnp.repeat(tokens[:, None], beams, axis=1), alone)
    zeros = jnp.zeros((batch, beams), jnp.int32)
    finished = Finished(none, zeros, no_scores, zeros.astype(bool))
    carry = (jnp.int32(0), running, finished, jnp.ones(batch, bool), at_rows(state, spread, batch))
    (_, _, finished, _, state), _ = while_loop(lambda carry: jnp.any(carry[3]), body, carry, max_steps=length)
    best = Finished(*(part[:, :returned] for part in finished))
    return Decoded(best.tokens, best.lengths, best.scores, best.cut_short, state)


def _log_softmax(logits: jax.Array) -> jax.Array:
    """Of a row of -inf alone, after which nothing can come, -inf and not NaN."""
    dead = jnp.all(logits == -jnp.inf, axis=-1, keepdims=True)
    return jnp.where(dead, -jnp.inf, jax.nn.log_softmax(jnp.where(dead, 0, logits), axis=-1))


def _picked(x: jax.Array, index: jax.Array) -> jax.Array:
    """Of `[B, N, ...]` those at `[B, M]` of the second axis."""
    return jnp.take_along_axis(x, index.reshape(*index.shape, *(1,) * (x.ndim - 2)), axis=1)


def _rows_of(state: Any, rows: jax.Array, count: int) -> Any:
    """Each array at `rows` of its `count`; those of no axes belong to all sequences."""

    def one(path: Any, leaf: Any) -> Any:
        where = f"state{jax.tree_util.keystr(path)}"
        if is_nnx(leaf):
            raise TypeError(
                f"{where} is a {type(leaf).__name__}; close over a module that is only read, carry arrays, or give "
                f"reorder, which says what of it belongs to which sequence"
            )
        leaf = jnp.asarray(leaf)
        if not leaf.ndim:
            return leaf
        if leaf.shape[0] != count:
            raise ValueError(
                f"{where} has shape {leaf.shape}, and a first axis of {count} sequences was wanted; close over "
                f"parameters, or give reorder, which says where the sequences are"
            )
        return leaf[rows]

    return jax.tree_util.tree_map_with_path(one, state, is_leaf=is_nnx)
