"""Masks as Hugging Face's models make them: places that are compared, two conditions in one, what is added to scores;
positions that are cut out of a table, and activations that are written out."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from told_causes import causes

WIDTH, LENGTH = 8, 7


class Attention(torch.nn.Module):
    """What is seen is neither padding nor later."""

    def __init__(self):
        super().__init__()
        self.key = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):
        places = torch.arange(x.shape[1])
        seen = (places[None, None, :] <= places[None, :, None]) & mask.bool()[:, None]
        hidden = torch.where(seen, torch.zeros((), dtype=x.dtype), torch.finfo(x.dtype).min)
        return (x @ self.key(x).transpose(-1, -2) + hidden).softmax(-1) @ x


class Port(nnx.Module):
    causal = staticmethod(lambda length: jnp.tril(jnp.ones((length, length), bool)))

    def __init__(self, rngs):
        self.key = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def seen(self, mask):
        return self.causal(mask.shape[1]) & (mask != 0)[:, None]

    def hidden(self, mask, dtype):
        return jnp.where(self.seen(mask), jnp.zeros((), dtype), jnp.finfo(dtype).min)

    def __call__(self, x, mask):
        scores = x @ self.key(x).swapaxes(-1, -2) + self.hidden(mask, x.dtype)
        return jax.nn.softmax(scores, -1) @ x


class SeesLater(Port):
    causal = staticmethod(lambda length: jnp.ones((length, length), bool))


class OneLater(Port):
    causal = staticmethod(lambda length: jnp.tril(jnp.ones((length, length), bool), 1))


class SeesTheFuture(Port):
    causal = staticmethod(lambda length: jnp.triu(jnp.ones((length, length), bool)))


class SeesPadding(Port):
    def seen(self, mask):
        return jnp.broadcast_to(self.causal(mask.shape[1]), (*mask.shape, mask.shape[1]))


class OfPadding(Port):
    def seen(self, mask):
        return self.causal(mask.shape[1]) & (mask == 0)[:, None]


class OfEither(Port):
    def seen(self, mask):
        return self.causal(mask.shape[1]) | (mask != 0)[:, None]


class SeesAll(Port):
    def hidden(self, mask, dtype):
        return jnp.zeros((), dtype)


def sentences(rng):
    """The first word of each is padding in none, so that no row is hidden throughout."""
    mask = np.arange(LENGTH) < rng.integers(2, LENGTH - 1, (4, 1))
    return rng.standard_normal((4, LENGTH, WIDTH)).astype(np.float32), mask.astype(np.int64)


@pytest.mark.parametrize(
    ("port", "id", "says"),
    [
        (SeesLater, "causal-mask", "masks nothing of the future"),
        (OneLater, "causal-mask", "sets the causal mask off by one"),
        (SeesTheFuture, "causal-mask", "masks the past"),
        (SeesPadding, "mask-missing", "leaves the second of two masks out"),
        (OfPadding, "mask-polarity", "reads the"),
        (OfEither, "operator", "combines by | what the reference combines by &"),
        (SeesAll, "mask-missing", "leaves the mask out: adds nothing anywhere"),
    ],
)
def test_what_a_mask_does_not_hide_is_named(port, id, says):
    (found, *_) = causes(Attention, port, sentences)
    assert found[0] == id
    assert found[1].startswith(says)


class Window(torch.nn.Module):
    """Each place sees those that are at most two away."""

    def __init__(self):
        super().__init__()
        self.key = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        places = torch.arange(x.shape[1])
        near = (places[:, None] - places).abs() <= 2
        scores = (x @ self.key(x).transpose(-1, -2)).masked_fill(~near, torch.finfo(x.dtype).min)
        return F.dropout(scores.softmax(-1), 0.1, self.training) @ x


class NarrowerWindow(nnx.Module):
    def __init__(self, rngs):
        self.key, self.drop = nnx.Linear(WIDTH, WIDTH, rngs=rngs), nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        places = jnp.arange(x.shape[1])
        near = jnp.abs(places[:, None] - places) < 2  # nearer
        scores = jnp.where(near, x @ self.key(x).swapaxes(-1, -2), jnp.finfo(x.dtype).min)
        return self.drop(jax.nn.softmax(scores, -1)) @ x


def test_distances_that_are_compared_otherwise_are_named_and_not_how_they_are_computed():
    """Below two in a square is what is below two by itself, but for one distance."""
    words = lambda rng: (rng.standard_normal((3, LENGTH, WIDTH)),)  # noqa: E731
    assert causes(Window, NarrowerWindow, words) == [("comparison", "compares with < for <=")]


class OfWords(torch.nn.Module):
    """Words are counted from 1, and 0 is padding."""

    def __init__(self):
        super().__init__()
        self.words, self.score = torch.nn.Embedding(11, WIDTH), torch.nn.Linear(WIDTH, 1)

    def forward(self, words):
        scores = self.score(self.words(words)).squeeze(-1)
        return scores.masked_fill((words > 0) == 0, -1e10).softmax(-1)


class OfWordsAndPadding(nnx.Module):
    def __init__(self, rngs):
        self.words, self.score = nnx.Embed(11, WIDTH, rngs=rngs), nnx.Linear(WIDTH, 1, rngs=rngs)

    def __call__(self, words):
        return jax.nn.softmax(self.score(self.words(words))[..., 0])


def test_a_mask_that_is_left_out_is_not_told_as_another_comparison():
    words = lambda rng: (rng.integers(1, 11, (4, LENGTH)) * sentences(rng)[1],)  # noqa: E731
    assert causes(OfWords, OfWordsAndPadding, words) == [("mask-missing", "leaves the mask out")]


class Places(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.table = torch.nn.Embedding(11, WIDTH), torch.nn.Embedding(LENGTH + 3, WIDTH)
        self.register_buffer("places", torch.arange(LENGTH + 3)[None], persistent=False)

    def forward(self, words):
        return self.words(words) + self.table(self.places[:, : words.shape[1]])


class LaterPlaces(nnx.Module):
    def __init__(self, rngs):
        self.words, self.table = nnx.Embed(11, WIDTH, rngs=rngs), nnx.Embed(LENGTH + 3, WIDTH, rngs=rngs)

    def __call__(self, words):
        return self.words(words) + self.table(jnp.arange(words.shape[1])[None] + 2)


def test_positions_that_are_cut_out_of_a_table_later_are_named():
    found = causes(Places, LaterPlaces, lambda rng: (rng.integers(0, 11, (3, LENGTH)),))
    assert found == [("position-offset", "counts positions from +2 of the reference's")]


class WrittenOut(torch.nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.fc, self.activation = torch.nn.Linear(WIDTH, WIDTH), activation

    def forward(self, x):
        return self.activation(self.fc(x)) * 3


class Another(nnx.Module):
    def __init__(self, rngs, activation):
        self.fc, self.activation = nnx.Linear(WIDTH, WIDTH, rngs=rngs), activation

    def __call__(self, x):
        return self.activation(self.fc(x)) * 3


def by_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def exact(x):
    return jax.nn.gelu(x, approximate=False)


@pytest.mark.parametrize(
    ("activation", "another", "cause"),
    [
        (
            by_tanh,
            exact,
            (
                "gelu-form",
                "computes gelu in its exact form, by erf, where the reference computes gelu in its tanh form",
            ),
        ),
        (
            lambda x: x * torch.sigmoid(x),
            jax.nn.gelu,
            ("activation", "computes gelu in its tanh form where the reference computes silu"),
        ),
    ],
    ids=["gelu", "silu"],
)
def test_another_activation_than_the_one_that_is_written_out_is_named(activation, another, cause):
    rows = lambda rng: (rng.standard_normal((5, WIDTH)).astype(np.float32),)  # noqa: E731
    found = causes(lambda: WrittenOut(activation), lambda rngs: Another(rngs, another), rows)
    assert cause in found
