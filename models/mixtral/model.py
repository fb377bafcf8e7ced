"""Mixtral as one graph: grouped queries at rotated positions, and a mixture of experts without a loop over them.

Source: Jiang et al. 2024, "Mixtral of Experts"; names and arguments as in `transformers.MixtralForCausalLM`. A sliding
window, dropout and jitter of the router are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from graphmode import nn
from graphmode.nn.functional import scaled_dot_product_attention

from ..attention_mask import causal_mask, check_tokens
from .experts import EXPERTS, Dispatch, MixtralExperts, MixtralTopKRouter, Routed, load_balancing_loss


@dataclass(frozen=True)
class MixtralConfig:
    """Sizes by the names of `transformers.MixtralConfig`; the defaults are those of Mixtral-8x7B.

    Attributes:
      num_key_value_heads: which divide `num_attention_heads`; each serves as many heads of queries.
      rope_theta: the base of the wavelengths of rotary positions.
    """

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 14336
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    num_experts_per_tok: int = 2
    num_local_experts: int = 8
    max_position_embeddings: int = 4096 * 32
    rms_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    rope_theta: float = 1e6

    def __post_init__(self) -> None:
        for name, of in (
            ("num_attention_heads", "hidden_size"),
            ("num_key_value_heads", "num_attention_heads"),
        ):
            parts, whole = getattr(self, name), getattr(self, of)
            if whole % parts:
                raise ValueError(f"{of} is {whole}, which {name} = {parts} does not divide; give a multiple")
        if self.head_dim % 2:
            raise ValueError(
                f"hidden_size / num_attention_heads is {self.head_dim}; pairs are rotated: give an even one"
            )
        if not 1 <= self.num_experts_per_tok <= self.num_local_experts:
            raise ValueError(
                f"num_experts_per_tok is {self.num_experts_per_tok}, and there are {self.num_local_experts} experts; "
                "give 1 to that many"
            )

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @classmethod
    def mixtral_8x7b(cls) -> MixtralConfig:
        """46.7 billion parameters."""
        return cls()

    @classmethod
    def tiny(cls) -> MixtralConfig:
        """For tests: no two axes have the same length."""
        return cls(
            vocab_size=97,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            num_local_experts=5,
            max_position_embeddings=24,
            rope_theta=1e4,
        )


class MixtralAttention(nnx.Module):
    """Every token attends to itself and to what came before it: `[B, T, D]` -> `[B, T, D]`.

    Several heads of queries share one of keys and values. Queries and keys are turned by angles that grow with the
    position, so that a score depends on the distance.
    """

    def __init__(self, config: MixtralConfig, *, rngs: nnx.Rngs):
        self.head_dim = config.head_dim
        size, narrow = config.hidden_size, config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(size, size, bias=False, rngs=rngs)
        self.k_proj = nn.Linear(size, narrow, bias=False, rngs=rngs)
        self.v_proj = nn.Linear(size, narrow, bias=False, rngs=rngs)
        self.o_proj = nn.Linear(size, size, bias=False, rngs=rngs)

    def __call__(self, hidden_states: jax.Array, angles: jax.Array, attention_mask: jax.Array) -> jax.Array:
        query, key, value = (self._split(project(hidden_states)) for project in (self.q_proj, self.k_proj, self.v_proj))
        query, key = _rotated(query, angles), _rotated(key, angles)
        attended = scaled_dot_product_attention(query, key, value, attention_mask, enable_gqa=True)  # [B, H, T, D / H]
        return self.o_proj(jnp.swapaxes(attended, 1, 2).reshape(hidden_states.shape))

    def _split(self, x: jax.Array) -> jax.Array:
        return jnp.swapaxes(x.reshape(*x.shape[:2], x.shape[2] // self.head_dim, self.head_dim), 1, 2)


class MixtralSparseMoeBlock(nnx.Module):
    """A router and its experts: `[B, T, D]` -> `[B, T, D]`, and which experts were picked for each token."""

    def __init__(self, config: MixtralConfig, experts: type[MixtralExperts], *, rngs: nnx.Rngs):
        number, size = config.num_local_experts, config.hidden_size
        self.gate = MixtralTopKRouter(size, number, config.num_experts_per_tok, rngs=rngs)
        self.experts = experts(number, size, config.intermediate_size)

    def __call__(self, hidden_states: jax.Array) -> tuple[jax.Array, Routed]:
        rows = hidden_states.reshape(-1, hidden_states.shape[-1])
        routed = self.gate(rows)
        return self.experts(rows, routed.experts, routed.weights).reshape(hidden_states.shape), routed


class MixtralDecoderLayer(nnx.Module):
    """Attention, then the experts, normalised before each: `[B, T, D]` -> `[B, T, D]`, and who was picked."""

    def __init__(self, config: MixtralConfig, experts: type[MixtralExperts], *, rngs: nnx.Rngs):
        self.self_attn = MixtralAttention(config, rngs=rngs)
        self.mlp = MixtralSparseMoeBlock(config, experts, rngs=rngs)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def __call__(
        self, hidden_states: jax.Array, angles: jax.Array, attention_mask: jax.Array
    ) -> tuple[jax.Array, Routed]:
        hidden_states = hidden_states + self.self_attn(self.input_layernorm(hidden_states), angles, attention_mask)
        mixed, routed = self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states + mixed, routed


class MixtralModel(nnx.Module):
    """All layers over the tokens: `[B, T]` -> `[B, T, D]`, and who was picked in each.

    Raises:
      ValueError: where a text is longer than there are positions, or the mask has another shape.
    """

    def __init__(self, config: MixtralConfig, experts: type[MixtralExperts], *, rngs: nnx.Rngs):
        self.positions = config.max_position_embeddings
        self.frequencies = _frequencies(config.head_dim, config.rope_theta)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, rngs=rngs)
        layers = [MixtralDecoderLayer(config, experts, rngs=rngs) for _ in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def __call__(self, input_ids: jax.Array, attention_mask: jax.Array) -> tuple[jax.Array, list[Routed]]:
        check_tokens(input_ids, attention_mask, self.positions)
        x = self.embed_tokens(input_ids)
        wide = jnp.promote_types(x.dtype, jnp.float32)
        angles = jnp.arange(input_ids.shape[1], dtype=wide)[:, None] * jnp.asarray(
            self.frequencies, wide
        )  # padding has some, too
        mask = self._additive(attention_mask, x.dtype)
        routed = []
        for layer in self.layers:
            x, picked = layer(x, angles, mask)
            routed.append(picked)
        return self.norm(x), routed

    def _additive(self, attention_mask: jax.Array, dtype: jnp.dtype) -> jax.Array:
        return causal_mask(attention_mask, dtype)


class MixtralForCausalLM(nnx.Module):
    """The language model.

    Args:
      config: sizes.
      dispatch: how rows find their experts: `"all"` runs every expert on every row, `"blocks"` each on its own.
      rngs: `params` is drawn from, as transformers draws: N(0, initializer_range).

    Example:
      >>> model = MixtralForCausalLM(MixtralConfig.tiny(), rngs=nnx.Rngs(0))
      >>> model(jnp.array([[5, 7, 9]]), jnp.ones((1, 3), int))["logits"].shape
      (1, 3, 97)
    """

    def __init__(self, config: MixtralConfig, *, dispatch: Dispatch = "all", rngs: nnx.Rngs):
        if dispatch not in EXPERTS:
            raise ValueError(f"dispatch is {dispatch!r}; choose from {', '.join(map(repr, EXPERTS))}")
        self.model = MixtralModel(config, EXPERTS[dispatch], rngs=rngs)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False, rngs=rngs)
        for _, module in nnx.iter_modules(self):
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=config.initializer_range, rngs=rngs)
            if isinstance(module, MixtralExperts):
                nn.init.normal_(module.gate_up_proj, std=config.initializer_range, rngs=rngs)
                nn.init.normal_(module.down_proj, std=config.initializer_range, rngs=rngs)

    def __call__(self, input_ids: jax.Array, attention_mask: jax.Array) -> dict[str, jax.Array | tuple[jax.Array, ...]]:
        """Scores of the token that comes next.

        Args:
          input_ids: `[B, T]` integers below `vocab_size`.
          attention_mask: `[B, T]`, 0 where there is no text.

        Returns:
          `logits`: `[B, T, vocab_size]`.
          `aux_loss`: a scalar, `load_balancing_loss`; a training adds a thousandth of it to its own.
          `router_logits`: of each layer `[B * T, num_local_experts]`.
        """
        x, routed = self.model(input_ids, attention_mask)
        return {
            "aux_loss": load_balancing_loss(routed, attention_mask.reshape(-1) != 0),
            "logits": self.lm_head(x),
            "router_logits": tuple(one.logits for one in routed),
        }


def _frequencies(head_dim: int, theta: float) -> np.ndarray:
    """`[head_dim / 2]`, radians a position, rounded as the original rounds them: to float32."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    return np.float32(1) / np.float32(theta) ** exponents


def _rotated(x: jax.Array, angles: jax.Array) -> jax.Array:
    """`[B, H, T, D]`, the first half of each head turned against the second by `[T, D / 2]` radians."""
    cos, sin = (jnp.tile(turn(angles), 2).astype(x.dtype) for turn in (jnp.cos, jnp.sin))
    first, second = jnp.split(x, 2, axis=-1)
    return x * cos + jnp.concatenate([-second, first], axis=-1) * sin
