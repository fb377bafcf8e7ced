"""ALBERT as one graph: twelve layers that share one weight set are one `lax.scan`, traced and compiled once.

The body closes over the weights, which are therefore not stacked: the scan's backward pass sums their gradient over the
layers. What the original returns if asked to, attentions and logits, is returned always: XLA computes an output only
where it is used.

Source: Lan et al. 2019, "ALBERT: A Lite BERT"; names as in `transformers.AlbertForMaskedLM` with the pooler of
`transformers.AlbertModel`. Dropout is left out: two libraries cannot draw the same masks.
"""

from __future__ import annotations

from os import PathLike
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from graphmode import nn, weights
from graphmode.weights import Tied

from ..bert.model import BertConfig, BertEmbeddings
from ..config_json import read_config
from ..installed import installed_weights
from .config import FIXED, AlbertConfig

WEIGHTS = (
    Tied("predictions.decoder.weight", same_as="albert.embeddings.word_embeddings.weight"),
    Tied("predictions.decoder.bias", same_as="predictions.bias"),
)


class AlbertOutput(NamedTuple):
    """What the model gives.

    Attributes:
      logits: `[B, T, V]`, of the token at each position, masked or not.
      last_hidden_state: `[B, T, D]`.
      pooler_output: `[B, D]`, of each sequence's first token.
      attentions: `[L, B, H, T, T]`, the weights of each layer's heads: from which token, to which token.
    """

    logits: jax.Array
    last_hidden_state: jax.Array
    pooler_output: jax.Array
    attentions: jax.Array


