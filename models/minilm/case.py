"""MiniLM on sentences: a mask at a fixed length for the attention and for the mean, with real weights."""

from __future__ import annotations

import numpy as np
from flax import nnx
from graphmode.compare import Case

from ..bert.model import BertConfig
from ..optimizers import adamw
from .model import WEIGHTS, MiniLM
from .sentences import installed_tokenizer

CONFIG = BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)  # of all-MiniLM-L6-v2
LENGTH, BATCH = 12, 3
SENTENCES = (
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "A cheetah is running behind its prey.",
    "The spotted cat chases an antelope across the savanna.",
    "Graphs are compiled once.",
)


def ids(rng: np.random.Generator, lengths: np.ndarray, length: int, config: BertConfig = CONFIG):
    """Random tokens in two segments, then padding, as a dict of `[B, length]` int64."""
    positions = np.arange(length)
    mask = positions < lengths[:, None]
    second = positions >= rng.integers(1, np.maximum(lengths, 1) + 1)[:, None]
    tokens = rng.integers(1, config.vocab_size, mask.shape)
    return {
        "input_ids": np.where(mask, tokens, config.pad_token_id),
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": (second & mask).astype(np.int64),
    }


def ragged(rng: np.random.Generator, batch: int = BATCH):
    return ids(rng, rng.integers(2, LENGTH + 1, batch), LENGTH)


def sentences(rng: np.random.Generator):
    """`SENTENCES` by the installed tokenizer; random tokens where random weights make those mean as much."""
    from graphmode.ops import pad_sequences

    try:
        batch = pad_sequences(installed_tokenizer().encode(SENTENCES))
    except ImportError:
        return ragged(rng, len(SENTENCES))
    tokens = batch.values.astype(np.int64)
    return {"input_ids": tokens, "attention_mask": batch.mask.astype(np.int64), "token_type_ids": 0 * tokens}


def readings(vectors: np.ndarray) -> dict[str, str]:
    """For each of `SENTENCES` the other one that is most like it, and the cosine, from `[5, D]` vectors."""
    cosines = np.asarray(vectors) @ np.asarray(vectors).T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(1)
    return {SENTENCES[i]: f"{cosines[i, j]:.2f} {SENTENCES[j]}" for i, j in enumerate(nearest)}


def reference(config: BertConfig = CONFIG):
    from .reference import MiniLM as Reference

    return Reference(config)


def _weights():
    from .reference import pretrained_weights

    return pretrained_weights()


def _model(rngs: nnx.Rngs) -> MiniLM:
    return MiniLM(CONFIG, rngs=rngs)


CASE = Case(
    name="minilm",
    summary="ragged sentences become buckets and masks, and a masked mean makes one vector of each",
    reference=reference,
    pretrained=_weights,
    model=_model,
    weights=WEIGHTS,
    inputs=ragged,
    edge_inputs={
        "sentences": sentences,
        "one sentence of one token": lambda rng: ids(rng, np.array([LENGTH, 1, 7]), LENGTH),
        "no padding": lambda rng: ids(rng, np.full(BATCH, LENGTH), LENGTH),
        "a row of padding alone": lambda rng: ids(rng, np.array([5, 0, LENGTH]), LENGTH),
    },
    optimizer=adamw(1e-3),
    modes=("inference", "forward_backward"),
    interpret={"sentences": readings},
    sweep=ragged,
    tags=("language", "pretrained", "training"),
)
