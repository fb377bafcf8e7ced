"""The text-line reader in eager PyTorch, with the `state_dict` names of the package legere: a list, and no padding.

Source: `legere.model.CompactCRNN` of legere 0.11.0 (MIT), after Shi et al. 2015, "An End-to-End Trainable Neural
Network for Image-based Sequence Recognition". The original reads a batch padded with white, and what a line's
neighbours add to it changes its logits; here each line of a batch is cut to its width: it reads as it does alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ..installed import installed_weights
from .config import LegereConfig


def _normalised(norm: nn.Module, lines: list[Tensor]) -> list[Tensor]:
    """Each `[1, C, H, W]` by the statistics of all, which in training are those of the lines laid end to end."""
    return list(torch.split(norm(torch.cat(lines, 3)), [line.shape[3] for line in lines], 3))


class DepthwiseSeparableBlock(nn.Module):
    """Filter each channel, then mix them: 3x3 and 1x1, each normalised, with a ReLU."""

    def __init__(self, in_channels: int, out_channels: int, stride: tuple[int, int]):
        super().__init__()
        self.depthwise = nn.Conv2d(
            in_channels, in_channels, 3, stride=stride, padding=1, groups=in_channels, bias=False
        )
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.pointwise = nn.Conv2d(in_channels, out_channels, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU()

    def forward(self, lines: list[Tensor]) -> list[Tensor]:
        lines = [self.relu(line) for line in _normalised(self.bn1, [self.depthwise(line) for line in lines])]
        return [self.relu(line) for line in _normalised(self.bn2, [self.pointwise(line) for line in lines])]


class Legere(nn.Module):
    """Lines `[B, 1, 32, W]`, black -1 to white 1, and widths `[B]` -> logits `[B, W / 4, V]` and lengths `[B]`."""

    def __init__(self, config: LegereConfig = LegereConfig()):  # noqa: B008  frozen
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, config.stem_channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(config.stem_channels),
            nn.ReLU(),
        )
        channels = (config.stem_channels, *config.channels)
        self.blocks = nn.ModuleList(
            DepthwiseSeparableBlock(before, after, stride)
            for before, after, stride in zip(channels, config.channels, config.strides, strict=False)
        )
        self.rnn = nn.GRU(config.channels[-1], config.hidden_size, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * config.hidden_size, config.num_classes)

    def forward(self, images: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
        convolution, norm, relu = self.stem
        lines = [convolution(image[None, :, :, :width]) for image, width in zip(images, widths.tolist(), strict=True)]
        lines = [relu(line) for line in _normalised(norm, lines)]
        for block in self.blocks:
            lines = block(lines)
        sequences = [line.squeeze(2).transpose(1, 2) for line in lines]  # [1, T, C]
        logits = [self.head(self.rnn(sequence)[0])[0] for sequence in sequences]
        lengths = torch.tensor([len(line) for line in logits], device=images.device)
        return self._padded(logits, images.shape[3]), lengths

    def _padded(self, logits: list[Tensor], width: int) -> Tensor:
        """As long as an image of this width makes them."""
        steps = (width + 3) // 4
        longest = logits[0].new_zeros(steps, logits[0].shape[1])
        return pad_sequence([longest, *logits], batch_first=True)[1:]


def pretrained_weights() -> Mapping[str, Tensor]:
    """The weights (MIT) that `legere` installs.

    Raises:
      ImportError: where the package is not installed.
    """
    return torch.load(installed_weights("legere"), map_location="cpu", weights_only=True)["model"]
