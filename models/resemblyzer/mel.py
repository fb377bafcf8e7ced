"""The mel spectrogram that the encoder was trained on, as librosa defines it, inside the graph.

`librosa.feature.melspectrogram(y, sr=16000, n_fft=400, hop_length=160, n_mels=40)` of librosa 0.9.1 and later: frames
around every 160th sample, zeros beyond both ends, a periodic Hann window, power, and triangles of Slaney's mel scale
with unit area. Not a logarithm of it.

Source: https://librosa.org/doc/latest/generated/librosa.feature.melspectrogram.html
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

SAMPLING_RATE = 16000
WINDOW, HOP = 400, 160  # samples: 25 and 10 ms
MELS = 40

# Slaney's scale: 3 mel in 200 Hz up to 1 kHz, then 27 mel in a factor of 6.4
LINEAR_HZ, KNEE_HZ, KNEE_MEL, LOG_STEP = 200 / 3, 1000.0, 15.0, np.log(6.4) / 27


def mel_spectrogram(wav: jax.Array) -> jax.Array:
    """Power in 40 mel bands, every 10 ms.

    Computed in float32 at least, since squares of small numbers leave the range of float16.

    Args:
      wav: `[..., N]` within -1 .. 1, 16 kHz.

    Returns:
      `[..., 1 + N // 160, 40]`, in the dtype of `wav`.

    Example:
      >>> mel_spectrogram(jnp.zeros(16000)).shape
      (101, 40)
    """
    frames = 1 + wav.shape[-1] // HOP
    x = wav.astype(jnp.promote_types(wav.dtype, jnp.float32))
    reach = (frames - 1) * HOP + WINDOW
    before = WINDOW // 2
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(before, max(reach - before - wav.shape[-1], 0))])
    at = HOP * np.arange(frames)[:, None] + np.arange(WINDOW)
    spectrum = jnp.fft.rfft(x[..., at] * jnp.asarray(hann(), x.dtype))
    power = spectrum.real**2 + spectrum.imag**2
    return (power @ jnp.asarray(mel_filters().T, x.dtype)).astype(wav.dtype)


def hann() -> np.ndarray:
    """`[400]` float64: the periodic Hann window."""
    return 0.5 - 0.5 * np.cos(2 * np.pi / WINDOW * np.arange(WINDOW))


def mel_filters() -> np.ndarray:
    """`[40, 201]` float64: the weight of each bin of the spectrum in each band."""
    edges = _hertz(np.linspace(0, _mel(SAMPLING_RATE / 2), MELS + 2))
    bins = np.linspace(0, SAMPLING_RATE / 2, WINDOW // 2 + 1)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    triangles = np.maximum(0, np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)))
    return triangles * 2 / (high - low)


def _mel(hertz: float) -> float:
    return hertz / LINEAR_HZ if hertz < KNEE_HZ else KNEE_MEL + np.log(hertz / KNEE_HZ) / LOG_STEP


def _hertz(mel: np.ndarray) -> np.ndarray:
    return np.where(mel < KNEE_MEL, LINEAR_HZ * mel, KNEE_HZ * np.exp(LOG_STEP * (mel - KNEE_MEL)))
