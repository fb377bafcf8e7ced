"""CTC decoding: the labels of the likeliest alignment, and the likeliest labels over all alignments in a beam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from ..arguments import as_array, as_capacity
from ..control.nnx_operands import described
from ..exporting import exportable
from ..sizes.lengths import as_integers
from .decoded import as_id


@exportable
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transcripts:
    """Label sequences read off CTC's log-probabilities; a pytree.

    From `ctc_beam_search` each array has an axis of the `num_beams` transcripts of each row after `B`, best first.

    Attributes:
      tokens: `[B, T]` int32, the labels; the pad id from the length on.
      lengths: `[B]` int32, how many labels there are.
      scores: `[B]` floating, their log-probability.
    """

    tokens: jax.Array
    lengths: jax.Array
    scores: jax.Array


def ctc_greedy(
    log_probs: ArrayLike, lengths: ArrayLike | None = None, *, blank: int = 0, pad_id: int | None = None
) -> Transcripts:
    """The likeliest label of each frame, repeats merged and blanks left out.

    Args:
      log_probs: `[B, T, V]` floating, as `log_softmax` gives them; batch first, unlike `torch.nn.CTCLoss`.
      lengths: `[B]` integers, the frames of each row; T if left out.
      blank: the label that means none.
      pad_id: stands from the length on; the blank where it is None.

    Returns:
      `Transcripts`. The scores are those of this one alignment. Of equally likely labels the lowest is taken, and NaN
      before all others, as `torch.argmax` does.

    Raises:
      ValueError: where shapes or ids do not fit, or (outside a graph, where they make the score NaN) lengths are not
        from 0 to T.
      TypeError: where lengths or ids are no integers.

    Example:
      >>> import jax.numpy as jnp
      >>> frames = jnp.log(jnp.array([[[0.1, 0.9, 0.0], [0.2, 0.8, 0.0], [0.7, 0.3, 0.0], [0.4, 0.5, 0.1]]]))
      >>> found = ctc_greedy(frames)
      >>> found.tokens.tolist(), found.lengths.tolist()
      ([[1, 1, 0, 0]], [2])

    Source: Graves et al., Connectionist Temporal Classification, 2006, best path decoding.
    """
    log_probs, lengths, fits, blank, pad = _inputs(log_probs, lengths, blank, pad_id)
    frames = log_probs.shape[1]
    present = jnp.arange(frames) < lengths[:, None]
    labels = jnp.argmax(log_probs, axis=-1).astype(jnp.int32)
    before = jnp.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    kept = present & (labels != blank) & (labels != before)
    count = jnp.sum(kept, axis=1, dtype=jnp.int32)
    target = jnp.where(kept, jnp.cumsum(kept, axis=1, dtype=jnp.int32) - 1, frames)
    rows = jnp.arange(log_probs.shape[0], dtype=jnp.int32)[:, None]
    tokens = jnp.full(labels.shape, pad, jnp.int32).at[rows, target].set(labels, mode="drop")
    scores = jnp.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
    return Transcripts(tokens, count, _poisoned(jnp.sum(jnp.where(present, scores, 0), axis=1), fits))


def ctc_beam_search(
    log_probs: ArrayLike,
    lengths: ArrayLike | None = None,
    *,
    num_beams: int,
    blank: int = 0,
    pad_id: int | None = None,
) -> Transcripts:
    """The likeliest labels, each with the probability of all its alignments: prefix beam search.

    After each frame the `num_beams` likeliest label sequences stay. A score is the sum over the alignments whose
    prefixes were in the beam at every frame, exact where the beam is wide enough. A frame costs `K * V` for the
    extensions and `K * K` for finding which of them is a sequence that the beam already holds; a loop that ends with
    the longest row.

    Args:
      log_probs, lengths, blank, pad_id: as in `ctc_greedy`.
      num_beams: K, static.

    Returns:
      `Transcripts` of `[B, K, T]` and `[B, K]`. Where there are fewer than K possible ones, the score of what is
      missing is -inf and the length 0.

    Raises:
      ValueError, TypeError: as `ctc_greedy`; where num_beams is below 1, or not known to the graph.

    Example:
      >>> import jax.numpy as jnp
      >>> frames = jnp.log(jnp.array([[[0.6, 0.4], [0.6, 0.4]]]))  # the likeliest alignment is of two blanks
      >>> found = ctc_beam_search(frames, num_beams=2)
      >>> found.tokens[0, 0].tolist(), found.lengths.tolist(), jnp.exp(found.scores).round(2).tolist()
      ([1, 0], [[1, 0]], [[0.6399999856948853, 0.35999998450279236]])

    Source: Hannun et al., First-Pass Large Vocabulary Continuous Speech Recognition, 2014, without a language model.
    """
    beams = as_capacity(num_beams, name="num_beams")
    log_probs, lengths, fits, blank, pad = _inputs(log_probs, lengths, blank, pad_id)
    batch, frames, _ = log_probs.shape
    nothing = jnp.full((batch, beams), -jnp.inf, log_probs.dtype)
    empty = Prefixes(
        tokens=jnp.full((batch, beams, frames), pad, jnp.int32),
        lengths=jnp.zeros((batch, beams), jnp.int32),
        last=jnp.full((batch, beams), -1, jnp.int32),
        blank_ended=nothing.at[:, 0].set(0),
        label_ended=nothing,
        shared=jnp.zeros((batch, beams, beams), jnp.int32),
    )

    def frame(carry: tuple[jax.Array, Prefixes]) -> tuple[jax.Array, Prefixes]:
        t, prefixes = carry
        new = jax.vmap(lambda one, now: _extended(one, now, blank))(prefixes, log_probs[:, t])
        running = t < lengths
        kept = jax.tree.map(lambda a, b: jnp.where(running.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, prefixes)
        return t + 1, kept

    longest = jnp.max(lengths, initial=0)
    _, found = lax.while_loop(lambda carry: carry[0] < longest, frame, (jnp.int32(0), empty))
    scores = found.total
    there = scores > -jnp.inf
    tokens = jnp.where(there[..., None], found.tokens, pad)
    return Transcripts(tokens, jnp.where(there, found.lengths, 0), _poisoned(scores, fits[:, None]))


class Prefixes(NamedTuple):
    """K label sequences that differ, best first; with a total of -inf, none.

    Attributes:
      tokens: `[K, T]` int32.
      lengths: `[K]` int32.
      last: `[K]` int32, the last label; -1 where there is none.
      blank_ended: `[K]`, the log-probability of the alignments whose last frame is blank.
      label_ended: `[K]`, that of those whose last frame is the last label.
      shared: `[K, K]` int32, how many labels two of them begin with alike.
    """

    tokens: jax.Array
    lengths: jax.Array
    last: jax.Array
    blank_ended: jax.Array
    label_ended: jax.Array
    shared: jax.Array

    @property
    def total(self) -> jax.Array:
        return jnp.logaddexp(self.blank_ended, self.label_ended)


def _extended(prefixes: Prefixes, now: jax.Array, blank: int) -> Prefixes:
    """After one frame more, whose log-probabilities are `now`, `[V]`."""
    beams, vocabulary = prefixes.lengths.shape[0], now.shape[0]
    total = prefixes.total
    there = total > -jnp.inf
    labels = jnp.arange(vocabulary, dtype=jnp.int32)

    # A label that is the last one again needs a blank between.
    again = labels == prefixes.last[:, None]
    extended = now + jnp.where(again, prefixes.blank_ended[:, None], total[:, None])  # [K, V]
    extended = jnp.where(labels == blank, -jnp.inf, extended)

    # [i, j]: sequence j is sequence i and one label more, so that extending i by this label gives j.
    is_child = (prefixes.lengths == prefixes.lengths[:, None] + 1) & (prefixes.shared == prefixes.lengths[:, None])
    is_child &= there & there[:, None]
    by_last = jnp.where(is_child, extended[:, jnp.maximum(prefixes.last, 0)], -jnp.inf)
    repeated = jnp.where(prefixes.last >= 0, now[jnp.maximum(prefixes.last, 0)], -jnp.inf) + prefixes.label_ended
    stay_blank = total + now[blank]
    stay_label = jnp.logaddexp(repeated, jnp.max(by_last, axis=0))  # there is one parent at most
    label = jnp.where(jnp.any(is_child, axis=0), prefixes.last, vocabulary)
    parent = jnp.argmax(is_child, axis=0)
    extended = extended.at[parent, label].set(-jnp.inf, mode="drop")

    candidates = jnp.concatenate([jnp.logaddexp(stay_blank, stay_label), extended.reshape(-1)])
    _, picked = lax.top_k(candidates, beams)
    is_new = picked >= beams
    source = jnp.where(is_new, (picked - beams) // vocabulary, picked).astype(jnp.int32)
    label = jnp.where(is_new, (picked - beams) % vocabulary, -1).astype(jnp.int32)
    before = prefixes.lengths[source]
    tokens = prefixes.tokens[source]
    slots = jnp.arange(tokens.shape[1], dtype=jnp.int32)
    tokens = jnp.where(is_new[:, None] & (slots == before[:, None]), label[:, None], tokens)
    return Prefixes(
        tokens=tokens,
        lengths=before + is_new,
        last=jnp.where(is_new, label, prefixes.last[source]),
        blank_ended=jnp.where(is_new, -jnp.inf, stay_blank[source]),
        label_ended=jnp.where(is_new, candidates[picked], stay_label[source]),
        shared=_shared(prefixes.shared[source][:, source], before, tokens, before + is_new),
    )


def _shared(shared: jax.Array, before: jax.Array, tokens: jax.Array, after: jax.Array) -> jax.Array:
    """What two sequences begin with alike, once each has grown by one label at most.

    Only where the shorter one was the beginning of the other can it be one more: the label next to what was shared
    decides.
    """
    room = tokens.shape[1]
    grown = (shared < after) & (shared < after[:, None]) & (shared == jnp.minimum(before, before[:, None]))
    slot = jnp.minimum(shared, room - 1)
    mine = jnp.take_along_axis(tokens, slot, axis=1)
    return shared + (grown & (mine == mine.T))


def _inputs(
    log_probs: ArrayLike, lengths: ArrayLike | None, blank: int, pad_id: int | None
) -> tuple[jax.Array, jax.Array, jax.Array, int, int]:
    log_probs = as_array(log_probs, name="log_probs")
    if log_probs.ndim != 3 or not all(log_probs.shape[1:]) or not jnp.issubdtype(log_probs.dtype, jnp.floating):
        raise ValueError(f"log_probs is {described(log_probs)}, and floats of shape [B, T, V] were wanted")
    batch, frames, vocabulary = log_probs.shape
    blank = as_id(blank, name="blank")
    if blank >= vocabulary:
        raise ValueError(f"blank is {blank}, and log_probs has {vocabulary} labels; give one of 0 to {vocabulary - 1}")
    pad = blank if pad_id is None else as_id(pad_id, name="pad_id", least=-(2**31))
    counts = as_integers(frames if lengths is None else lengths, name="lengths")
    if counts.shape != (batch,) and lengths is not None:
        raise ValueError(f"lengths has shape {counts.shape}, and {(batch,)} was wanted, the frames of each row")
    counts = jnp.broadcast_to(counts, (batch,))
    fits = (counts >= 0) & (counts <= frames)
    if not isinstance(fits, jax.core.Tracer) and not np.all(fits):
        wrong = np.asarray(counts)[~np.asarray(fits)][0]
        raise ValueError(f"lengths holds {wrong}, and log_probs has {frames} frames; give 0 to {frames}")
    wide = log_probs.astype(jnp.promote_types(log_probs.dtype, jnp.float32))
    return wide, jnp.clip(counts, 0, frames), fits, blank, pad


def _poisoned(scores: jax.Array, fits: jax.Array) -> jax.Array:
    return jnp.where(fits, scores, jnp.nan)
