"""Silero's voice detector in eager PyTorch, with the `state_dict` names of its TorchScript file, 16 kHz branch.

Source: Silero Team, https://github.com/snakers4/silero-vad (MIT). The original keeps its state in attributes and
changes them as it is called; here state goes in and comes out. Dropout is left out: two libraries cannot draw the same
masks.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..installed import installed_weights

CHUNK, CONTEXT, WINDOW, HOP = 512, 64, 256, 128  # samples
BRANCH = "_model."  # the file's names for 16 kHz begin so


class Spectrum(nn.Module):
    """`[B, N]` samples -> `[B, 129, frames]` magnitudes, by a convolution with windowed sines and cosines."""

    forward_basis_buffer: Tensor

    def __init__(self) -> None:
        super().__init__()
        frequency = torch.arange(WINDOW // 2 + 1, dtype=torch.float64)[:, None]
        phase = 2 * torch.pi / WINDOW * torch.arange(WINDOW, dtype=torch.float64)
        hann = 0.5 - 0.5 * torch.cos(phase)
        basis = torch.cat([torch.cos(frequency * phase), -torch.sin(frequency * phase)]) * hann
        self.register_buffer("forward_basis_buffer", basis[:, None].float())

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, CONTEXT), mode="reflect")[:, None]
        real, imaginary = F.conv1d(x, self.forward_basis_buffer, stride=HOP).chunk(2, dim=1)
        return torch.sqrt(real.pow(2) + imaginary.pow(2))


class EncoderBlock(nn.Module):
    """A convolution of three taps and ReLU: `[B, C, L]` -> `[B, out_channels, ceil(L / stride)]`."""

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.reparam_conv = nn.Conv1d(in_channels, out_channels, 3, stride=stride, padding=1)
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.reparam_conv(x))


class Decoder(nn.Module):
    """`[B, 128]`, and the state of the LSTM -> probability `[B, 1]`, and the state after."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTMCell(128, 128)
        self.decoder = nn.Sequential(nn.Identity(), nn.ReLU(), nn.Conv1d(128, 1, 1), nn.Sigmoid())

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, c = self.rnn(x, (h, c))
        return self.decoder(h[:, :, None])[:, 0], h, c


class SileroVAD(nn.Module):
    """A recording, chunk by chunk, from the state before it to the state after.

    `audio [B, N]` within -1 .. 1 at 16 kHz, `context [B, 64]`, `h [B, 128]`, `c [B, 128]` -> probability of speech in
    each chunk of 512 samples, `[B, chunks]`, and `context`, `h`, `c` after the last, which zeros fill up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stft = Spectrum()
        self.encoder = nn.Sequential(
            EncoderBlock(129, 128, 1), EncoderBlock(128, 64, 2), EncoderBlock(64, 64, 2), EncoderBlock(64, 128, 1)
        )
        self.decoder = Decoder()

    def forward(self, audio: Tensor, context: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        audio = F.pad(audio, (0, -audio.shape[1] % CHUNK))
        probabilities = []
        for chunk in audio.split(CHUNK, dim=1):
            x = torch.cat([context, chunk], dim=1)
            probability, h, c = self.decoder(self.encoder(self.stft(x)).squeeze(-1), h, c)
            context = chunk[:, -CONTEXT:]
            probabilities.append(probability)
        return torch.cat(probabilities, dim=1), context, h, c


def pretrained_weights() -> Mapping[str, Tensor]:
    """The 16 kHz half of the checkpoint (MIT) that `silero-vad` installs.

    Raises:
      ImportError: where the package is not installed.
    """
    state = torch.jit.load(installed_weights("silero_vad"), map_location="cpu").state_dict()
    return {name.removeprefix(BRANCH): value for name, value in state.items() if name.startswith(BRANCH)}
