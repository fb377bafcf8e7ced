"""Silero's voice detector as one graph: state goes in and comes out, and only what needs it waits in a scan.

The original is called once for each chunk of 512 samples and keeps what it has heard in attributes. Here `step` is that
call with its state as a value, for audio that comes in live. A whole recording needs no such calls: the context of a
chunk is the end of the one before, known from the start, so spectra and convolutions of all chunks are one batch, and
the scan over chunks, which `nn.functional.lstm` is, has only the recurrent product left.

Source: Silero Team, https://github.com/snakers4/silero-vad (MIT), 16 kHz branch. Dropout is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from graphmode import nn, weights

from ..installed import installed_weights

BRANCH = "_model."  # the published file's names for 16 kHz begin so; those of 8 kHz with `_model_8k.`
STRIDES = (1, 2, 2, 1)


@dataclass(frozen=True)
class SileroConfig:
    """Sizes.

    Attributes:
      window: samples of a spectrum's window; hop, context and chunk follow from it.
      channels: of the four convolutions' outputs.
      hidden: of the LSTM.
    """

    window: int = 256
    channels: tuple[int, ...] = (128, 64, 64, 128)
    hidden: int = 128

    @property
    def bins(self) -> int:
        return self.window // 2 + 1

    @property
    def hop(self) -> int:
        return self.window // 2

    @property
    def context(self) -> int:
        """Samples that a chunk's spectra see of the chunk before."""
        return self.window // 4

    @property
    def chunk(self) -> int:
        """Samples for which there is one probability."""
        return self.window * 2

    @classmethod
    def tiny(cls) -> SileroConfig:
        return cls(window=32, channels=(6, 4, 5, 7), hidden=8)


class State(NamedTuple):
    """What is remembered between chunks.

    Attributes:
      context: `[B, 64]`, the last samples heard.
      h, c: `[B, 128]`, of the LSTM.
    """

    context: jax.Array
    h: jax.Array
    c: jax.Array


