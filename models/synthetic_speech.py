"""Speech-like audio made from numbers: voiced syllables, hissing consonants and pauses, by source and filter.

Nobody would take it for a human, but the networks of the zoo that listen do: glottal pulses pass the formants of
vowels, and pitch, loudness and vowel move as they do in a sentence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SAMPLING_RATE = 16000

# First three formants of vowels, Hz: Peterson and Barney 1952, "Control methods used in a study of the vowels", men
VOWELS = np.array([[730, 1090, 2440], [270, 2290, 3010], [300, 870, 2240], [530, 1840, 2480], [570, 840, 2410]])
BANDWIDTHS = np.array([90.0, 110.0, 170.0])


class Utterance(NamedTuple):
    """Audio, and where somebody speaks in it.

    Attributes:
      audio: `[N]` float32 within -1 .. 1, 16 kHz.
      voiced: `[segments, 2]` int64, first sample and the one after the last of each run of syllables.
    """

    audio: np.ndarray
    voiced: np.ndarray


def utterance(rng: np.random.Generator, *, seconds: float, pitch: float = 120.0, noise: float = 0.001) -> Utterance:
    """Words of two to six syllables with pauses between them, from 0.2 to 0.9 s long, over white noise.

    Args:
      rng: everything is drawn from it.
      seconds: of the whole, above 0.
      pitch: mean fundamental frequency, Hz.
      noise: standard deviation of the noise under all of it.

    Example:
      >>> audio, voiced = utterance(np.random.default_rng(0), seconds=2.0)
      >>> audio.shape, voiced.shape[1]
      ((32000,), 2)
    """
    length = round(seconds * SAMPLING_RATE)
    audio = rng.normal(0.0, noise, length)
    voiced = []
    at = int(rng.uniform(0.1, 0.4) * SAMPLING_RATE)
    while at < length:
        word = np.concatenate([_syllable(rng, pitch) for _ in range(rng.integers(2, 7))])[: length - at]
        audio[at : at + len(word)] += word
        voiced.append((at, at + len(word)))
        at += len(word) + int(rng.uniform(0.2, 0.9) * SAMPLING_RATE)
    return Utterance(np.clip(audio, -1, 1).astype(np.float32), np.array(voiced, np.int64).reshape(-1, 2))


def _syllable(rng: np.random.Generator, pitch: float) -> np.ndarray:
    consonant = _consonant(rng, int(rng.uniform(0.03, 0.09) * SAMPLING_RATE))
    vowel = _vowel(rng, int(rng.uniform(0.1, 0.25) * SAMPLING_RATE), pitch * rng.uniform(0.85, 1.2))
    return np.concatenate([consonant, vowel])


def _consonant(rng: np.random.Generator, length: int) -> np.ndarray:
    """Noise with its low frequencies taken away by one difference."""
    return 0.03 * np.diff(rng.standard_normal(length + 1)) * np.hanning(length)


def _vowel(rng: np.random.Generator, length: int, pitch: float) -> np.ndarray:
    """A sum of harmonics that gliding formants weigh, falling by 12 dB an octave as glottal pulses do."""
    glide = np.linspace(0, 1, length)[:, None]
    first, last = VOWELS[rng.integers(len(VOWELS), size=2)]
    formants = first + (last - first) * glide
    pitch_contour = pitch * (1 + 0.1 * np.sin(np.pi * glide[:, 0]) + 0.01 * np.cumsum(rng.normal(0, 0.02, length)))
    phase = 2 * np.pi * np.cumsum(pitch_contour) / SAMPLING_RATE
    harmonics = np.arange(1, int(4000 / pitch))
    frequencies = pitch_contour[:, None] * harmonics
    gains = np.zeros_like(frequencies)
    for centre, width in zip(formants.T[..., None], BANDWIDTHS, strict=True):
        gains += 1 / np.hypot(1 - (frequencies / centre) ** 2, frequencies * width / centre**2)
    wave = (gains / harmonics**2 * np.sin(phase[:, None] * harmonics)).sum(-1)
    return rng.uniform(0.1, 0.3) * wave / np.abs(wave).max() * np.hanning(length) ** 0.5
