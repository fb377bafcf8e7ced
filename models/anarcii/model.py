"""ANARCII as one graph: cross attention over a memory that is projected once, keys and values in a cache of fixed size.

The original generates with Python around each token, and its keys grow by `torch.cat`: a new shape at every step. Here
`gm.greedy` is a loop in the graph that ends with the last sequence; the state that it carries is a `gm.KVCache` per
layer, allocated once, in which a token is written at its place; and what does not change from token to token, the
memory's keys and values, is projected before the loop. Sequences of different lengths are a padding mask.

Source: Greenshields-Watson et al. 2025, "ANARCII: A Generalised Language Model for Antigen Receptor Numbering"; names
as in `anarcii/inference/model.py` 2.0.8. Dropout is left out, as in the reference.
"""

from __future__ import annotations

import json
import math
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

import graphmode as gm
from graphmode import nn, weights

from ..installed import installed_weights
from .config import ACCURATE, EOS, PAD, AnarciiConfig

KeysValues = tuple[jax.Array, jax.Array]


class Generated(NamedTuple):
    """What the model says of each sequence; L is the most tokens.

    Attributes:
      tokens: `[B, L]` int32, the end token last, and PAD after it.
      lengths: `[B]` int32, the end token counted.
      logits: `[B, L]`, of each token; 0 after the end.
      cut_short: `[B]` bool, whether L ended the sequence and no end token.
    """

    tokens: jax.Array
    lengths: jax.Array
    logits: jax.Array
    cut_short: jax.Array


class Written(NamedTuple):
    """What the loop carries from token to token.

    Attributes:
      caches: keys and values of the decoder's layers.
      seen: `[B, L]` bool: which tokens may be attended to, as PAD may not.
      logits: `[B, L]`, of the tokens chosen so far.
    """

    caches: list[gm.KVCache]
    seen: jax.Array
    logits: jax.Array


class Attention(nnx.Module):
    def __init__(self, config: AnarciiConfig, *, rngs: nnx.Rngs):
        self.multihead_attn = nn.MultiheadAttention(config.hid_dim, config.n_heads, batch_first=True, rngs=rngs)

    def __call__(
        self, query: jax.Array, key: jax.Array, padding: jax.Array, later: jax.Array | None = None
    ) -> jax.Array:
        return self.multihead_attn(query, key, key, padding, need_weights=False, attn_mask=later)[0]


