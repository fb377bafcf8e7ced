"""GPT-2, both ways: `transformers.GPT2LMHeadModel` in a tiny random configuration against its port."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from flax import nnx
from graphmode.compare import Case

from ..huggingface import EXPECTED, transformers
from ..optimizers import adamw
from .model import WEIGHTS, GPT2Config, GPT2LMHeadModel

CONFIG = GPT2Config.tiny()
LENGTH, POSITIONS = 13, CONFIG.n_positions


def reference(config: GPT2Config = CONFIG):
    """`transformers.GPT2LMHeadModel` with random weights; nothing is fetched.

    The dropout of its attention is a function, which only a probability of 0 switches off in training.

    Raises:
      ImportError: where transformers is not installed.
    """
    library = transformers()
    return library.GPT2LMHeadModel(
        library.GPT2Config(
            **asdict(config),
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="eager",
        )
    )


def texts(rng: np.random.Generator, mask: np.ndarray, config: GPT2Config = CONFIG):
    """Random tokens, at padding too, as a dict of `[B, T]` int64."""
    return {
        "input_ids": rng.integers(0, config.vocab_size, mask.shape),
        "attention_mask": mask.astype(np.int64),
    }


def padded(lengths: np.ndarray, length: int = LENGTH) -> np.ndarray:
    """`[B, length]`: which tokens are text."""
    return np.arange(length) < lengths[:, None]


def ragged(rng: np.random.Generator, batch: int = 5):
    return texts(rng, padded(rng.integers(1, LENGTH + 1, batch)))


def _model(rngs: nnx.Rngs) -> GPT2LMHeadModel:
    return GPT2LMHeadModel(CONFIG, rngs=rngs)


CASE = Case(
    name="gpt2",
    summary="a causal mask is a constant of the graph, ragged texts are one at a fixed length, a tied head is no copy",
    reference=reference,
    model=_model,
    weights=WEIGHTS,
    inputs=ragged,
    edge_inputs={
        "one text of one token": lambda rng: texts(rng, padded(np.array([LENGTH, 1, 7, 12, 2]))),
        "padding before the text": lambda rng: texts(rng, padded(np.array([LENGTH, 1, 7, 12, 2]))[:, ::-1]),
        "no padding": lambda rng: texts(rng, padded(np.full(5, LENGTH))),
        "a batch of one, at every position": lambda rng: texts(rng, padded(np.array([POSITIONS]), POSITIONS)),
        "length one": lambda rng: texts(rng, padded(np.ones(5, int), 1)),
    },
    expected=EXPECTED,
    optimizer=adamw(1e-3),
    modes=("inference", "forward_backward"),
    sweep=ragged,
    tags=("language", "huggingface", "training"),
)
