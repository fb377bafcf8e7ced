"""BERT as one graph: sentences of different lengths are a mask at one length, and no branch asks what it holds.

Source: Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers"; names and arguments as in
`transformers.BertModel`. Dropout is left out: two libraries cannot draw the same masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode import nn
from graphmode.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True)
class BertConfig:
    """Sizes by the names of `transformers.BertConfig`; the defaults are those of bert-base-uncased."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    pad_token_id: int = 0
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size is {self.hidden_size}, which num_attention_heads = {self.num_attention_heads} does not "
                "divide; give a multiple"
            )

    @classmethod
    def base(cls) -> BertConfig:
        """110 million parameters."""
        return cls()

    @classmethod
    def large(cls) -> BertConfig:
        """335 million parameters."""
        return cls(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)

    @classmethod
    def tiny(cls) -> BertConfig:
        """For tests: no two axes have the same length."""
        return cls(
            vocab_size=97,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=40,
            type_vocab_size=3,
        )


class Encoded(NamedTuple):
    """What the model gives.

    Attributes:
      last_hidden_state: `[B, T, D]`.
      pooler_output: `[B, D]`, of each sentence's first token; None without a pooler.
    """

    last_hidden_state: jax.Array
    pooler_output: jax.Array | None


class BertEmbeddings(nnx.Module):
    """What a token is, where it stands and which sentence it is of, added and normalised: `[B, T]` -> `[B, T, D]`."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        size = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_token_id, rngs=rngs)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, size, rngs=rngs)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size, rngs=rngs)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)

    def __call__(self, input_ids: jax.Array, token_type_ids: jax.Array) -> jax.Array:
        positions = jnp.arange(input_ids.shape[1])[None]  # [1, T]: padding counts, too
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.LayerNorm(x + self.position_embeddings(positions))


class BertSelfAttention(nnx.Module):
    """Every token attends to every token that the mask admits, in several heads: `[B, T, D]` -> `[B, T, D]`."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        size = config.hidden_size
        self.heads = config.num_attention_heads
        self.query = nn.Linear(size, size, rngs=rngs)
        self.key = nn.Linear(size, size, rngs=rngs)
        self.value = nn.Linear(size, size, rngs=rngs)

    def __call__(self, hidden_states: jax.Array, attention_mask: jax.Array) -> jax.Array:
        query, key, value = (
            self._split(projected)
            for projected in (self.query(hidden_states), self.key(hidden_states), self.value(hidden_states))
        )
        attended = scaled_dot_product_attention(query, key, value, attention_mask)  # [B, H, T, D / H]
        return jnp.swapaxes(attended, 1, 2).reshape(hidden_states.shape)

    def _split(self, x: jax.Array) -> jax.Array:
        return jnp.swapaxes(x.reshape(*x.shape[:2], self.heads, -1), 1, 2)


class BertSelfOutput(nnx.Module):
    """A projection, added to what went into the attention, normalised."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, rngs=rngs)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def __call__(self, hidden_states: jax.Array, input_tensor: jax.Array) -> jax.Array:
        return self.LayerNorm(self.dense(hidden_states) + input_tensor)


class BertAttention(nnx.Module):
    """Attention with its projection and shortcut."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.self = BertSelfAttention(config, rngs=rngs)
        self.output = BertSelfOutput(config, rngs=rngs)

    def __call__(self, hidden_states: jax.Array, attention_mask: jax.Array) -> jax.Array:
        return self.output(self.self(hidden_states, attention_mask), hidden_states)


class BertIntermediate(nnx.Module):
    """The wide half of the feed-forward network, with GELU in its exact form."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size, rngs=rngs)
        self.intermediate_act_fn = nn.GELU()

    def __call__(self, hidden_states: jax.Array) -> jax.Array:
        return self.intermediate_act_fn(self.dense(hidden_states))


class BertOutput(nnx.Module):
    """The narrow half, added to what went into the wide one, normalised."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = nn.Linear(config.intermediate_size, config.hidden_size, rngs=rngs)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def __call__(self, hidden_states: jax.Array, input_tensor: jax.Array) -> jax.Array:
        return self.LayerNorm(self.dense(hidden_states) + input_tensor)


