"""Silero's voice detector on synthetic speech, and the state machine that turns its probabilities into segments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from graphmode.compare import Case

from ..optimizers import adamw
from ..synthetic_speech import utterance
from .model import SileroVAD, State
from .speech_timestamps import get_speech_timestamps_from_probs

SAMPLES = 3 * 512 - 30  # zeros fill the last chunk up
CAPACITY, MOST_SECONDS = 32, 2.5
LOOP = "unrolls the loop over chunks"
LIST = "the loop runs over a list of Python numbers"


def recording(rng: np.random.Generator, batch: int = 2, samples: int = SAMPLES, *, start: bool = False):
    """Speech, cut out of the middle, with what was heard before it; or its start, with zeros for that."""
    spoken = [utterance(rng, seconds=samples / 16000 + 0.5, pitch=rng.uniform(90, 220)).audio for _ in range(batch)]
    audio = np.stack([one[-samples:] for one in spoken])
    scale = 0.0 if start else 1.0
    return (
        audio,
        scale * rng.normal(0, 0.02, (batch, 64)),
        scale * np.tanh(rng.standard_normal((batch, 128))),
        scale * rng.standard_normal((batch, 128)),
    )


def _silence(rng: np.random.Generator):
    audio, context, *state = recording(rng)
    return np.zeros_like(audio), np.zeros_like(context), *state


def _loud(rng: np.random.Generator):
    audio, *state = recording(rng)
    return np.sign(rng.standard_normal(audio.shape)), *state


def _to_model(inputs: Any) -> tuple[jax.Array, State]:
    audio, *state = inputs
    return audio, State(*state)


def _to_reference(outputs: Any) -> tuple[jax.Array, ...]:
    probabilities, state = outputs
    return probabilities, *state


def _reference():
    from .reference import SileroVAD

    return SileroVAD()


def _weights():
    from .reference import pretrained_weights

    return pretrained_weights()


def _model(rngs: nnx.Rngs) -> SileroVAD:
    return SileroVAD(rngs=rngs)


CASE = Case(
    name="silero_vad",
    summary="state kept in attributes goes in and comes out, and only the LSTM waits in the loop over chunks",
    reference=_reference,
    pretrained=_weights,
    model=_model,
    inputs=recording,
    edge_inputs={
        "from the start": lambda rng: recording(rng, start=True),
        "silence after speech": _silence,
        "loud noise": _loud,
    },
    to_model=_to_model,
    to_reference=_to_reference,
    optimizer=adamw(1e-3),
    modes=("inference", "forward_backward"),
    expected={"torch.trace": "records the loop unrolled at the length of the example"},
    sweep=lambda rng, batch: recording(rng, batch, samples=16000),
    tags=("audio", "recurrent", "pretrained", "training"),
)


class SpeechTimestamps(nnx.Module):
    """`[T]` probabilities -> `[capacity, 2]` starts and ends, and their number."""

    def __init__(self, rngs: nnx.Rngs):
        pass

    def __call__(self, probabilities: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = get_speech_timestamps_from_probs(probabilities, capacity=CAPACITY, max_speech_duration_s=MOST_SECONDS)
        return jnp.stack([found.values["start"], found.values["end"]], axis=1), found.count


def _timestamps_reference():
    from .timestamps_reference import SpeechTimestamps

    return SpeechTimestamps(CAPACITY, MOST_SECONDS)


def probabilities(rng: np.random.Generator, chunks: int = 400):
    """A random walk of logits, so that silences and segments of all lengths come."""
    steps = rng.standard_normal(chunks)
    logits = np.cumsum(steps) - np.linspace(0, steps.sum(), chunks)
    return (1 / (1 + np.exp(-logits * rng.uniform(0.5, 3.0))),)


TIMESTAMPS = Case(
    name="speech_timestamps",
    summary="a state machine of ifs that appends to a list becomes a scan of selections and a declared capacity",
    reference=_timestamps_reference,
    model=SpeechTimestamps,
    inputs=probabilities,
    edge_inputs={
        "all speech": lambda rng: (np.full(400, 0.9),),
        "no speech": lambda rng: (np.full(400, 0.1),),
        "at the thresholds": lambda rng: (rng.choice([0.25, 0.5, 0.75], 400, p=[0.3, 0.6, 0.1]),),
        "one chunk": lambda rng: (np.array([0.9]),),
        "more segments than room": lambda rng: (np.tile(np.repeat([0.9, 0.1], 10), 40),),
    },
    modes=("inference",),
    expected={
        "torch.trace": LIST,
        "torch.script": LIST,
    },
    tags=("audio", "dynamic shape", "small"),
)
