"""Resemblyzer's speaker encoder in eager PyTorch, with the `state_dict` names of its checkpoint.

Source: https://github.com/resemble-ai/Resemblyzer (Apache-2.0). The original computes the spectrogram by librosa and
the mean by numpy; here all of it is PyTorch, so that gradients can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..installed import installed_weights
from .mel import HOP, MELS, SAMPLING_RATE, WINDOW, hann, mel_filters

FRAMES = 160  # of a window


class VoiceEncoder(nn.Module):
    """Utterances -> what each voice sounds like.

    `wavs [B, N]` within -1 .. 1 at 16 kHz and `lengths [B]` in samples -> embeddings `[B, 256]` of length 1, and the
    number of windows that each is the mean of, `[B]` int64.
    """

    def __init__(self, hidden_size: int = 256, embedding_size: int = 256, num_layers: int = 3):
        super().__init__()
        self.lstm = nn.LSTM(MELS, hidden_size, num_layers, batch_first=True)
        self.linear = nn.Linear(hidden_size, embedding_size)
        self.relu = nn.ReLU()

    def forward(self, wavs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        embeddings, counts = [], []
        for wav, length in zip(wavs, lengths.tolist(), strict=True):
            embedding, count = self.embed_utterance(wav[: int(length)])
            embeddings.append(embedding)
            counts.append(count)
        return torch.stack(embeddings), torch.tensor(counts, device=wavs.device)

    def embed(self, mels: Tensor) -> Tensor:
        """`[windows, 160, 40]` -> `[windows, 256]`."""
        _, (hidden, _) = self.lstm(mels)
        raw = self.relu(self.linear(hidden[-1]))
        return raw / torch.norm(raw, dim=1, keepdim=True)

    def embed_utterance(self, wav: Tensor, rate: float = 1.3, min_coverage: float = 0.75) -> tuple[Tensor, int]:
        starts = partial_starts(len(wav), rate, min_coverage)
        wav = F.pad(wav, (0, max((starts[-1] + FRAMES) * HOP - len(wav), 0)))
        mel = mel_spectrogram(wav)
        windows = torch.stack([mel[start : start + FRAMES] for start in starts])
        raw = self.embed(windows).mean(0)
        return raw / torch.norm(raw), len(starts)


def partial_starts(samples: int, rate: float, min_coverage: float) -> list[int]:
    """First frames of the windows: the original's `compute_partial_slices`."""
    frames = int(np.ceil((samples + 1) / HOP))
    step = int(np.round((SAMPLING_RATE / rate) / HOP))
    starts = list(range(0, max(1, frames - FRAMES + step + 1), step))
    coverage = (samples - starts[-1] * HOP) / (FRAMES * HOP)
    return starts[:-1] if coverage < min_coverage and len(starts) > 1 else starts


def mel_spectrogram(wav: Tensor) -> Tensor:
    """`[N]` -> `[1 + N // 160, 40]`, in float32 at least."""
    x = wav.to(torch.promote_types(wav.dtype, torch.float32))
    window = torch.as_tensor(hann(), dtype=x.dtype, device=x.device)
    spectrum = torch.stft(x, WINDOW, HOP, window=window, center=True, pad_mode="constant", return_complex=True)
    power = spectrum.real**2 + spectrum.imag**2
    filters = torch.as_tensor(mel_filters(), dtype=x.dtype, device=x.device)
    return (filters @ power).T.to(wav.dtype)


def pretrained_weights() -> Mapping[str, Tensor]:
    """The checkpoint (Apache-2.0) that `resemblyzer` installs, without two numbers that only its loss used.

    Raises:
      ImportError: where the package is not installed.
    """
    state = torch.load(installed_weights("resemblyzer"), map_location="cpu", weights_only=True)["model_state"]
    return {name: value for name, value in state.items() if not name.startswith("similarity_")}
