"""From probabilities to the segments where somebody speaks: a state machine of Python ifs as a scan over chunks.

The original walks over a list with `if`, `continue` and `append`. Here each step of a `lax.scan` selects between old
and new state, and writes at most two finished segments, each with a flag; `gm.compact` picks those that count, at a
declared capacity. Durations are samples, integers throughout, so that the segments are exactly the original's.

Source: `silero_vad.get_speech_timestamps`, version 6.2.3 (MIT), at 16 kHz.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

import graphmode as gm

from .model import SileroVAD

SAMPLING_RATE = 16000
CHUNK = 512  # samples for which there is one probability
NEVER = np.iinfo(np.int32).max

OnOverflow = Literal["flag", "raise", "nan"]


class _Walk(NamedTuple):
    """What is remembered between chunks, each 0-d: positions are samples, and 0 where there is none.

    Attributes:
      triggered: whether a segment is open.
      start: of the open segment.
      temp_end: where the silence began that may end it.
      prev_end, next_start: the last silence at which too long a segment may be cut, and where speech went on.
      longest_end, longest: the longest such silence, where it began and how long it was.
    """

    triggered: jax.Array
    start: jax.Array
    temp_end: jax.Array
    prev_end: jax.Array
    next_start: jax.Array
    longest_end: jax.Array
    longest: jax.Array


def get_speech_timestamps(
    audio: jax.Array,
    model: SileroVAD,
    *,
    capacity: int,
    audio_length_samples: ArrayLike | None = None,
    on_overflow: OnOverflow = "flag",
    **options: Any,
) -> gm.Padded[dict[str, jax.Array]]:
    """Where somebody speaks in a recording: the network and what follows it, in one graph.

    Args:
      audio: `[N]` within -1 .. 1, 16 kHz.
      model: the detector.
      capacity: the most segments that there is room for.
      audio_length_samples: integer, how much of `audio` is the recording, whose length may differ from call to call;
        what stands beyond it is not heard. None for all of it.
      on_overflow: see `get_speech_timestamps_from_probs`.
      **options: the thresholds and durations of `get_speech_timestamps_from_probs`.

    Returns:
      As `get_speech_timestamps_from_probs`.

    Example:
      >>> from flax import nnx
      >>> from graphmode.models.silero_vad import SileroVAD
      >>> model = SileroVAD(rngs=nnx.Rngs(0))
      >>> segments = get_speech_timestamps(jnp.zeros(8000), model, capacity=4, threshold=0.9)
      >>> segments.to_list()
      []
    """
    if audio.ndim != 1:
        raise ValueError(f"audio has shape {audio.shape}, and [N] was wanted; for several recordings, jax.vmap")
    length = audio.shape[0] if audio_length_samples is None else audio_length_samples
    heard = jnp.where(jnp.arange(audio.shape[0], dtype=jnp.int32) < length, audio, 0)
    probabilities, _ = model(heard[None])
    return get_speech_timestamps_from_probs(
        probabilities[0], capacity=capacity, audio_length_samples=length, on_overflow=on_overflow, **options
    )


def get_speech_timestamps_from_probs(
    speech_probs: jax.Array,
    *,
    capacity: int,
    threshold: float = 0.5,
    min_speech_duration_ms: int = 250,
    max_speech_duration_s: float = math.inf,
    min_silence_duration_ms: int = 100,
    speech_pad_ms: int = 30,
    neg_threshold: float | None = None,
    min_silence_at_max_speech: int = 98,
    use_max_poss_sil_at_max_speech: bool = True,
    audio_length_samples: ArrayLike | None = None,
    on_overflow: OnOverflow = "flag",
) -> gm.Padded[dict[str, jax.Array]]:
    """Segments of speech, from the probability of each chunk.

    A segment begins with a chunk of at least `threshold`, and ends where those below `neg_threshold` begin, once
    none has reached `threshold` for `min_silence_duration_ms`.

    Args:
      speech_probs: `[T]` float, one for 512 samples.
      capacity: the most segments that there is room for; the first ones are kept, as they are with more room.
      threshold: from which a chunk is speech.
      min_speech_duration_ms: segments that are no longer are dropped.
      max_speech_duration_s: longer segments are cut, at a silence if there was one.
      min_silence_duration_ms: how long a silence is that ends a segment.
      speech_pad_ms: what each segment is widened by at both ends, up to the middle of the silence between two.
      neg_threshold: below which a chunk is silence; None for 0.15 less than `threshold`, at least 0.01.
      min_silence_at_max_speech: milliseconds of silence at which too long a segment may be cut.
      use_max_poss_sil_at_max_speech: whether it is cut at the longest such silence, or else at the last one.
      audio_length_samples: integer, of the recording; chunks that begin beyond it do not count. None for all chunks.
      on_overflow: where there are more than `capacity` segments: `"flag"` sets the count alone, `"raise"` raises
        `ValueError` once the graph has run.

    Returns:
      `Padded` of `{"start": [capacity], "end": [capacity]}`, int32 samples; its `to_list()` is the original's list.

    Raises:
      ValueError: where an argument is out of range.
      TypeError: where a duration in milliseconds is no integer.

    Example:
      >>> probabilities = jnp.array([0.1] * 5 + [0.9] * 20 + [0.1] * 10)
      >>> get_speech_timestamps_from_probs(probabilities, capacity=2).to_list()
      [{'end': 13280, 'start': 2080}]
    """
    if speech_probs.ndim != 1 or not jnp.issubdtype(speech_probs.dtype, jnp.floating):
        raise ValueError(
            f"speech_probs has shape {speech_probs.shape} and dtype {speech_probs.dtype}, and float [T] was wanted; "
            "for several recordings, jax.vmap"
        )
    min_speech, min_silence, pad, cut_silence = (
        _samples(name, value)
        for name, value in (
            ("min_speech_duration_ms", min_speech_duration_ms),
            ("min_silence_duration_ms", min_silence_duration_ms),
            ("speech_pad_ms", speech_pad_ms),
            ("min_silence_at_max_speech", min_silence_at_max_speech),
        )
    )
    if math.isnan(max_speech_duration_s):
        raise ValueError("max_speech_duration_s is nan, and seconds were wanted; math.inf for no limit")
    most = SAMPLING_RATE * max_speech_duration_s - CHUNK - 2 * pad
    max_speech = math.floor(min(most, NEVER))  # an integer is above the one just where it is above the other
    steps = speech_probs.shape[0]
    length = jnp.asarray(steps * CHUNK if audio_length_samples is None else audio_length_samples, jnp.int32)
    if neg_threshold is None:
        neg_threshold = max(threshold - 0.15, 0.01)
    probs = speech_probs.astype(jnp.promote_types(speech_probs.dtype, jnp.float32))
    speech = probs >= _least_from(threshold, probs.dtype)
    silent = probs < _least_from(neg_threshold, probs.dtype)
    at_longest = use_max_poss_sil_at_max_speech

    def step(walk: _Walk, chunk: tuple[jax.Array, ...]) -> tuple[_Walk, tuple[jax.Array, ...]]:
        speech, silent, here = chunk
        live = here < length
        speech, silent = speech & live, silent & live
        triggered, start, temp_end, prev_end, next_start, longest_end, longest = walk

        returns = speech & (temp_end > 0)
        silence = here - temp_end
        longer = returns & (silence > cut_silence) & (silence > longest)
        longest_end, longest = jnp.where(longer, temp_end, longest_end), jnp.where(longer, silence, longest)
        next_start = jnp.where(returns & (next_start < prev_end), here, next_start)
        temp_end = jnp.where(returns, 0, temp_end)

        begins = speech & ~triggered
        too_long = triggered & live & (here - start > max_speech)
        end, resume = (longest_end, longest_end + longest) if at_longest else (prev_end, next_start)
        at_pause = too_long & (end > 0)
        first = (start, jnp.where(at_pause, end, here), too_long)
        # where it is cut at the longest silence, speech went on after it; at the last one, it need not have
        open_ = triggered & (~too_long | (at_pause & (resume >= end)))
        start = jnp.where(at_pause, resume, start)
        prev_end, next_start, temp_end, longest_end, longest = (
            jnp.where(too_long, 0, x) for x in (prev_end, next_start, temp_end, longest_end, longest)
        )

        silent = silent & open_
        temp_end = jnp.where(silent & (temp_end == 0), here, temp_end)
        silence = here - temp_end
        prev_end = jnp.where(silent & (silence > cut_silence), temp_end, prev_end)
        ends = silent & (silence >= min_silence)
        second = (start, temp_end, ends & (temp_end - start > min_speech))

        start = jnp.where(begins, here, start)
        kept = (jnp.where(ends, 0, x) for x in (temp_end, prev_end, next_start, longest_end, longest))
        finished = tuple(jnp.stack(pair) for pair in zip(first, second, strict=True))
        return _Walk(begins | (open_ & ~ends), start, *kept), finished

    zero = jnp.int32(0)
    here = CHUNK * jnp.arange(steps, dtype=jnp.int32)
    walk, (starts, ends, finished) = lax.scan(step, _Walk(jnp.bool_(False), *[zero] * 6), (speech, silent, here))
    last = (walk.start, length, walk.triggered & (length - walk.start > min_speech))
    starts, ends, finished = (jnp.append(x, y) for x, y in zip((starts, ends, finished), last, strict=True))
    # one more than asked for, since where a segment ends depends on where the next one begins
    found = gm.compact({"start": starts, "end": ends}, finished, capacity=capacity + 1)
    padded = gm.Padded(_widened(found, pad, length), found.valid, found.count)
    return padded.compact(padded.valid, capacity=capacity, on_overflow=on_overflow)


def _widened(found: gm.Padded[dict[str, jax.Array]], pad: int, length: jax.Array) -> dict[str, jax.Array]:
    """Starts earlier and ends later by `pad`, or by half of the silence between two where that is less."""
    start, end = found.values["start"], found.values["end"]
    silence = start[1:] - end[:-1]
    between = jnp.where(silence < 2 * pad, silence // 2, pad)
    before = jnp.concatenate([jnp.full(1, pad, jnp.int32), between])
    after = jnp.concatenate([between, jnp.full(1, pad, jnp.int32)])
    last = jnp.arange(len(start)) == found.count - 1
    close = jnp.append(silence < 2 * pad, False) & ~last
    widened = jnp.where(close, end + after, jnp.minimum(length, end + pad))
    return {"start": jnp.maximum(0, start - before), "end": widened}


def _samples(name: str, milliseconds: int) -> int:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | np.integer):
        raise TypeError(f"{name} is {milliseconds!r}, and an integer was wanted; round it")
    if milliseconds < 0:
        raise ValueError(f"{name} is {milliseconds}, and milliseconds of at least 0 were wanted")
    return SAMPLING_RATE // 1000 * int(milliseconds)


def _least_from(threshold: float, dtype: jnp.dtype) -> np.ndarray:
    """The least number of this dtype that is at least `threshold`: it stands on the same side of each probability."""
    nearest = np.asarray(threshold, dtype)
    return nearest if float(nearest) >= threshold else np.nextafter(nearest, np.asarray(np.inf, dtype))