class AlbertAttention(nnx.Module):
    """Attention, its projection, a shortcut, a norm: `[B, T, D]` -> `[B, T, D]` and the weights `[B, H, T, T]`."""

    def __init__(self, config: AlbertConfig, *, rngs: nnx.Rngs):
        size = config.hidden_size
        self.heads = config.num_attention_heads
        self.query = nn.Linear(size, size, rngs=rngs)
        self.key = nn.Linear(size, size, rngs=rngs)
        self.value = nn.Linear(size, size, rngs=rngs)
        self.dense = nn.Linear(size, size, rngs=rngs)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)

    def __call__(self, hidden_states: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        query, key, value = (self._split(layer(hidden_states)) for layer in (self.query, self.key, self.value))
        scores = query @ jnp.swapaxes(key, -1, -2) * query.shape[-1] ** -0.5
        weights = nn.functional.softmax(scores + mask, -1)  # [B, H, T, T]
        attended = jnp.swapaxes(weights @ value, 1, 2).reshape(hidden_states.shape)
        return self.LayerNorm(hidden_states + self.dense(attended)), weights

    def _split(self, x: jax.Array) -> jax.Array:
        return jnp.swapaxes(x.reshape(*x.shape[:2], self.heads, -1), 1, 2)


class AlbertLayer(nnx.Module):
    """Attention, then the feed-forward network, normalised after each: `[B, T, D]` -> `[B, T, D]` and the weights."""

    def __init__(self, config: AlbertConfig, *, rngs: nnx.Rngs):
        self.full_layer_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attention = AlbertAttention(config, rngs=rngs)
        self.ffn = nn.Linear(config.hidden_size, config.intermediate_size, rngs=rngs)
        self.ffn_output = nn.Linear(config.intermediate_size, config.hidden_size, rngs=rngs)
        self.activation = nn.GELU()

    def __call__(self, hidden_states: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        attended, weights = self.attention(hidden_states, mask)
        x = self.ffn_output(self.activation(self.ffn(attended)))
        return self.full_layer_layer_norm(x + attended), weights


class AlbertLayerGroup(nnx.Module):
    """The layers that take turns; here it is one, as in every published ALBERT."""

    def __init__(self, config: AlbertConfig, *, rngs: nnx.Rngs):
        self.albert_layers = nn.ModuleList([AlbertLayer(config, rngs=rngs)])


class AlbertTransformer(nnx.Module):
    """One layer, applied `num_hidden_layers` times: `[B, T, E]` -> `[B, T, D]` and the weights `[L, B, H, T, T]`."""

    def __init__(self, config: AlbertConfig, *, scan: bool, rngs: nnx.Rngs):
        self.times, self.scan = config.num_hidden_layers, scan
        self.embedding_hidden_mapping_in = nn.Linear(config.embedding_size, config.hidden_size, rngs=rngs)
        self.albert_layer_groups = nn.ModuleList([AlbertLayerGroup(config, rngs=rngs)])

    def __call__(self, x: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        layer = self.albert_layer_groups[0].albert_layers[0]
        x = self.embedding_hidden_mapping_in(x)
        if self.scan:
            return lax.scan(lambda x, _: layer(x, mask), x, length=self.times)
        attentions = []
        for _ in range(self.times):
            x, weights = layer(x, mask)
            attentions.append(weights)
        return x, jnp.stack(attentions)


class AlbertModel(nnx.Module):
    """The encoder with its pooler."""

    def __init__(self, config: AlbertConfig, *, scan: bool, rngs: nnx.Rngs):
        self.embeddings = BertEmbeddings(_of_embeddings(config), rngs=rngs)
        self.encoder = AlbertTransformer(config, scan=scan, rngs=rngs)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size, rngs=rngs)
        self.pooler_activation = nn.Tanh()

    def __call__(
        self, input_ids: jax.Array, mask: jax.Array, token_type_ids: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        x, attentions = self.encoder(self.embeddings(input_ids, token_type_ids), mask)
        return x, self.pooler_activation(self.pooler(x[:, 0])), attentions


class AlbertMLMHead(nnx.Module):
    """Which token stands there: `[B, T, D]` and the table of tokens `[V, E]` -> logits `[B, T, V]`."""

    def __init__(self, config: AlbertConfig, *, rngs: nnx.Rngs):
        self.bias = nnx.Param(jnp.zeros(config.vocab_size))
        self.LayerNorm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.dense = nn.Linear(config.hidden_size, config.embedding_size, rngs=rngs)
        self.activation = nn.GELU()

    def __call__(self, hidden_states: jax.Array, table: jax.Array) -> jax.Array:
        x = self.LayerNorm(self.activation(self.dense(hidden_states)))
        return x @ table.astype(x.dtype).T + self.bias[...].astype(x.dtype)


class Albert(nnx.Module):
    """The masked language model with its encoder's outputs; `WEIGHTS` says that its head is tied.

    Args:
      config: sizes.
      scan: whether the layers are one loop; False unrolls them, which computes the same. The loop compiles in two
        thirds of the time. On a CPU it runs 5 to 9 % faster in inference and 4 to 11 % slower in a training step
        (`benchmarks/scanned_layers.py`): a long training is better unrolled.
      rngs: `params` is drawn from, as transformers draws: N(0, initializer_range), biases and the padding row 0.

    Example:
      >>> model = Albert(AlbertConfig.tiny(), rngs=nnx.Rngs(0))
      >>> ids = jnp.array([[5, 7, 9], [5, 8, 0]])
      >>> outputs = model(ids, jnp.array([[1, 1, 1], [1, 1, 0]]))
      >>> outputs.logits.shape, outputs.attentions.shape
      ((2, 3, 97), (3, 2, 4, 3, 3))
    """

    def __init__(self, config: AlbertConfig, *, scan: bool = True, rngs: nnx.Rngs):
        self.config = config
        self.albert = AlbertModel(config, scan=scan, rngs=rngs)
        self.predictions = AlbertMLMHead(config, rngs=rngs)
        for _, module in nnx.iter_modules(self):
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=config.initializer_range, rngs=rngs)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        words = self.albert.embeddings.word_embeddings.weight
        words.set_value(words[...].at[config.pad_token_id].set(0))

    def __call__(
        self, input_ids: jax.Array, attention_mask: jax.Array, token_type_ids: jax.Array | None = None
    ) -> AlbertOutput:
        """Reads sequences of tokens.

        Args:
          input_ids: `[B, T]` integers below `vocab_size`.
          attention_mask: `[B, T]`, 0 where a sequence has ended.
          token_type_ids: `[B, T]` integers below `type_vocab_size`; 0 everywhere where it is None.

        Raises:
          ValueError: where there are more tokens than positions.
        """
        length, most = input_ids.shape[1], self.config.max_position_embeddings
        if length > most:
            raise ValueError(f"input_ids has shape {input_ids.shape}, and there are {most} positions; cut it")
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        table = self.albert.embeddings.word_embeddings.weight[...]
        mask = jnp.where(attention_mask != 0, 0, jnp.finfo(table.dtype).min)[:, None, None].astype(table.dtype)
        x, pooled, attentions = self.albert(input_ids, mask, token_type_ids)
        return AlbertOutput(self.predictions(x, table), x, pooled, attentions)


def _of_embeddings(config: AlbertConfig) -> BertConfig:
    """BERT's embeddings are ALBERT's, which are narrower than its layers."""
    return BertConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.embedding_size,
        num_attention_heads=1,
        max_position_embeddings=config.max_position_embeddings,
        type_vocab_size=config.type_vocab_size,
        pad_token_id=config.pad_token_id,
        layer_norm_eps=config.layer_norm_eps,
    )


def load(path: str | PathLike[str] | None = None, *, config: AlbertConfig | None = None, scan: bool = True) -> Albert:
    """The model with weights, ready for inference.

    Args:
      path: of a `state_dict` of this architecture, `.bin`, `.pt`, `.pth` or `.safetensors`, of any sizes; None for
        rxnmapper's weights that are installed.
      config: its sizes; None for those of the config.json beside the file.
      scan: whether the layers are one loop.

    Raises:
      ImportError: where no path is given and the weights are not installed, or a PyTorch file is to be read without it.
      ValueError: where there is no config.json, or it asks for another activation or several groups of layers.
      WeightsError: where the file's tensors are not the model's.
    """
    path = installed_weights("albert") if path is None else path
    config = read_config(AlbertConfig, path, fixed=FIXED) if config is None else config
    model = nnx.eval_shape(lambda: Albert(config, scan=scan, rngs=nnx.Rngs(0)))
    weights.load(model, weights.read(path), WEIGHTS)
    model.eval()
    return model
