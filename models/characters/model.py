"""The same model in Flax."""

import jax
from flax import nnx

import graphmode as gm

from .text import SYMBOLS


class CharacterModel(nnx.Module):
    """Symbols `[B, T]` -> logits of the next ones `[B, T, 128]`."""

    def __init__(self, rngs: nnx.Rngs, features: int = 32, hidden: int = 128):
        self.embedding = gm.nn.Embedding(SYMBOLS, features, rngs=rngs)
        self.lstm = gm.nn.LSTM(features, hidden, batch_first=True, rngs=rngs)
        self.head = gm.nn.Linear(hidden, SYMBOLS, rngs=rngs)

    def __call__(self, symbols: jax.Array) -> jax.Array:
        hidden, _ = self.lstm(self.embedding(symbols))
        return self.head(hidden)
