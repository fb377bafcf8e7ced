"""A text-line reader as one graph: lines of many widths are one padded batch, and no padding reaches what is read.

The obstacle is the width. Eager code runs each line at its own; a graph has one width for a batch. White at the end is
not nothing: a convolution sees it where it would see the zeros beyond the edge, batch norm's bias makes it grow from
block to block, its statistics count it in training, and the backward half of the recurrent layer begins in it. So the
padding is set to zero before each convolution that looks at its neighbours, the statistics are those of the columns
that are there, and the recurrent layer is told the lengths. A line then has the logits that it has alone.

Source: `legere.model.CompactCRNN` of legere 0.11.0 (MIT), after Shi et al. 2015, "An End-to-End Trainable Neural
Network for Image-based Sequence Recognition"; names as in its weights.
"""

from __future__ import annotations

from os import PathLike
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from flax import nnx

import graphmode as gm
from graphmode import nn, weights

from ..installed import installed_weights
from .config import LegereConfig


class Columns(NamedTuple):
    """Lines side by side, and how much of each is there.

    Attributes:
      values: `[B, H, W, C]`; what stands from the width on means nothing.
      widths: `[B]` int32.
    """

    values: jax.Array
    widths: jax.Array

    @property
    def mask(self) -> jax.Array:
        """`[B, 1, W, 1]` bool, true where a column is."""
        return gm.lengths_to_mask(self.widths, self.values.shape[2])[:, None, :, None]

    def convolved(self, convolution: nn.Conv2d) -> Columns:
        """By a kernel of 3, padded by 1: what it sees past the end are zeros, as at the edge of an image."""
        values = convolution(jnp.where(self.mask, self.values, 0))
        return Columns(values, -(-self.widths // convolution.stride[1]))

    def normalised(self, norm: nn.BatchNorm2d) -> Columns:
        """In training by the statistics of the columns that are there."""
        return self._replace(values=norm(self.values, mask=self.mask))

    def each(self, layer: nnx.Module) -> Columns:
        """By a layer that looks at no neighbour."""
        return self._replace(values=layer(self.values))


class DepthwiseSeparableBlock(nnx.Module):
    """Filter each channel, then mix them: 3x3 and 1x1, each normalised, with a ReLU."""

    def __init__(self, in_channels: int, out_channels: int, stride: tuple[int, int], *, rngs: nnx.Rngs):
        self.depthwise = nn.Conv2d(
            in_channels, in_channels, 3, stride=stride, padding=1, groups=in_channels, bias=False, rngs=rngs
        )
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.pointwise = nn.Conv2d(in_channels, out_channels, 1, bias=False, rngs=rngs)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU()

    def __call__(self, lines: Columns) -> Columns:
        lines = lines.convolved(self.depthwise).normalised(self.bn1).each(self.relu)
        return lines.each(self.pointwise).normalised(self.bn2).each(self.relu)


class Legere(nnx.Module):
    """Lines of printed text to the logits of CTC, one step for four pixels.

    Args:
      config: sizes.
      rngs: `params` is drawn from.

    Example:
      >>> reader = Legere(LegereConfig.tiny(), rngs=nnx.Rngs(0))
      >>> reader.eval()
      >>> logits, lengths = reader(jnp.ones((2, 32, 40, 1)), jnp.array([40, 13]))
      >>> logits.shape, lengths.tolist()
      ((2, 10, 13), [10, 4])
    """

    def __init__(self, config: LegereConfig = LegereConfig(), *, rngs: nnx.Rngs):  # noqa: B008  frozen
        self.stem = nnx.List(
            [
                nn.Conv2d(1, config.stem_channels, 3, stride=2, padding=1, bias=False, rngs=rngs),
                nn.BatchNorm2d(config.stem_channels),
                nn.ReLU(),
            ]
        )
        channels = (config.stem_channels, *config.channels)
        self.blocks = nnx.List(
            DepthwiseSeparableBlock(before, after, stride, rngs=rngs)
            for before, after, stride in zip(channels, config.channels, config.strides, strict=False)
        )
        self.rnn = nn.GRU(config.channels[-1], config.hidden_size, batch_first=True, bidirectional=True, rngs=rngs)
        self.head = nn.Linear(2 * config.hidden_size, config.num_classes, rngs=rngs)

    def __call__(self, images: jax.Array, widths: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Reads lines.

        Args:
          images: `[B, 32, W, 1]` floating, black -1 to white 1.
          widths: `[B]` integers from 1 to W, how many columns of each line are there.

        Returns:
          Logits `[B, W / 4, V]`, rounded up, and lengths `[B]` int32, how many steps each line has; logits are 0 from
          there on.
        """
        convolution, norm, relu = cast(tuple[nn.Conv2d, nn.BatchNorm2d, nn.ReLU], self.stem)
        lines = Columns(images, widths).convolved(convolution).normalised(norm).each(relu)
        for block in self.blocks:
            lines = block(lines)
        steps, lengths = jnp.squeeze(lines.values, 1), lines.widths  # [B, T, C]
        logits = self.head(self.rnn(steps, lengths=lengths)[0])
        present = gm.lengths_to_mask(lengths, logits.shape[1])
        return jnp.where(present[..., None], logits, 0), lengths


def transcribe(reader: Legere, images: jax.Array, widths: jax.Array) -> gm.Transcripts:
    """The likeliest label of each step, repeats merged and blanks left out: image to labels in one graph.

    Args, beside the reader: as it takes them.

    Returns:
      `Transcripts`; `charset.text_of` spells the labels.

    Example:
      >>> reader = Legere(LegereConfig.tiny(), rngs=nnx.Rngs(0))
      >>> reader.eval()
      >>> transcribe(reader, jnp.ones((2, 32, 40, 1)), jnp.array([40, 13])).tokens.shape
      (2, 10)
    """
    logits, lengths = reader(images, widths)
    return gm.ctc_greedy(jax.nn.log_softmax(logits), lengths)


def load(path: str | PathLike[str] | None = None) -> Legere:
    """The reader with weights, ready for inference.

    Args:
      path: of a `state_dict` of this architecture, `.pt` or `.safetensors`, of any sizes, or of a checkpoint of
        legere's training; None for the weights that are installed.

    Raises:
      ImportError: where no path is given and the weights are not installed, or a `.pt` is to be read without PyTorch.
      ValueError: where the file is of another architecture.
      WeightsError: where the file's tensors are not the model's.
    """
    if path is None:
        state = weights.read(installed_weights("legere"), entry="model")
    else:
        try:
            state = weights.read(path)
        except ValueError:
            state = weights.read(path, entry="model")
    reader = Legere(LegereConfig.of(state), rngs=nnx.Rngs(0))
    weights.load(reader, state)
    reader.eval()
    return reader
