"""g2p in eager PyTorch, with the names of the published arrays.

Source: `G2p.predict` of g2p_en 2.1.0 (Apache-2.0), which is numpy and takes one word at a time; `torch.gru_cell` is its
`grucell`. Here a batch goes through the loops together: a word that has ended keeps its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..installed import installed_weights
from .model import EOS, PAD, PUBLISHED, SOS, STEPS, G2pConfig


class Pronounced(NamedTuple):
    """Phonemes `[B, 20]`, PAD after the end; lengths `[B]`, the end counted; whether there was no end."""

    tokens: Tensor
    lengths: Tensor
    cut_short: Tensor


class G2p(nn.Module):
    """Logits `[B, L, phonemes]` of what follows each of `phonemes [B, L]`, of the words `graphemes [B, T]`."""

    fc_w: Tensor
    fc_b: Tensor
    enc_w_hh: Tensor

    def __init__(self, config: G2pConfig = PUBLISHED):
        super().__init__()
        bound = config.hidden**-0.5
        shapes = {"fc_w": (config.phonemes, config.hidden), "fc_b": (config.phonemes,)}
        for side, tokens in (("enc", config.graphemes), ("dec", config.phonemes)):
            shapes[f"{side}_emb"] = (tokens, config.embedding)
            shapes[f"{side}_w_ih"] = (3 * config.hidden, config.embedding)
            shapes[f"{side}_w_hh"] = (3 * config.hidden, config.hidden)
            shapes[f"{side}_b_ih"] = shapes[f"{side}_b_hh"] = (3 * config.hidden,)
        for name, shape in shapes.items():
            first = torch.randn(shape) if name.endswith("emb") else torch.empty(shape).uniform_(-bound, bound)
            self.register_parameter(name, nn.Parameter(first))

    def forward(self, graphemes: Tensor, phonemes: Tensor) -> Tensor:
        h = self.encode(graphemes)
        logits = []
        for t in range(phonemes.shape[1]):
            h = self.step("dec", phonemes[:, t], h)
            logits.append(h @ self.fc_w.T + self.fc_b)
        return torch.stack(logits, 1)

    def encode(self, graphemes: Tensor) -> Tensor:
        """`[B, hidden]`: the state at the end of each word."""
        h = self.enc_w_hh.new_zeros(len(graphemes), self.enc_w_hh.shape[1])
        for t in range(graphemes.shape[1]):
            letter = graphemes[:, t]
            h = torch.where((letter != PAD)[:, None], self.step("enc", letter, h), h)
        return h

    def pronounce(self, graphemes: Tensor) -> Pronounced:
        """The likeliest phoneme at each step, until every word has ended, at most 20 of them."""
        h = self.encode(graphemes)
        token = torch.full((len(graphemes),), SOS, device=graphemes.device)
        tokens = torch.full((len(graphemes), STEPS), PAD, dtype=torch.int32, device=graphemes.device)
        lengths = torch.zeros_like(token, dtype=torch.int32)
        ended = torch.zeros_like(token, dtype=torch.bool)
        for i in range(STEPS):
            h = self.step("dec", token, h)
            token = (h @ self.fc_w.T + self.fc_b).argmax(-1)
            tokens[:, i] = torch.where(ended, PAD, token)
            lengths += ~ended
            ended = ended | (token == EOS)
            if ended.all():
                break
        return Pronounced(tokens, lengths, ~ended)

    def step(self, side: str, token: Tensor, h: Tensor) -> Tensor:
        w_ih, w_hh, b_ih, b_hh = (getattr(self, f"{side}_{name}") for name in ("w_ih", "w_hh", "b_ih", "b_hh"))
        return torch.gru_cell(getattr(self, f"{side}_emb")[token], h, w_ih, w_hh, b_ih, b_hh)


class G2pDecoder(G2p):
    """`graphemes [B, T]` -> `Pronounced`."""

    def forward(self, graphemes: Tensor) -> Pronounced:  # type: ignore[override]
        return self.pronounce(graphemes)


def pretrained_weights() -> Mapping[str, Tensor]:
    """The arrays (Apache-2.0) that `g2p-en` installs.

    Raises:
      ImportError: where the package is not installed.
    """
    with np.load(installed_weights("g2p"), allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}