class PositionwiseFeedforward(nnx.Module):
    def __init__(self, config: AnarciiConfig, *, rngs: nnx.Rngs):
        self.fc_1 = nn.Linear(config.hid_dim, config.pf_dim, rngs=rngs)
        self.fc_2 = nn.Linear(config.pf_dim, config.hid_dim, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.fc_2(jax.nn.relu(self.fc_1(x)))


class EncoderLayer(nnx.Module):
    """`[B, S, D]` -> `[B, S, D]`, normalised after each sum."""

    def __init__(self, config: AnarciiConfig, *, rngs: nnx.Rngs):
        self.self_attn_layer_norm = nn.LayerNorm(config.hid_dim)
        self.ff_layer_norm = nn.LayerNorm(config.hid_dim)
        self.self_attention = Attention(config, rngs=rngs)
        self.positionwise_feedforward = PositionwiseFeedforward(config, rngs=rngs)

    def __call__(self, src: jax.Array, padding: jax.Array) -> jax.Array:
        src = self.self_attn_layer_norm(src + self.self_attention(src, src, padding))
        return self.ff_layer_norm(src + self.positionwise_feedforward(src))


class DecoderLayer(nnx.Module):
    """Attends to the tokens so far, then to the memory: all tokens at once, or, with a cache, one after another."""

    def __init__(self, config: AnarciiConfig, *, rngs: nnx.Rngs):
        self.self_attn_layer_norm = nn.LayerNorm(config.hid_dim)
        self.enc_attn_layer_norm = nn.LayerNorm(config.hid_dim)
        self.ff_layer_norm = nn.LayerNorm(config.hid_dim)
        self.self_attention = Attention(config, rngs=rngs)
        self.encoder_attention = Attention(config, rngs=rngs)
        self.positionwise_feedforward = PositionwiseFeedforward(config, rngs=rngs)

    def __call__(self, trg: jax.Array, memory: jax.Array, trg_padding: jax.Array, src_padding: jax.Array) -> jax.Array:
        later = jnp.triu(jnp.ones((trg.shape[1],) * 2, bool), 1)  # [T, T], a constant of the graph
        trg = self.self_attn_layer_norm(trg + self.self_attention(trg, trg, trg_padding, later))
        trg = self.enc_attn_layer_norm(trg + self.encoder_attention(trg, memory, src_padding))
        return self.ff_layer_norm(trg + self.positionwise_feedforward(trg))

    def step(
        self, trg: jax.Array, cache: gm.KVCache, seen: jax.Array, memory: KeysValues, src_seen: jax.Array
    ) -> tuple[jax.Array, gm.KVCache]:
        """The same for the next token `[B, 1, D]` alone, and the cache with it.

        Args:
          seen, src_seen: `[B, L]` and `[B, S]` bool: what is no padding.
          memory: its keys and values.
        """
        own, other = self.self_attention.multihead_attn, self.encoder_attention.multihead_attn
        cache = cache.append(*own.project_key_value(trg))
        mask = cache.mask() & seen[:, None, None]
        attended = own.attend(own.project_query(trg), cache.keys, cache.values, mask)
        trg = self.self_attn_layer_norm(trg + attended)
        attended = other.attend(other.project_query(trg), *memory, src_seen[:, None, None])
        trg = self.enc_attn_layer_norm(trg + attended)
        return self.ff_layer_norm(trg + self.positionwise_feedforward(trg)), cache


class Encoder(nnx.Module):
    """`src [B, S]` -> the memory `[B, S, D]`."""

    def __init__(self, config: AnarciiConfig, *, rngs: nnx.Rngs):
        self.scale = math.sqrt(config.hid_dim)
        self.tok_embedding = nn.Embedding(config.input_dim, config.hid_dim, rngs=rngs)
        self.pos_embedding = nn.Embedding(config.max_length, config.hid_dim, rngs=rngs)
        self.layers = nnx.List([EncoderLayer(config, rngs=rngs) for _ in range(config.n_layers)])

    def __call__(self, src: jax.Array, padding: jax.Array) -> jax.Array:
        x = self.tok_embedding(src) * self.scale + self.pos_embedding(jnp.arange(src.shape[1]))
        for layer in self.layers:
            x = layer(x, padding)
        return x


class Decoder(nnx.Module):
    """`trg [B, T]` and the memory -> logits `[B, T, V]`."""

    def __init__(self, config: AnarciiConfig, *, rngs: nnx.Rngs):
        self.scale = math.sqrt(config.hid_dim)
        self.tok_embedding = nn.Embedding(config.output_dim, config.hid_dim, rngs=rngs)
        self.pos_embedding = nn.Embedding(config.max_length, config.hid_dim, rngs=rngs)
        self.layers = nnx.List([DecoderLayer(config, rngs=rngs) for _ in range(config.n_layers)])
        self.fc_out = nn.Linear(config.hid_dim, config.output_dim, rngs=rngs)

    def __call__(self, trg: jax.Array, memory: jax.Array, trg_padding: jax.Array, src_padding: jax.Array) -> jax.Array:
        x = self._embedded(trg, jnp.arange(trg.shape[1]))
        for layer in self.layers:
            x = layer(x, memory, trg_padding, src_padding)
        return self.fc_out(x)

    def memory_of(self, memory: jax.Array) -> list[KeysValues]:
        """Keys and values for the cross attention of each layer."""
        return [layer.encoder_attention.multihead_attn.project_key_value(memory) for layer in self.layers]

    def step(
        self, tokens: jax.Array, position: jax.Array, written: Written, memory: list[KeysValues], src_seen: jax.Array
    ) -> tuple[jax.Array, Written]:
        """Logits `[B, V]` after `tokens [B]`, which stand at `position`, 0-d."""
        seen = written.seen.at[:, position].set(tokens != PAD)
        x = self._embedded(tokens[:, None], position[None])
        caches = []
        for layer, cache, projected in zip(self.layers, written.caches, memory, strict=True):
            x, cache = layer.step(x, cache, seen, projected, src_seen)
            caches.append(cache)
        logits = self.fc_out(x[:, 0])
        best = jnp.max(logits, axis=-1).astype(written.logits.dtype)
        return logits, Written(caches, seen, written.logits.at[:, position].set(best))

    def _embedded(self, tokens: jax.Array, positions: jax.Array) -> jax.Array:
        return self.tok_embedding(tokens) * self.scale + self.pos_embedding(positions)


class Anarcii(nnx.Module):
    """The tokens of antibodies to the tokens of their numbers.

    Example:
      >>> from graphmode.models.anarcii.config import SOS
      >>> model = Anarcii(AnarciiConfig.tiny(), rngs=nnx.Rngs(0))
      >>> src = jnp.array([[SOS, 7, 12, 17, EOS], [SOS, 6, EOS, PAD, PAD]])
      >>> model(src, src).shape, jax.jit(model.generate)(src).tokens.shape
      ((2, 5, 19), (2, 5))
    """

    def __init__(self, config: AnarciiConfig = ACCURATE, *, rngs: nnx.Rngs):
        self.config = config
        self.encoder = Encoder(config, rngs=rngs)
        self.decoder = Decoder(config, rngs=rngs)

    def __call__(self, src: jax.Array, trg: jax.Array) -> jax.Array:
        """Logits of what follows each token of an answer that is known.

        Args:
          src: `[B, S]` integers, residues between SOS and EOS, then PAD.
          trg: `[B, T]` integers, SOS and the answer, then PAD.

        Returns:
          `[B, T, output_dim]`.

        Raises:
          ValueError: where there are more tokens than positions.
        """
        self._check_length("src", src)
        self._check_length("trg", trg)
        padding = src == PAD
        return self.decoder(trg, self.encoder(src, padding), trg == PAD, padding)

    def generate(self, src: jax.Array, *, max_new_tokens: int | None = None) -> Generated:
        """The likeliest token at every step, until each sequence has ended.

        Args:
          src: as in a call; its first tokens are what the answers begin with.
          max_new_tokens: L, static; as many as `src` is long where it is None, as in the original.

        Raises:
          ValueError: as a call, and where max_new_tokens is more than there are positions.
        """
        self._check_length("src", src)
        length = src.shape[1] if max_new_tokens is None else max_new_tokens
        if length > self.config.max_length:
            raise ValueError(f"max_new_tokens is {length}, and there are {self.config.max_length} positions")
        padding = src == PAD
        memory = self.decoder.memory_of(self.encoder(src, padding))
        batch, heads, _, size = memory[0][0].shape
        dtype = memory[0][0].dtype
        room = [gm.KVCache.empty(batch, heads, size, capacity=length, dtype=dtype) for _ in memory]
        nothing = Written(room, jnp.zeros((batch, length), bool), jnp.zeros((batch, length), dtype))

        def step(written: Written, tokens: jax.Array, position: jax.Array) -> tuple[jax.Array, Written]:
            return self.decoder.step(tokens, position, written, memory, ~padding)

        found = gm.greedy(step, nothing, src[:, 0], max_new_tokens=length, eos_id=EOS, pad_id=PAD)
        inside = jnp.arange(length) < found.lengths[:, None]
        return Generated(found.tokens, found.lengths, jnp.where(inside, found.state.logits, 0), found.cut_short)

    def _check_length(self, name: str, tokens: jax.Array) -> None:
        if tokens.shape[1] > self.config.max_length:
            raise ValueError(f"{name} has shape {tokens.shape}, and there are {self.config.max_length} positions")


class AnarciiGenerator(Anarcii):
    """`src [B, S]` -> `Generated`."""

    def __call__(self, src: jax.Array) -> Generated:  # type: ignore[override]
        return self.generate(src)


def load(path: str | PathLike[str] | None = None, *, n_heads: int | None = None) -> Anarcii:
    """The model with weights, ready for inference.

    Args:
      path: of a `state_dict` of this architecture, of any size, `.pt` or `.safetensors`: `anarcii` has two for
        antibodies, two for T-cell receptors and one for sharks' antibodies. None for antibodies, of two layers.
      n_heads: which the tensors do not tell; what a `.json` beside the file says where it is None, and else 4.

    Raises:
      ImportError: where no path is given and the weights are not installed, or a `.pt` is to be read without PyTorch.
      WeightsError: where the file's tensors are not the model's.
    """
    path = Path(installed_weights("anarcii") if path is None else path)
    if n_heads is None:
        sizes = path.with_suffix(".json")
        n_heads = json.loads(sizes.read_text())["HEADS"] if sizes.exists() else AnarciiConfig.n_heads
    state = weights.read(path)
    model = Anarcii(AnarciiConfig.of(state, n_heads), rngs=nnx.Rngs(0))
    weights.load(model, state)
    model.eval()
    return model
