"""A mixture of experts inside one graph: a router picks a few of many feed-forward networks for each token.

Eager code loops over the experts, and takes for each the rows that chose it: as many as there happen to be. Here are
two forms of fixed size, neither of which drops a token: every expert on every row, where a mask keeps what was chosen;
and `gm.segment_map`, blocks of rows that have one expert each.

Source: Jiang et al. 2024, "Mixtral of Experts"; names and arguments as in `transformers.models.mixtral`.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from graphmode import nn
from graphmode.nn.functional import silu, softmax
from graphmode.ops import segment_map
from graphmode.weights import Permute, carries

Dispatch = Literal["all", "blocks"]
STACKED = carries(Permute((0, 2, 1)))  # PyTorch holds each expert's weight [out, in], as that of a linear layer


class Routed(NamedTuple):
    """Which experts a router picked for each row.

    Attributes:
      logits: `[N, E]`, of all experts.
      weights: `[N, K]`, of those that were picked: their probabilities, which add up to 1.
      experts: `[N, K]` int32, the most probable first; of equally probable ones the first.
    """

    logits: jax.Array
    weights: jax.Array
    experts: jax.Array


class MixtralTopKRouter(nn.Linear):
    """Picks the `top_k` most probable experts of each row: `[N, D]` -> `Routed`."""

    def __init__(self, hidden_size: int, num_experts: int, top_k: int, *, rngs: nnx.Rngs):
        super().__init__(hidden_size, num_experts, bias=False, rngs=rngs)
        self.top_k = top_k

    def __call__(self, hidden_states: jax.Array) -> Routed:  # type: ignore[override]
        logits = super().__call__(hidden_states)
        wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
        weights, experts = lax.top_k(softmax(wide, -1), self.top_k)
        return Routed(logits, weights / weights.sum(-1, keepdims=True), experts)


class MixtralExperts(nnx.Module):
    """All experts, their weights stacked: `[N, D]`, `[N, K]` and `[N, K]` -> `[N, D]`, the weighted sum of K experts.

    This form runs every expert on every row, which is `E / K` times the work and no gather: the fastest for few rows or
    few experts. What an expert gives that was not chosen is masked, so it may overflow.
    """

    dispatch: ClassVar[Dispatch] = "all"

    def __init__(self, num_experts: int, hidden_size: int, intermediate_size: int):
        self.num_experts = num_experts
        self.gate_up_proj = nnx.Param(jnp.zeros((num_experts, hidden_size, 2 * intermediate_size)), **STACKED)
        self.down_proj = nnx.Param(jnp.zeros((num_experts, intermediate_size, hidden_size)), **STACKED)

    def __call__(self, hidden_states: jax.Array, experts: jax.Array, weights: jax.Array) -> jax.Array:
        chosen = experts[:, :, None] == jnp.arange(self.num_experts)  # [N, K, E]
        share = jnp.where(chosen, weights[:, :, None], 0).sum(1).T[..., None]  # [E, N, 1]
        inner = _gated(jnp.einsum("nd,edf->enf", hidden_states, self.gate_up_proj[...]))
        outer = jnp.where(chosen.any(1).T[..., None], share * (inner @ self.down_proj[...]), 0)
        return outer.sum(0).astype(hidden_states.dtype)


class ExpertsInBlocks(MixtralExperts):
    """The same, each expert on the rows that chose it, in blocks of rows: the faster the more rows and experts."""

    dispatch = "blocks"

    def __call__(self, hidden_states: jax.Array, experts: jax.Array, weights: jax.Array) -> jax.Array:
        rows, each = experts.shape
        outer = segment_map(
            lambda expert, block: _gated(block @ expert[0]) @ expert[1],
            (self.gate_up_proj[...], self.down_proj[...]),
            jnp.repeat(hidden_states, each, axis=0),
            experts.ravel(),
            num_segments=self.num_experts,
        )
        mixed = (outer.reshape(rows, each, outer.shape[1]) * weights[:, :, None]).sum(1)
        return mixed.astype(hidden_states.dtype)


EXPERTS: dict[Dispatch, type[MixtralExperts]] = {kind.dispatch: kind for kind in (MixtralExperts, ExpertsInBlocks)}


def load_balancing_loss(routed: list[Routed], mask: jax.Array) -> jax.Array:
    """How unevenly the tokens are shared out among the experts, 1 at best: a scalar.

    Source: Fedus et al. 2022, "Switch Transformers", equations 4 to 6; `load_balancing_loss_func` of transformers.

    Args:
      routed: of each layer.
      mask: `[N]` booleans, which rows are tokens.
    """
    taken = probable = jnp.zeros((), jnp.float32)
    for logits, _, experts in routed:
        num_experts = logits.shape[-1]
        chosen = experts[:, :, None] == jnp.arange(num_experts)
        taken = taken + (chosen.sum(1) * mask[:, None]).sum(0)
        probable = probable + jnp.where(mask[:, None], softmax(logits, -1), 0).sum(0)
    total = mask.sum() * len(routed)
    return num_experts * ((taken / total) * (probable / total)).sum()


def _gated(inner: jax.Array) -> jax.Array:
    gate, up = jnp.split(inner, 2, axis=-1)
    return silu(gate) * up
