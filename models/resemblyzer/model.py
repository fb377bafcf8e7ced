"""Resemblyzer's speaker encoder as one graph: a number of windows that follows from the length becomes a mask.

The original slices an utterance into overlapping windows of 1.6 s, as many as its length asks for, and averages their
embeddings. Where a window begins does not depend on the length: only how many there are does. So all that fit into the
buffer are cut at constant places, and the mean is taken over those that count. These alone are embedded, as one batch,
of the first of a few sizes that holds them. The same compiled graph serves every length.

Source: https://github.com/resemble-ai/Resemblyzer (Apache-2.0); Wan et al. 2018, "Generalized end-to-end loss for
speaker verification".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from os import PathLike
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

import graphmode as gm
from graphmode import nn, weights

from ..installed import installed_weights
from .mel import HOP, MELS, SAMPLING_RATE, mel_spectrogram

FRAMES = 160  # of a window: 1.6 s
OF_ITS_LOSS = "similarity_"  # two numbers of the checkpoint that only the loss of its training used


class Utterance(NamedTuple):
    """What an utterance is embedded to.

    Attributes:
      embedding: `[B, 256]`, of length 1.
      partials: `[B, capacity, 256]`, of each window, 0 beyond their number.
      count: `[B]` int32, how many windows there were; where that is more than the capacity, the rest are not in
        `embedding`.
    """

    embedding: jax.Array
    partials: jax.Array
    count: jax.Array  # type: ignore[assignment]  # of a tuple


@dataclass(frozen=True)
class Slicing:
    """How an utterance is cut into windows.

    Attributes:
      rate: windows a second.
      min_coverage: the share of the last window that must be heard for it to count, unless it is the only one.
    """

    rate: float = 1.3
    min_coverage: float = 0.75

    @property
    def step(self) -> int:
        """Frames between the starts of two windows.

        Raises:
          ValueError: where rate or min_coverage is out of range.
        """
        if not 0 < self.min_coverage <= 1:
            raise ValueError(f"min_coverage is {self.min_coverage}, and a share above 0 and at most 1 was wanted")
        step = int(np.round((SAMPLING_RATE / self.rate) / HOP)) if self.rate > 0 else 0
        if not 0 < step <= FRAMES:
            raise ValueError(
                f"rate is {self.rate} windows a second, which are {step} frames apart; give "
                f"{SAMPLING_RATE / (HOP * FRAMES)} to {SAMPLING_RATE / HOP} a second"
            )
        return step

    def count(self, samples: ArrayLike) -> jax.Array:
        """How many windows an utterance of so many samples has: integers of any shape, at least 1."""
        samples = jnp.asarray(samples, jnp.int32)
        frames = -(-(samples + 1) // HOP)
        windows = -(-jnp.maximum(1, frames - FRAMES + self.step + 1) // self.step)
        heard = samples - (windows - 1) * self.step * HOP
        return jnp.where((heard < self._enough) & (windows > 1), windows - 1, windows)

    @property
    def _enough(self) -> int:
        """The least number of samples that cover a window, by the original's quotient of two floats."""
        size = FRAMES * HOP
        near = math.floor(self.min_coverage * size)
        return next(samples for samples in range(near - 1, near + 3) if samples / size >= self.min_coverage)


SLICING = Slicing()


