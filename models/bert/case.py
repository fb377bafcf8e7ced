"""BERT, both ways: `transformers.BertModel` in a tiny random configuration against its port."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from flax import nnx
from graphmode.compare import Case

from ..huggingface import EXPECTED, transformers
from ..optimizers import adamw
from .model import BertConfig, BertModel

CONFIG = BertConfig.tiny()
LENGTH, POSITIONS = 13, CONFIG.max_position_embeddings


def reference(config: BertConfig = CONFIG):
    """`transformers.BertModel` with random weights; nothing is fetched.

    The dropout of its attention is a function, which only a probability of 0 switches off in training.

    Raises:
      ImportError: where transformers is not installed.
    """
    library = transformers()
    return library.BertModel(
        library.BertConfig(
            **asdict(config),
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
    )


def sentences(rng: np.random.Generator, lengths: np.ndarray, length: int, config: BertConfig = CONFIG):
    """Random tokens in two segments, then padding, as a dict of `[B, length]` int64."""
    positions = np.arange(length)
    mask = positions < lengths[:, None]
    second = positions >= rng.integers(1, lengths + 1)[:, None]
    tokens = rng.integers(1, config.vocab_size, mask.shape)
    return {
        "input_ids": np.where(mask, tokens, config.pad_token_id),
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": (second & mask).astype(np.int64),
    }


def ragged(rng: np.random.Generator, batch: int = 5):
    return sentences(rng, rng.integers(1, LENGTH + 1, batch), LENGTH)


def _model(rngs: nnx.Rngs) -> BertModel:
    return BertModel(CONFIG, rngs=rngs)


CASE = Case(
    name="bert",
    summary="ragged sentences become a mask at a fixed length, and no branch asks whether there is anything to mask",
    reference=reference,
    model=_model,
    inputs=ragged,
    edge_inputs={
        "one sentence of one token": lambda rng: sentences(rng, np.array([LENGTH, 1, 7, 12, 2]), LENGTH),
        "no padding": lambda rng: sentences(rng, np.full(5, LENGTH), LENGTH),
        "a batch of one, at every position": lambda rng: sentences(rng, np.array([POSITIONS]), POSITIONS),
        "length one": lambda rng: sentences(rng, np.ones(5, int), 1),
    },
    expected=EXPECTED,
    optimizer=adamw(1e-3),
    modes=("inference", "forward_backward"),
    sweep=ragged,
    tags=("language", "huggingface", "training"),
)
