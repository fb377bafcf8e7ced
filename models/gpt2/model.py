"""GPT-2 as one graph: what is causal of its mask is a constant, and the head is the table of tokens once more.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; names and arguments as in
`transformers.GPT2LMHeadModel`. Dropout is left out: two libraries cannot draw the same masks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from graphmode import nn
from graphmode.nn.functional import scaled_dot_product_attention
from graphmode.weights import IDENTITY, TRANSFORM, Tied

from ..attention_mask import causal_mask, check_tokens

WEIGHTS = (Tied("lm_head.weight", same_as="transformer.wte.weight"),)


@dataclass(frozen=True)
class GPT2Config:
    """Sizes by the names of `transformers.GPT2Config`; the defaults are those of gpt2.

    Attributes:
      n_inner: width of the feed-forward network; four times `n_embd` where it is None.
    """

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd is {self.n_embd}, which n_head = {self.n_head} does not divide; give a multiple")

    @classmethod
    def small(cls) -> GPT2Config:
        """124 million parameters: the model that is called gpt2."""
        return cls()

    @classmethod
    def medium(cls) -> GPT2Config:
        """355 million parameters."""
        return cls(n_embd=1024, n_layer=24, n_head=16)

    @classmethod
    def large(cls) -> GPT2Config:
        """774 million parameters."""
        return cls(n_embd=1280, n_layer=36, n_head=20)

    @classmethod
    def xl(cls) -> GPT2Config:
        """1.56 billion parameters."""
        return cls(n_embd=1600, n_layer=48, n_head=25)

    @classmethod
    def tiny(cls) -> GPT2Config:
        """For tests: no two axes have the same length."""
        return cls(vocab_size=97, n_positions=24, n_embd=32, n_layer=2, n_head=4, n_inner=48)


class Conv1D(nn.Linear):
    """`nn.Linear` by OpenAI's name, whose weight lies `[in, out]` in the `state_dict` as it does here."""

    def __init__(self, nf: int, nx: int, *, rngs: nnx.Rngs):
        super().__init__(nx, nf, rngs=rngs)
        self.weight.set_metadata(TRANSFORM, IDENTITY)


class GPT2Attention(nnx.Module):
    """Every token attends to itself and to what came before it, in several heads: `[B, T, D]` -> `[B, T, D]`."""

    def __init__(self, config: GPT2Config, *, rngs: nnx.Rngs):
        size = config.n_embd
        self.heads = config.n_head
        self.c_attn = Conv1D(3 * size, size, rngs=rngs)
        self.c_proj = Conv1D(size, size, rngs=rngs)

    def __call__(self, hidden_states: jax.Array, attention_mask: jax.Array) -> jax.Array:
        query, key, value = map(self._split, jnp.split(self.c_attn(hidden_states), 3, axis=-1))
        attended = scaled_dot_product_attention(query, key, value, attention_mask)  # [B, H, T, D / H]
        return self.c_proj(jnp.swapaxes(attended, 1, 2).reshape(hidden_states.shape))

    def _split(self, x: jax.Array) -> jax.Array:
        return jnp.swapaxes(x.reshape(*x.shape[:2], self.heads, x.shape[2] // self.heads), 1, 2)


class GPT2MLP(nnx.Module):
    """The feed-forward network, with GELU by a tanh."""

    def __init__(self, config: GPT2Config, *, rngs: nnx.Rngs):
        inner = 4 * config.n_embd if config.n_inner is None else config.n_inner
        self.c_fc = Conv1D(inner, config.n_embd, rngs=rngs)
        self.c_proj = Conv1D(config.n_embd, inner, rngs=rngs)
        self.act = nn.GELU(approximate="tanh")

    def __call__(self, hidden_states: jax.Array) -> jax.Array:
        return self.c_proj(self.act(self.c_fc(hidden_states)))


class GPT2Block(nnx.Module):
    """Attention, then the feed-forward network, normalised before each: `[B, T, D]` -> `[B, T, D]`."""

    def __init__(self, config: GPT2Config, *, rngs: nnx.Rngs):
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = GPT2Attention(config, rngs=rngs)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = GPT2MLP(config, rngs=rngs)

    def __call__(self, hidden_states: jax.Array, attention_mask: jax.Array) -> jax.Array:
        hidden_states = self.attn(self.ln_1(hidden_states), attention_mask) + hidden_states
        return hidden_states + self.mlp(self.ln_2(hidden_states))


class GPT2Model(nnx.Module):
    """All blocks, over what a token is and where it stands: `[B, T]` -> `[B, T, D]`.

    Raises:
      ValueError: where a text is longer than there are positions, or the mask has another shape.
    """

    def __init__(self, config: GPT2Config, *, rngs: nnx.Rngs):
        self.n_positions = config.n_positions
        self.wte = nn.Embedding(config.vocab_size, config.n_embd, rngs=rngs)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd, rngs=rngs)
        self.h = nn.ModuleList([GPT2Block(config, rngs=rngs) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    def __call__(self, input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
        check_tokens(input_ids, attention_mask, self.n_positions)
        x = self.wte(input_ids) + self.wpe(jnp.arange(input_ids.shape[1])[None])  # padding has positions, too
        mask = self._additive(attention_mask, x.dtype)
        for block in self.h:
            x = block(x, mask)
        return self.ln_f(x)

    def _additive(self, attention_mask: jax.Array, dtype: jnp.dtype) -> jax.Array:
        return causal_mask(attention_mask, dtype)


class GPT2LMHeadModel(nnx.Module):
    """The language model; `WEIGHTS` says that its head is tied.

    Args:
      config: sizes.
      rngs: `params` is drawn from, as transformers draws: N(0, initializer_range), biases 0, and what is added to a
        shortcut smaller by the root of how many there are.

    Example:
      >>> model = GPT2LMHeadModel(GPT2Config.tiny(), rngs=nnx.Rngs(0))
      >>> model(jnp.array([[5, 7, 9]]), jnp.ones((1, 3), int))["logits"].shape
      (1, 3, 97)
    """

    def __init__(self, config: GPT2Config, *, rngs: nnx.Rngs):
        self.transformer = GPT2Model(config, rngs=rngs)
        std = config.initializer_range
        for path, module in nnx.iter_modules(self):
            if isinstance(module, Conv1D | nn.Embedding):
                fewer = math.sqrt(2 * config.n_layer) if path[-1] == "c_proj" else 1.0
                nn.init.normal_(module.weight, std=std / fewer, rngs=rngs)
            if isinstance(module, Conv1D):
                nn.init.zeros_(module.bias)

    def __call__(self, input_ids: jax.Array, attention_mask: jax.Array) -> dict[str, jax.Array]:
        """Scores of the token that comes next.

        Args:
          input_ids: `[B, T]` integers below `vocab_size`.
          attention_mask: `[B, T]`, 0 where there is no text.

        Returns:
          `logits`: `[B, T, vocab_size]`.
        """
        x = self.transformer(input_ids, attention_mask)
        return {"logits": nn.functional.linear(x, self.transformer.wte.weight[...].T)}
