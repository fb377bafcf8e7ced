"""Mixtral, both ways: `transformers.MixtralForCausalLM` in a tiny random configuration against its port."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import numpy as np
from flax import nnx
from graphmode.compare import Case

from ..gpt2.case import padded
from ..huggingface import EXPECTED, transformers
from ..optimizers import adamw
from .experts import Dispatch
from .model import MixtralConfig, MixtralForCausalLM

CONFIG = MixtralConfig.tiny()
LENGTH, POSITIONS = 13, CONFIG.max_position_embeddings


def reference(config: MixtralConfig = CONFIG, experts: str = "eager"):
    """`transformers.MixtralForCausalLM` with random weights; nothing is fetched.

    Args:
      experts: how the original runs them: `"eager"` loops over those that were picked, `"batched_mm"` gathers the
        weights of each token's.

    Raises:
      ImportError: where transformers is not installed.
    """
    library = transformers()
    sizes = asdict(config)
    theta = sizes.pop("rope_theta")
    return library.MixtralForCausalLM(
        library.MixtralConfig(
            **sizes,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            output_router_logits=True,
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="eager",
            experts_implementation=experts,
        )
    )


def texts(rng: np.random.Generator, mask: np.ndarray, config: MixtralConfig = CONFIG):
    """Random tokens, at padding too, as a dict of `[B, T]` int64."""
    return {
        "input_ids": rng.integers(0, config.vocab_size, mask.shape),
        "attention_mask": mask.astype(np.int64),
    }


def ragged(rng: np.random.Generator, batch: int = 5):
    return texts(rng, padded(rng.integers(1, LENGTH + 1, batch), LENGTH))


def _model(dispatch: Dispatch):
    def build(rngs: nnx.Rngs) -> MixtralForCausalLM:
        return MixtralForCausalLM(CONFIG, dispatch=dispatch, rngs=rngs)

    return build


CASE = Case(
    name="mixtral",
    summary="experts on the tokens that chose them: all on all under a mask, or blocks of rows of one expert each",
    reference={name: partial(reference, experts=name) for name in ("eager", "batched_mm")},
    model={"all": _model("all"), "blocks": _model("blocks")},
    inputs=ragged,
    edge_inputs={
        "one text of one token": lambda rng: texts(rng, padded(np.array([LENGTH, 1, 7, 12, 2]), LENGTH)),
        "padding before the text": lambda rng: texts(rng, padded(np.array([LENGTH, 1, 7, 12, 2]), LENGTH)[:, ::-1]),
        "no padding": lambda rng: texts(rng, padded(np.full(5, LENGTH), LENGTH)),
        "a batch of one, at every position": lambda rng: texts(rng, padded(np.array([POSITIONS]), POSITIONS)),
        "length one": lambda rng: texts(rng, padded(np.ones(5, int), 1)),
        "one token all over": lambda rng: {
            **texts(rng, padded(np.full(3, LENGTH), LENGTH)),
            "input_ids": np.full((3, LENGTH), 7),
        },
    },
    expected=EXPECTED,
    optimizer=adamw(1e-3),
    modes=("inference", "forward_backward"),
    sweep=ragged,
    tags=("language", "huggingface", "experts", "training"),
)
