"""g2p with its weights, both ways: known pronunciations with gradients, and a batch of words decoded in one graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flax import nnx
from graphmode.compare import Case

from ..optimizers import adamw
from . import model
from .spelling import pronounced, spelt
from .words import NEW_WORDS, dictionary, some

# What the first step makes of a state of zeros is folded into a constant, and `torch.gru_cell` adds to it in place.
FOLDED = "frozen, it writes into a constant, and each call finds what the one before left"


def _reference():
    from .reference import G2p

    return G2p()


def _decoder():
    from .reference import G2pDecoder

    return G2pDecoder()


def _weights():
    from .reference import pretrained_weights

    return pretrained_weights()


def _model(rngs: nnx.Rngs) -> model.G2p:
    return model.G2p(rngs=rngs)


def _decoding_model(rngs: nnx.Rngs) -> model.G2pDecoder:
    return model.G2pDecoder(rngs=rngs)


def asked(rng: np.random.Generator, batch: int = 8):
    return (spelt(some(rng, batch), length=16),)


def new_words(rng: np.random.Generator):
    return (spelt(NEW_WORDS),)


def readings(found: Mapping[str, np.ndarray]) -> dict[str, str]:
    """How each of the new words is pronounced."""
    return {
        word: " ".join(phonemes)
        for word, phonemes in zip(NEW_WORDS, pronounced(found["tokens"], found["lengths"]), strict=True)
    }


CASE = Case(
    name="g2p",
    summary="words of different lengths through recurrent layers: each keeps its state from its own end on",
    reference=_reference,
    pretrained=_weights,
    model=_model,
    weights=model.WEIGHTS,
    inputs=dictionary,
    edge_inputs={
        "no letter": lambda rng: (spelt(["", "knight"]), np.full((2, 1), model.SOS)),
    },
    expected={"torch.trace": FOLDED},
    optimizer=adamw(1e-3),
    modes=("inference", "forward_backward"),
    sweep=dictionary,
    tags=("language", "recurrent", "pretrained", "training"),
)

DECODE_CASE = Case(
    name="g2p_decode",
    summary="greedy decoding of a batch of words ends in the graph with the last one, each with its own length",
    reference=_decoder,
    pretrained=_weights,
    model=_decoding_model,
    weights=model.WEIGHTS,
    inputs=asked,
    edge_inputs={
        "new words": new_words,
        "no letter": lambda rng: (spelt(["", "x" * 15]),),
        "one ends late": lambda rng: (spelt(["a", "pneumonoultramicroscopicsilicovolcanoconiosis"]),),
    },
    interpret={"new words": readings},
    expected={"torch.trace": f"records when the example's words end; {FOLDED}"},
    modes=("inference",),
    sweep=asked,
    tags=("language", "recurrent", "decoding", "pretrained"),
)