class VoiceEncoder(nnx.Module):
    """What a voice sounds like, as a vector: mel spectrograms, or whole utterances.

    Args:
      hidden_size: of the LSTM.
      embedding_size: of the result.
      num_layers: of the LSTM.
      rngs: `params` is drawn from, as PyTorch draws.

    Example:
      >>> encoder = VoiceEncoder(8, 6, rngs=nnx.Rngs(0))
      >>> encoder.embed_utterances(jnp.ones((2, 60000)), jnp.array([30000, 60000])).count.tolist()
      [1, 4]
    """

    def __init__(self, hidden_size: int = 256, embedding_size: int = 256, num_layers: int = 3, *, rngs: nnx.Rngs):
        self.lstm = nn.LSTM(MELS, hidden_size, num_layers, batch_first=True, rngs=rngs)
        self.linear = nn.Linear(hidden_size, embedding_size, rngs=rngs)
        self.relu = nn.ReLU()

    def __call__(self, mels: jax.Array) -> jax.Array:
        """As `embed`."""
        return self.embed(mels)

    def embed(self, mels: jax.Array) -> jax.Array:
        """`[B, frames, 40]` -> `[B, 256]`, each of length 1 and without negative numbers."""
        _, (hidden, _) = self.lstm(mels)
        raw = self.relu(self.linear(hidden[-1]))
        return raw / jnp.linalg.norm(raw, axis=1, keepdims=True)

    def embed_utterances(
        self,
        wavs: jax.Array,
        lengths: jax.Array | None = None,
        slicing: Slicing = SLICING,
        *,
        capacity: int | None = None,
    ) -> Utterance:
        """Embeds utterances of different lengths: the mean of their windows' embeddings, scaled to length 1.

        Args:
          wavs: `[B, N]` within -1 .. 1, 16 kHz; what stands beyond a length is not heard.
          lengths: `[B]` integers up to `N`, samples; None where all are `N` long.
          slicing: into windows.
          capacity: the most windows of an utterance that there is room for; the first ones are kept. None for as
            many as `N` samples can have.

        Raises:
          ValueError: where wavs is no `[B, N]`, or slicing or capacity is out of range.
        """
        if wavs.ndim != 2:
            raise ValueError(f"wavs has shape {wavs.shape}, and [B, N] was wanted")
        batch, samples = wavs.shape
        most = _windows(samples, slicing)
        capacity = most if capacity is None else capacity
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}, and at least 1 was wanted")
        lengths = jnp.full(batch, samples, jnp.int32) if lengths is None else lengths
        heard = jnp.arange(samples, dtype=jnp.int32) < lengths[:, None]
        held = min(capacity, most)
        starts = slicing.step * np.arange(held)
        # the last window may reach beyond the buffer, into silence
        reach = int(starts[-1] + FRAMES) * HOP
        wavs = jnp.pad(jnp.where(heard, wavs, 0), ((0, 0), (0, max(reach - samples, 0))))
        mels = mel_spectrogram(wavs)
        windows = mels[:, starts[:, None] + np.arange(FRAMES)]  # [B, held, 160, 40]
        count = slicing.count(lengths)
        counts = jnp.arange(held, dtype=jnp.int32) < count[:, None]
        cut = gm.Padded(windows.reshape(batch * held, FRAMES, MELS), counts.reshape(-1), jnp.sum(counts))
        partials = cut.map(self.embed, batched=True, sizes=sizes(batch * held)).values
        partials = partials.reshape(batch, held, -1)
        raw = gm.masked_mean(partials, counts[..., None], axis=1)
        partials = jnp.pad(jnp.where(counts[..., None], partials, 0), ((0, 0), (0, capacity - held), (0, 0)))
        return Utterance(raw / jnp.linalg.norm(raw, axis=1, keepdims=True), partials, count)


def sizes(windows: int) -> list[int]:
    """Numbers of windows, of which the first that holds those that count is computed.

    The recurrent network is slow on few windows at a time, so these are not far apart.
    """
    return sorted({round(windows * share) for share in (0.4, 0.6, 0.8)} - {0})


def _windows(samples: int, slicing: Slicing) -> int:
    """The most windows that an utterance of at most so many samples has: the longest one has them."""
    with jax.ensure_compile_time_eval():
        return int(slicing.count(samples))


def load(path: str | PathLike[str] | None = None) -> VoiceEncoder:
    """The encoder with weights, ready for inference.

    Args:
      path: of a `state_dict` of this architecture, `.pth` or `.safetensors`, of any sizes; None for the installed
        weights.

    Raises:
      ImportError: where no path is given and the weights are not installed, or a PyTorch file is to be read without it.
      WeightsError: where the file's tensors are not the model's.
    """
    state = weights.read(installed_weights("resemblyzer"), entry="model_state") if path is None else weights.read(path)
    embedding_size, hidden_size = state["linear.weight"].shape if "linear.weight" in state else (256, 256)
    layers = sum(name.startswith("lstm.weight_hh_l") for name in state)
    model = VoiceEncoder(hidden_size, embedding_size, layers or 3, rngs=nnx.Rngs(0))
    weights.load(model, {name: value for name, value in state.items() if not name.startswith(OF_ITS_LOSS)})
    model.eval()
    return model
