"""ALBERT on chemical reactions: one layer twelve times, as a Python loop and as `lax.scan`."""

from __future__ import annotations

import numpy as np
from flax import nnx
from graphmode.compare import Case

from ..optimizers import adamw
from .config import AlbertConfig
from .model import WEIGHTS, Albert
from .reactions import MASKED, installed_tokenizer, readings

CONFIG = AlbertConfig()
LENGTH, BATCH = 12, 3


def sequences(rng: np.random.Generator, lengths: np.ndarray, length: int, config: AlbertConfig = CONFIG):
    """Random tokens in two parts, then padding, as a dict of `[B, length]` int64."""
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
    return sequences(rng, rng.integers(2, LENGTH + 1, batch), LENGTH)


def masked_reactions(rng: np.random.Generator):
    """`MASKED` by the installed vocabulary; random tokens where random weights make those mean as much."""
    try:
        batch = installed_tokenizer().batch(MASKED)
    except ImportError:
        return ragged(rng)
    ids = batch.values.astype(np.int64)
    return {"input_ids": ids, "attention_mask": batch.mask.astype(np.int64), "token_type_ids": np.zeros_like(ids)}


def _readings(outputs: dict[str, np.ndarray]) -> dict[str, str]:
    try:
        return readings(outputs["logits"])
    except ImportError:  # random weights read nothing
        return {}


def reference(config: AlbertConfig = CONFIG):
    from .reference import Albert as Reference

    return Reference(config)


def _weights():
    from .reference import pretrained_weights

    return pretrained_weights()


def _model(rngs: nnx.Rngs) -> Albert:
    return Albert(CONFIG, rngs=rngs)


CASE = Case(
    name="albert",
    summary="twelve layers that share one weight set are one lax.scan, which closes over the weights",
    reference=reference,
    pretrained=_weights,
    model=_model,
    weights=WEIGHTS,
    inputs=ragged,
    edge_inputs={
        "masked reactions": masked_reactions,
        "one sequence of one token": lambda rng: sequences(rng, np.array([LENGTH, 1, 7]), LENGTH),
        "no padding": lambda rng: sequences(rng, np.full(BATCH, LENGTH), LENGTH),
        "nothing but padding": lambda rng: sequences(rng, np.array([5, 0, LENGTH]), LENGTH),
    },
    optimizer=adamw(1e-3),
    modes=("inference", "forward_backward"),
    interpret={"masked reactions": _readings},
    sweep=ragged,
    tags=("language", "pretrained", "training"),
)