class BertLayer(nnx.Module):
    """Attention, then the feed-forward network, normalised after each: `[B, T, D]` -> `[B, T, D]`."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.attention = BertAttention(config, rngs=rngs)
        self.intermediate = BertIntermediate(config, rngs=rngs)
        self.output = BertOutput(config, rngs=rngs)

    def __call__(self, hidden_states: jax.Array, attention_mask: jax.Array) -> jax.Array:
        attended = self.attention(hidden_states, attention_mask)
        return self.output(self.intermediate(attended), attended)


class BertEncoder(nnx.Module):
    """All layers, one after the other."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.layer = nn.ModuleList([BertLayer(config, rngs=rngs) for _ in range(config.num_hidden_layers)])

    def __call__(self, hidden_states: jax.Array, attention_mask: jax.Array) -> jax.Array:
        for layer in self.layer:
            hidden_states = layer(hidden_states, attention_mask)
        return hidden_states


class BertPooler(nnx.Module):
    """A projection of the first token and tanh: `[B, T, D]` -> `[B, D]`."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, rngs=rngs)
        self.activation = nn.Tanh()

    def __call__(self, hidden_states: jax.Array) -> jax.Array:
        return self.activation(self.dense(hidden_states[:, 0]))


class BertModel(nnx.Module):
    """The encoder with its pooler.

    Args:
      config: sizes.
      add_pooling_layer: whether there is a pooler.
      rngs: `params` is drawn from, as transformers draws: N(0, initializer_range), biases and the padding row 0.

    Raises:
      ValueError: where a sentence is longer than there are positions.

    Example:
      >>> model = BertModel(BertConfig.tiny(), rngs=nnx.Rngs(0))
      >>> ids = jnp.array([[5, 7, 9], [5, 8, 0]])
      >>> model(ids, jnp.array([[1, 1, 1], [1, 1, 0]])).last_hidden_state.shape
      (2, 3, 32)
    """

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True, *, rngs: nnx.Rngs):
        self.config = config
        self.embeddings = BertEmbeddings(config, rngs=rngs)
        self.encoder = BertEncoder(config, rngs=rngs)
        self.pooler = BertPooler(config, rngs=rngs) if add_pooling_layer else None
        for _, module in nnx.iter_modules(self):
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=config.initializer_range, rngs=rngs)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        words = self.embeddings.word_embeddings.weight
        words.set_value(words[...].at[config.pad_token_id].set(0))

    def __call__(
        self, input_ids: jax.Array, attention_mask: jax.Array, token_type_ids: jax.Array | None = None
    ) -> Encoded:
        """Encodes sentences.

        Args:
          input_ids: `[B, T]` integers below `vocab_size`.
          attention_mask: `[B, T]`, 0 where a sentence has ended.
          token_type_ids: `[B, T]` integers below `type_vocab_size`; 0 everywhere where it is None.
        """
        length, most = input_ids.shape[1], self.config.max_position_embeddings
        if length > most:
            raise ValueError(f"input_ids has shape {input_ids.shape}, and there are {most} positions; cut it")
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        x = self.embeddings(input_ids, token_type_ids)
        x = self.encoder(x, self._additive(attention_mask, x.dtype))
        return Encoded(x, None if self.pooler is None else self.pooler(x))

    def _additive(self, attention_mask: jax.Array, dtype: jnp.dtype) -> jax.Array:
        """`[B, 1, T, T]`, the least finite number where a key is padding.

        The original adds no mask where none is needed, which it has to read the mask to know.
        """
        keys = jnp.where(attention_mask != 0, jnp.zeros((), dtype), jnp.finfo(dtype).min)[:, None, None]
        return jnp.broadcast_to(keys, (*keys.shape[:2], keys.shape[-1], keys.shape[-1]))
