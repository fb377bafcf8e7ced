"""ANARCII with its weights, both ways: a known answer with gradients, and generation to the end symbol in one graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flax import nnx
from graphmode.compare import Case

from ..optimizers import adamw
from . import model
from .sequences import SEQUENCES, numbered, varied
from .vocabulary import labels, tokenise

LENGTH = 140


def _reference():
    from .reference import Anarcii

    return Anarcii()


def _generator():
    from .reference import AnarciiGenerator

    return AnarciiGenerator()


def _weights():
    from .reference import pretrained_weights

    return pretrained_weights()


def _model(rngs: nnx.Rngs) -> model.Anarcii:
    return model.Anarcii(rngs=rngs)


def _generating_model(rngs: nnx.Rngs) -> model.AnarciiGenerator:
    return model.AnarciiGenerator(rngs=rngs)


def answered(rng: np.random.Generator, batch: int = 8, length: int = LENGTH):
    return numbered(rng, varied(rng, batch, longest=length - 2), length)


def asked(rng: np.random.Generator, batch: int = 8, length: int = LENGTH):
    return (tokenise(varied(rng, batch, longest=length - 2), length=length),)


def known(rng: np.random.Generator):
    return (tokenise(list(SEQUENCES.values()), length=LENGTH),)


def readings(generated: Mapping[str, np.ndarray]) -> dict[str, str]:
    """The chain's type of each known domain, and how many of its residues have a number."""
    rows = labels(generated["tokens"], generated["lengths"])
    return {
        name: f"{row[0]}, {sum(label.isdigit() for label in row)} residues numbered"
        for name, row in zip(SEQUENCES, rows, strict=True)
    }


CASE = Case(
    name="anarcii",
    summary="an encoder-decoder transformer: masks of padding and of what comes later, over ragged antibodies",
    reference=_reference,
    pretrained=_weights,
    model=_model,
    inputs=answered,
    check_inputs=lambda rng: answered(rng, 3, 32),
    edge_inputs={
        "no residue": lambda rng: numbered(rng, ["", "EVQL", "ACDEFGHIKLMNPQRSTVWXY"], 32),
        "every position": lambda rng: numbered(rng, ["EVQLVESGGG" * 20], 210),
    },
    optimizer=adamw(1e-3),
    modes=("inference", "forward_backward"),
    sweep=answered,
    tags=("language", "pretrained", "training"),
)

DECODE_CASE = Case(
    name="anarcii_decode",
    summary="greedy decoding ends inside the graph, over a cache of fixed size and a memory that is projected once",
    reference=_generator,
    pretrained=_weights,
    model=_generating_model,
    inputs=asked,
    check_inputs=lambda rng: asked(rng, 3, 32),
    edge_inputs={
        "known domains": known,
        "no residue": lambda rng: (tokenise(["", "EVQL", "MKTAYIAKQRQISFVKSHFSRQLEERLG"], length=32),),
    },
    interpret={"known domains": readings},
    modes=("inference",),
    sweep=asked,
    tags=("language", "decoding", "pretrained"),
)