class Spectrum(nnx.Module):
    """`[B, N]` samples -> `[B, frames, bins]` magnitudes, by a convolution with windowed sines and cosines."""

    def __init__(self, config: SileroConfig):
        self.context, self.hop = config.context, config.hop
        phase = 2 * np.pi / config.window * np.arange(config.window)
        hann = 0.5 - 0.5 * np.cos(phase)
        angles = np.arange(config.bins)[:, None] * phase
        basis = np.concatenate([np.cos(angles), -np.sin(angles)]) * hann
        self.forward_basis_buffer = nnx.BatchStat(
            jnp.asarray(basis.T[:, None], jnp.float32), **weights.carries(weights.CONV)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.functional.pad(x, (0, self.context), mode="reflect")
        both = nn.functional.conv1d(x[..., None], self.forward_basis_buffer[...], stride=self.hop)
        real, imaginary = jnp.split(both, 2, axis=-1)
        return jnp.sqrt(real**2 + imaginary**2)


class EncoderBlock(nnx.Module):
    """A convolution of three taps and ReLU: `[B, L, C]` -> `[B, ceil(L / stride), out_channels]`."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, *, rngs: nnx.Rngs):
        self.reparam_conv = nn.Conv1d(in_channels, out_channels, 3, stride=stride, padding=1, rngs=rngs)
        self.activation = nn.ReLU()

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.activation(self.reparam_conv(x))


class Decoder(nnx.Module):
    """The LSTM over chunks, and a probability for each: `[B, T, C]`, `h`, `c` -> `[B, T]`, `h`, `c`."""

    def __init__(self, config: SileroConfig, *, rngs: nnx.Rngs):
        self.rnn = nn.LSTMCell(config.channels[-1], config.hidden, rngs=rngs)
        self.decoder = nn.Sequential(nn.Identity(), nn.ReLU(), nn.Conv1d(config.hidden, 1, 1, rngs=rngs), nn.Sigmoid())

    def __call__(self, x: jax.Array, h: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        cell = self.rnn
        params = [w[...] for w in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)]
        output, h, c = nn.functional.lstm(x, (h[None], c[None]), params, batch_first=True)
        return self.decoder(output)[..., 0], h[0], c[0]


class SileroVAD(nnx.Module):
    """Probability that somebody speaks, for each chunk of a recording.

    Args:
      config: sizes.
      rngs: `params` is drawn from, as PyTorch draws.

    Raises:
      ValueError: where audio, chunk or state have another shape.

    Example:
      >>> vad = SileroVAD(SileroConfig.tiny(), rngs=nnx.Rngs(0))
      >>> whole, state = vad(jnp.ones((1, 3 * 64)))
      >>> first, state = vad.step(jnp.ones((1, 64)), vad.initial_state(1))
      >>> whole.shape, bool(jnp.allclose(first, whole[:, 0]))
      ((1, 3), True)
    """

    def __init__(self, config: SileroConfig = SileroConfig(), *, rngs: nnx.Rngs):
        self.config = config
        self.stft = Spectrum(config)
        ins = (config.bins, *config.channels)
        blocks = zip(ins, config.channels, STRIDES, strict=False)
        self.encoder = nn.Sequential(*(EncoderBlock(i, o, stride, rngs=rngs) for i, o, stride in blocks))
        self.decoder = Decoder(config, rngs=rngs)

    def initial_state(self, batch: int, dtype: jnp.dtype = jnp.float32) -> State:
        """Before anything was heard: zeros."""
        h = jnp.zeros((batch, self.config.hidden), dtype)
        return State(jnp.zeros((batch, self.config.context), dtype), h, h)

    def step(self, chunk: jax.Array, state: State) -> tuple[jax.Array, State]:
        """One chunk of live audio: `[B, 512]` and the state before -> probability `[B]` and the state after."""
        if chunk.shape[-1:] != (self.config.chunk,):
            raise ValueError(f"chunk has shape {chunk.shape}, and [B, {self.config.chunk}] was wanted")
        probabilities, state = self._heard(chunk[:, None], state)
        return probabilities[:, 0], state

    def __call__(self, audio: jax.Array, state: State | None = None) -> tuple[jax.Array, State]:
        """A whole recording, or a part that goes on from an earlier one.

        Args:
          audio: `[B, N]` within -1 .. 1, 16 kHz; zeros fill the last chunk up.
          state: after the part before; None for the start.

        Returns:
          Probabilities `[B, ceil(N / 512)]`, and the state after.
        """
        if audio.ndim != 2 or not audio.shape[1]:
            raise ValueError(f"audio has shape {audio.shape}, and [B, N] with at least one sample was wanted")
        chunks = self._chunks(audio)
        return self._heard(chunks, self.initial_state(len(audio), audio.dtype) if state is None else state)

    def _chunks(self, audio: jax.Array) -> jax.Array:
        """`[B, N]` -> `[B, T, 512]`."""
        size = self.config.chunk
        return jnp.pad(audio, ((0, 0), (0, -audio.shape[1] % size))).reshape(len(audio), -1, size)

    def _heard(self, chunks: jax.Array, state: State) -> tuple[jax.Array, State]:
        """`[B, T, 512]` -> `[B, T]`: spectra and convolutions of all chunks at once, then the LSTM over them."""
        batch, steps, _ = chunks.shape
        if state.context.shape != (batch, self.config.context):
            raise ValueError(f"state is for a context of {state.context.shape}, and audio has a batch of {batch}")
        ends = chunks[:, :, -self.config.context :]
        contexts = jnp.concatenate([state.context[:, None], ends[:, :-1]], axis=1)
        x = jnp.concatenate([contexts, chunks], axis=-1)  # [B, T, 576]
        encoded = self.encoder(self.stft(x.reshape(batch * steps, -1)))
        probabilities, h, c = self.decoder(encoded.reshape(batch, steps, -1), state.h, state.c)
        return probabilities, State(ends[:, -1], h, c)


def load(path: str | PathLike[str] | None = None) -> SileroVAD:
    """The detector with weights, ready for inference.

    Args:
      path: of a `state_dict` of this architecture, `.pth` or `.safetensors`, of any sizes, or of a published `.jit`;
        None for the weights that are installed.

    Raises:
      ImportError: where no path is given and the weights are not installed, or a PyTorch file is to be read without it.
      WeightsError: where the file's tensors are not the model's.
    """
    state = weights.read(installed_weights("silero_vad") if path is None else path)
    if any(name.startswith(BRANCH) for name in state):
        state = {name.removeprefix(BRANCH): value for name, value in state.items() if name.startswith(BRANCH)}
    model = SileroVAD(_config_of(state), rngs=nnx.Rngs(0))
    weights.load(model, state)
    model.eval()
    return model


def _config_of(state: dict[str, np.ndarray]) -> SileroConfig:
    """The sizes that the tensors have; where one is missing, the published ones, and loading tells."""
    basis, recurrent = state.get("stft.forward_basis_buffer"), state.get("decoder.rnn.weight_hh")
    kernels = [state.get(f"encoder.{i}.reparam_conv.weight") for i in range(len(STRIDES))]
    if basis is None or recurrent is None or any(kernel is None for kernel in kernels):
        return SileroConfig()
    return SileroConfig(basis.shape[-1], tuple(len(kernel) for kernel in kernels), recurrent.shape[-1])  # type: ignore[arg-type]
