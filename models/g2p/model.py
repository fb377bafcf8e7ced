"""g2p as one graph: a batch of words of any length goes in, and the decoder's loop ends in the graph with the last one.

The original takes one word at a time, as many steps as it has letters, and leaves its decoder by a `break`. Here words
are padded, `nn.GRU(..., lengths=...)` keeps each one's state from its own end on, and `gm.greedy` counts how many
phonemes each has. What is published are bare arrays: `WEIGHTS` says which parameter each of them is.

Source: Park and Kim 2019, https://github.com/Kyubyong/g2p: an encoder and a decoder of one gated recurrent unit each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import graphmode as gm
from graphmode import nn, weights
from graphmode.weights import Rule

from ..installed import installed_weights

PAD, SOS, EOS = 0, 2, 3  # of phonemes; PAD of letters too
STEPS = 20

WEIGHTS = (
    Rule("fc_w", "fc.weight"),
    Rule("fc_b", "fc.bias"),
    *(
        rule
        for side, part in (("enc", "encoder"), ("dec", "decoder"))
        for rule in (
            Rule(f"{side}_emb", f"{part}.embedding.weight"),
            Rule(f"{side}_w_ih", f"{part}.gru.weight_ih_l0"),
            Rule(f"{side}_w_hh", f"{part}.gru.weight_hh_l0"),
            Rule(f"{side}_b_ih", f"{part}.gru.bias_ih_l0"),
            Rule(f"{side}_b_hh", f"{part}.gru.bias_hh_l0"),
        )
    ),
)


@dataclass(frozen=True)
class G2pConfig:
    """Sizes; the defaults are those of the published arrays.

    Attributes:
      graphemes, phonemes: tokens of either kind, special ones among them.
      embedding: features of a token.
      hidden: of the states.
    """

    graphemes: int = 29
    phonemes: int = 74
    embedding: int = 256
    hidden: int = 256

    @classmethod
    def of(cls, state: Mapping[str, np.ndarray]) -> G2pConfig:
        """The sizes of the published arrays.

        Raises:
          ValueError: where they are of another architecture.
        """
        if missing := [name for name in ("enc_emb", "fc_w") if name not in state]:
            raise ValueError(f"state has no {', '.join(missing)}; give the arrays of a g2p model")
        graphemes, embedding = state["enc_emb"].shape
        phonemes, hidden = state["fc_w"].shape
        return cls(graphemes, phonemes, embedding, hidden)


PUBLISHED = G2pConfig()


class Pronounced(NamedTuple):
    """How words are pronounced.

    Attributes:
      tokens: `[B, 20]` int32 phonemes, the end token last, and PAD after it.
      lengths: `[B]` int32, the end token counted.
      cut_short: `[B]` bool, whether 20 steps were too few for an end.
    """

    tokens: jax.Array
    lengths: jax.Array
    cut_short: jax.Array


class Recurrent(nnx.Module):
    """Tokens through an embedding and a gated recurrent unit."""

    def __init__(self, tokens: int, config: G2pConfig, *, rngs: nnx.Rngs):
        self.embedding = nn.Embedding(tokens, config.embedding, rngs=rngs)
        self.gru = nn.GRU(config.embedding, config.hidden, batch_first=True, rngs=rngs)

    def __call__(
        self, tokens: jax.Array, h: jax.Array | None = None, lengths: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """All states `[B, T, H]` and the last `[B, H]`, of tokens `[B, T]` from the state `h [B, H]` on."""
        states, last = self.gru(self.embedding(tokens), None if h is None else h[None], lengths=lengths)
        return states, last[0]

    def step(self, tokens: jax.Array, h: jax.Array) -> jax.Array:
        """The state `[B, H]` after one more token of each, `[B]`."""
        gru: Any = self.gru  # its parameters' names depend on its arguments
        cell = gru.weight_ih_l0[...], gru.weight_hh_l0[...], gru.bias_ih_l0[...], gru.bias_hh_l0[...]
        return nn.functional.gru_cell(self.embedding(tokens), h, *cell)


class G2p(nnx.Module):
    """The letters of words to phonemes.

    Example:
      >>> model = G2p(G2pConfig(hidden=8, embedding=6), rngs=nnx.Rngs(0))
      >>> words = jnp.array([[5, 3, 4, 2], [3, 2, PAD, PAD]])
      >>> model(words, jnp.array([[SOS, 45], [SOS, 10]])).shape, jax.jit(model.pronounce)(words).tokens.shape
      ((2, 2, 74), (2, 20))
    """

    def __init__(self, config: G2pConfig = PUBLISHED, *, rngs: nnx.Rngs):
        self.encoder = Recurrent(config.graphemes, config, rngs=rngs)
        self.decoder = Recurrent(config.phonemes, config, rngs=rngs)
        self.fc = nn.Linear(config.hidden, config.phonemes, rngs=rngs)

    def __call__(self, graphemes: jax.Array, phonemes: jax.Array) -> jax.Array:
        """Logits of what follows each phoneme of a pronunciation that is known.

        Args:
          graphemes: `[B, T]` integers, letters and an end token, then PAD.
          phonemes: `[B, L]` integers, SOS and the phonemes.

        Returns:
          `[B, L, phonemes]`.
        """
        states, _ = self.decoder(phonemes, self.encode(graphemes))
        return self.fc(states)

    def encode(self, graphemes: jax.Array) -> jax.Array:
        """`[B, H]`: the state at the end of each word."""
        return self.encoder(graphemes, lengths=jnp.sum(graphemes != PAD, axis=1))[1]

    def pronounce(self, graphemes: jax.Array, *, max_new_tokens: int = STEPS) -> Pronounced:
        """The likeliest phoneme at every step, until each word has ended.

        Args:
          graphemes: as in a call.
          max_new_tokens: how many at most, static; 20 in the original.
        """

        def step(h: jax.Array, tokens: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
            h = self.decoder.step(tokens, h)
            return self.fc(h), h

        start = jnp.full(graphemes.shape[0], SOS)
        options = {"max_new_tokens": max_new_tokens, "eos_id": EOS, "pad_id": PAD}
        found = gm.greedy(step, self.encode(graphemes), start, **options)
        return Pronounced(found.tokens, found.lengths, found.cut_short)


class G2pDecoder(G2p):
    """`graphemes [B, T]` -> `Pronounced`."""

    def __call__(self, graphemes: jax.Array) -> Pronounced:  # type: ignore[override]
        return self.pronounce(graphemes)


def load(path: str | PathLike[str] | None = None) -> G2p:
    """The model with weights, ready for inference.

    Args:
      path: of the arrays of a model of any size by their published names, `.npz`, `.safetensors` or `.pt`; None for
        those that are installed.

    Raises:
      ImportError: where no path is given and the weights are not installed.
      WeightsError: where the file's arrays are not the model's.
    """
    state = weights.read(installed_weights("g2p") if path is None else path)
    model = G2p(G2pConfig.of(state), rngs=nnx.Rngs(0))
    weights.load(model, state, WEIGHTS)
    model.eval()
    return model
