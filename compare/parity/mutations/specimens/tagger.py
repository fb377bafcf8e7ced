"""A tagger of sequences: a bidirectional LSTM, a GRU of two layers, tags for each step and one for the whole."""

from __future__ import annotations

import jax
import torch
from flax import nnx

import graphmode as gm

from ....case import Case

WORDS, FEATURES, SIZE, HIDDEN = 13, 5, 4, 7


class Reference(torch.nn.Module):
    """Words `[B, T]`, a first state `[2, B, 7]` -> tags `[B, T, 9]`, a class `[B, 3]`, the last states `[2, B, 7]`."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, FEATURES)
        self.lstm = torch.nn.LSTM(FEATURES, SIZE, batch_first=True, bidirectional=True)
        self.gru = torch.nn.GRU(2 * SIZE, HIDDEN, num_layers=2, batch_first=True)
        self.rnn = torch.nn.RNN(HIDDEN, HIDDEN, batch_first=True)
        self.tags = torch.nn.Linear(HIDDEN, 9)
        self.whole = torch.nn.Linear(HIDDEN, 3)

    def forward(self, words: torch.Tensor, first: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, _ = self.lstm(self.embed(words))
        x, last = self.gru(x, first)
        x, _ = self.rnn(x)
        return self.tags(x), self.whole(x[:, -1]), last


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.embed = gm.nn.Embedding(WORDS, FEATURES, rngs=rngs)
        self.lstm = gm.nn.LSTM(FEATURES, SIZE, batch_first=True, bidirectional=True, rngs=rngs)
        self.gru = gm.nn.GRU(2 * SIZE, HIDDEN, num_layers=2, batch_first=True, rngs=rngs)
        self.rnn = gm.nn.RNN(HIDDEN, HIDDEN, batch_first=True, rngs=rngs)
        self.tags = gm.nn.Linear(HIDDEN, 9, rngs=rngs)
        self.whole = gm.nn.Linear(HIDDEN, 3, rngs=rngs)

    def last(self, x: jax.Array) -> jax.Array:
        return x[:, -1]

    def __call__(self, words: jax.Array, first: jax.Array) -> tuple[jax.Array, ...]:
        x, _ = self.lstm(self.embed(words))
        x, last = self.gru(x, first)
        x, _ = self.rnn(x)
        return self.tags(x), self.whole(self.last(x)), last


CASE = Case(
    name="tagger",
    summary=__doc__.splitlines()[0],
    reference=Reference,
    model=Port,
    inputs=lambda rng: (rng.integers(0, WORDS, (3, 6)), rng.standard_normal((2, 3, HIDDEN))),
)
