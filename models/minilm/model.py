"""MiniLM as one graph: a sentence is the mean of its tokens, which a mask picks, so a batch may be ragged.

Eager code that pools `hidden[mask]` sentence by sentence has a shape for each sentence. Here every sentence of a bucket
has the bucket's length, padding is neither attended to nor averaged, and a row of padding alone is zeros: it fills up a
batch, and as many graphs are compiled as there are buckets (`sentences.py`).

Source: Reimers and Gurevych 2019, "Sentence-BERT"; Wang et al. 2020, "MiniLM"; as `sentence_transformers` runs
all-MiniLM-L6-v2: a BERT without its pooler, the mean over tokens, length 1.
"""

from __future__ import annotations

from os import PathLike

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode import nn, ops, weights
from graphmode.weights import Drop

from ..bert.model import BertConfig, BertModel
from ..config_json import read_config
from ..installed import installed_weights

WEIGHTS = (
    Drop("pooler.*", "a sentence is the mean of its tokens, not what BERT made of its first one"),
    Drop("embeddings.position_ids", "counted in the graph"),
)
FIXED = {"hidden_act": "gelu", "position_embedding_type": "absolute"}  # of what a config.json may ask


def mean_of_tokens(hidden_states: jax.Array, attention_mask: jax.Array) -> jax.Array:
    """`[B, T, D]` and `[B, T]` -> `[B, D]`; zeros for a sentence without tokens."""
    mask = attention_mask != 0
    total = ops.masked_sum(hidden_states, mask[..., None], axis=1)
    return total / jnp.maximum(mask.sum(1, keepdims=True), 1).astype(total.dtype)


class MiniLM(BertModel):
    """`[B, T]` token ids and where they are valid -> `[B, D]`, of length 1 each, zeros for a row of padding alone.

    Args:
      config: sizes.
      rngs: `params` is drawn from.

    Example:
      >>> model = MiniLM(BertConfig.tiny(), rngs=nnx.Rngs(0))
      >>> short = model(jnp.array([[5, 7]]), jnp.array([[1, 1]]))
      >>> padded = model(jnp.array([[5, 7, 0], [0, 0, 0]]), jnp.array([[1, 1, 0], [0, 0, 0]]))
      >>> bool(jnp.allclose(short[0], padded[0], atol=1e-6)), float(jnp.abs(padded[1]).max())
      (True, 0.0)
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        super().__init__(config, add_pooling_layer=False, rngs=rngs)

    def __call__(  # type: ignore[override]
        self, input_ids: jax.Array, attention_mask: jax.Array, token_type_ids: jax.Array | None = None
    ) -> jax.Array:
        hidden_states = super().__call__(input_ids, attention_mask, token_type_ids).last_hidden_state
        return nn.functional.normalize(mean_of_tokens(hidden_states, attention_mask), dim=-1)


def load(path: str | PathLike[str] | None = None, *, config: BertConfig | None = None) -> MiniLM:
    """The encoder with weights, ready for inference.

    Args:
      path: of the `state_dict` of a BERT, `.safetensors`, `.bin`, `.pt` or `.pth`, of any sizes and with or without a
        pooler; None for all-MiniLM-L6-v2 as installed.
      config: its sizes; None for those of the config.json beside the file.

    Raises:
      ImportError: where no path is given and the weights are not installed, or safetensors is not.
      ValueError: where there is no config.json, or it asks for another activation or relative positions.
      WeightsError: where the file's tensors are not the model's.
    """
    path = installed_weights("minilm") if path is None else path
    config = read_config(BertConfig, path, fixed=FIXED) if config is None else config
    model = nnx.eval_shape(lambda: MiniLM(config, rngs=nnx.Rngs(0)))
    state = weights.read(path)
    weights.load(model, state, [rule for rule in WEIGHTS if any(rule.matches(key) for key in state)])
    model.eval()
    return model
