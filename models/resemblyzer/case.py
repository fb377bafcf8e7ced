"""Resemblyzer's speaker encoder on synthetic speech of several lengths, with its checkpoint."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from flax import nnx
from graphmode.compare import Case

from ..optimizers import adamw
from ..synthetic_speech import utterance
from .model import VoiceEncoder

SAMPLES = 32000  # room for two windows
SECOND = 31520  # the least number of samples that have two


class Embedder(VoiceEncoder):
    """`[B, N]` and lengths `[B]` -> embeddings `[B, 256]` and numbers of windows `[B]`."""

    def __call__(self, wavs: jax.Array, lengths: jax.Array) -> tuple[jax.Array, jax.Array]:  # type: ignore[override]
        found = self.embed_utterances(wavs, lengths)
        return found.embedding, found.count


def utterances(rng: np.random.Generator, lengths: Any, samples: int = SAMPLES):
    """Speech at several pitches; what stands beyond the lengths is speech too, which nobody may hear."""
    spoken = [utterance(rng, seconds=samples / 16000, pitch=rng.uniform(90, 250)).audio for _ in lengths]
    return np.stack(spoken), np.asarray(lengths, np.int64)


def _reference():
    from .reference import VoiceEncoder

    return VoiceEncoder()


def _weights():
    from .reference import pretrained_weights

    return pretrained_weights()


def _model(rngs: nnx.Rngs) -> Embedder:
    return Embedder(rngs=rngs)


CASE = Case(
    name="resemblyzer",
    summary="as many windows as the length asks for become a mask over those that fit into the buffer",
    reference=_reference,
    pretrained=_weights,
    model=_model,
    inputs=lambda rng: utterances(rng, rng.integers(8000, 80001, 4), samples=80000),
    check_inputs=lambda rng: utterances(rng, [SAMPLES]),
    edge_inputs={
        "a second window that is just too short": lambda rng: utterances(rng, [SECOND - 1]),
        "a second window that is just long enough": lambda rng: utterances(rng, [SECOND]),
        "one sample": lambda rng: utterances(rng, [1]),
    },
    optimizer=adamw(1e-3),
    modes=("inference", "forward_backward"),
    expected={"torch.trace": "records the windows of the example's lengths"},
    sweep=lambda rng, batch: utterances(rng, rng.integers(8000, SAMPLES + 1, batch)),
    tags=("audio", "recurrent", "dynamic shape", "pretrained", "training"),
)
