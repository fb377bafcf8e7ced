"""ANARCII in eager PyTorch, with the `state_dict` names of the published checkpoints.

Source: `anarcii/inference/model.py` and the loop of `model_runner.py` of anarcii 2.0.8 (BSD-3): the transformer of
Vaswani et al. 2017, "Attention Is All You Need", with learnt positions. The keys and values of the tokens so far grow
by `torch.cat`, unprojected, as in the original. Dropout is left out: two libraries cannot draw the same masks. The
original goes on to the full length; here the loop ends with the last sequence, and a sequence that has ended stays so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..installed import installed_weights
from .config import ACCURATE, EOS, PAD, AnarciiConfig


class Generated(NamedTuple):
    """Tokens `[B, L]`, PAD after the end; lengths `[B]`, the end counted; the logit of each token, 0 after the end."""

    tokens: Tensor
    lengths: Tensor
    logits: Tensor
    cut_short: Tensor


class Attention(nn.Module):
    def __init__(self, config: AnarciiConfig):
        super().__init__()
        self.multihead_attn = nn.MultiheadAttention(config.hid_dim, config.n_heads, batch_first=True)

    def forward(self, query: Tensor, key: Tensor, padding: Tensor, later: Tensor | None = None) -> Tensor:
        attended, _ = self.multihead_attn(query, key, key, key_padding_mask=padding, attn_mask=later)
        return attended


class PositionwiseFeedforward(nn.Module):
    def __init__(self, config: AnarciiConfig):
        super().__init__()
        self.fc_1 = nn.Linear(config.hid_dim, config.pf_dim)
        self.fc_2 = nn.Linear(config.pf_dim, config.hid_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc_2(torch.relu(self.fc_1(x)))


class EncoderLayer(nn.Module):
    def __init__(self, config: AnarciiConfig):
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(config.hid_dim)
        self.ff_layer_norm = nn.LayerNorm(config.hid_dim)
        self.self_attention = Attention(config)
        self.positionwise_feedforward = PositionwiseFeedforward(config)

    def forward(self, src: Tensor, padding: Tensor) -> Tensor:
        src = self.self_attn_layer_norm(src + self.self_attention(src, src, padding))
        return self.ff_layer_norm(src + self.positionwise_feedforward(src))


class DecoderLayer(nn.Module):
    def __init__(self, config: AnarciiConfig):
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(config.hid_dim)
        self.enc_attn_layer_norm = nn.LayerNorm(config.hid_dim)
        self.ff_layer_norm = nn.LayerNorm(config.hid_dim)
        self.self_attention = Attention(config)
        self.encoder_attention = Attention(config)
        self.positionwise_feedforward = PositionwiseFeedforward(config)

    def forward(
        self, trg: Tensor, memory: Tensor, trg_padding: Tensor, src_padding: Tensor, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the layer gives for `trg [B, T, D]`, and all that it was given so far, which is `past` next time."""
        seen = trg if past is None else torch.cat([past, trg], dim=1)
        length, total = trg.shape[1], seen.shape[1]
        later = torch.ones(total, total, dtype=torch.bool, device=trg.device).triu(1)[total - length :]
        trg = self.self_attn_layer_norm(trg + self.self_attention(trg, seen, trg_padding, later))
        trg = self.enc_attn_layer_norm(trg + self.encoder_attention(trg, memory, src_padding))
        return self.ff_layer_norm(trg + self.positionwise_feedforward(trg)), seen


class Encoder(nn.Module):
    def __init__(self, config: AnarciiConfig):
        super().__init__()
        self.scale = math.sqrt(config.hid_dim)
        self.tok_embedding = nn.Embedding(config.input_dim, config.hid_dim)
        self.pos_embedding = nn.Embedding(config.max_length, config.hid_dim)
        self.layers = nn.ModuleList([EncoderLayer(config) for _ in range(config.n_layers)])

    def forward(self, src: Tensor, padding: Tensor) -> Tensor:
        positions = torch.arange(src.shape[1], device=src.device)
        x = self.tok_embedding(src) * self.scale + self.pos_embedding(positions)
        for layer in self.layers:
            x = layer(x, padding)
        return x


class Decoder(nn.Module):
    def __init__(self, config: AnarciiConfig):
        super().__init__()
        self.scale = math.sqrt(config.hid_dim)
        self.tok_embedding = nn.Embedding(config.output_dim, config.hid_dim)
        self.pos_embedding = nn.Embedding(config.max_length, config.hid_dim)
        self.layers = nn.ModuleList([DecoderLayer(config) for _ in range(config.n_layers)])
        self.fc_out = nn.Linear(config.hid_dim, config.output_dim)

    def forward(
        self,
        trg: Tensor,
        memory: Tensor,
        trg_padding: Tensor,
        src_padding: Tensor,
        past: list[Tensor] | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        start = 0 if past is None else past[0].shape[1]
        positions = torch.arange(start, start + trg.shape[1], device=trg.device)
        x = self.tok_embedding(trg) * self.scale + self.pos_embedding(positions)
        kept = []
        for i, layer in enumerate(self.layers):
            x, seen = layer(x, memory, trg_padding, src_padding, None if past is None else past[i])
            kept.append(seen)
        return self.fc_out(x), kept


class Anarcii(nn.Module):
    """Logits `[B, T, output_dim]` of what follows each of `trg [B, T]`, of the sequences `src [B, S]`."""

    def __init__(self, config: AnarciiConfig = ACCURATE):
        super().__init__()
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def forward(self, src: Tensor, trg: Tensor) -> Tensor:
        padding = src == PAD
        return self.decoder(trg, self.encoder(src, padding), trg == PAD, padding)[0]

    def generate(self, src: Tensor) -> Generated:
        """The likeliest token at each step, from the start token of `src [B, S]` on, at most S of them."""
        padding = src == PAD
        memory = self.encoder(src, padding)
        trg, past = src[:, :1], None
        ended = torch.zeros(len(src), dtype=torch.bool, device=src.device)
        lengths, logits = torch.zeros_like(ended, dtype=torch.int32), []
        while trg.shape[1] <= src.shape[1] and not ended.all():
            scores, past = self.decoder(trg[:, -1:], memory, trg == PAD, padding, past)
            best, token = scores[:, -1].max(-1)
            lengths += ~ended
            logits.append(torch.where(ended, 0, best))
            trg = torch.cat([trg, torch.where(ended, PAD, token).to(trg.dtype)[:, None]], dim=1)
            ended = ended | (token == EOS)
        tokens = torch.full_like(src, PAD, dtype=torch.int32)
        tokens[:, : trg.shape[1] - 1] = trg[:, 1:]
        each = torch.zeros(src.shape, dtype=memory.dtype, device=src.device)
        each[:, : len(logits)] = torch.stack(logits, 1)
        return Generated(tokens, lengths, each, ~ended)


class AnarciiGenerator(Anarcii):
    """`src [B, S]` -> `Generated`."""

    def forward(self, src: Tensor) -> Generated:  # type: ignore[override]
        return self.generate(src)


def pretrained_weights() -> Mapping[str, Tensor]:
    """The antibody model of two layers (BSD-3) that `anarcii` installs.

    Raises:
      ImportError: where the package is not installed.
    """
    return torch.load(installed_weights("anarcii"), map_location="cpu", weights_only=True)
