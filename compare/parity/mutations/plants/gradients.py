"""Bugs that only gradients, ties or precision show: kinks, stopped and scaled gradients, casts, the order of ties."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..edits import Edit, methods, output, planted
from ..plant import Plant


def instead(function: Any) -> Edit:
    return methods(call=lambda self, x: function(x))


def through(dtype: Any) -> Edit:
    """Computed on, as if this dtype had held it in between."""
    return output(lambda tree: jax.tree.map(lambda x: x.astype(dtype).astype(x.dtype), tree))


def scaled(x: jax.Array) -> jax.Array:
    """The same value with twice the gradient."""
    return 2 * x - lax.stop_gradient(x)


PLANTS: list[Plant] = [
    *planted("relu-at-zero", "kinks", "rectify", edit=instead(lambda x: jnp.maximum(x, 0))),
    *planted("abs-at-zero", "kinks", "magnitude", edit=instead(jnp.abs)),
    *planted("clamp-at-limits", "kinks", "limited", edit=instead(lambda x: jnp.clip(x, -1, 2))),
    *planted("max-ties", "kinks", "largest", edit=instead(lambda x: x.max(-1))),
    *planted("norm-at-zero", "kinks", "length", edit=instead(lambda x: jnp.sqrt((x**2).sum(1)))),
    *planted("leaky-relu-at-zero", "kinks", "leaky", edit=instead(lambda x: jax.nn.leaky_relu(x, 0.1))),
    *planted("hardtanh-at-limits", "kinks", "hard", edit=instead(lambda x: jnp.clip(x, -1.0, 2.0))),
    *planted("relu6-at-limits", "kinks", "", edit=methods(six=lambda self, x: jnp.clip(x, 0, 6))),
    *planted("tie-order", "kinks", "first_of", edit=instead(lambda x: x.shape[-1] - 1 - x[..., ::-1].argmax(-1))),
    *planted("tie-order", "kinks", "ranked", edit=instead(lambda x: jnp.argsort(x, axis=-1)[..., ::-1])),
    *planted("sort-direction", "kinks", "ranked", edit=instead(lambda x: jnp.argsort(x, axis=-1))),
    *planted("stop-gradient-missing", "kinks", "frozen", edit=instead(lambda x: x * x)),
    *planted("stop-gradient", "kinks", "magnitude", edit=output(lax.stop_gradient)),
    *planted("stop-gradient", "encoder", "blocks.0.attn", edit=output(lax.stop_gradient)),
    *planted(
        "stop-gradient",
        "router",
        "router",
        edit=methods(gates=lambda self, x: lax.stop_gradient(jax.nn.softmax(self.scores(x), -1))),
    ),
    *planted(
        "stop-gradient",
        "encoder",
        "",
        edit=methods(table=lambda self: lax.stop_gradient(self.embed.weight[...])),
        also=("embed",),
    ),
    *planted("gradient-scaled", "decoder", "first.mlp", edit=output(scaled)),
    *planted("gradient-scaled", "conv_net", "fc", edit=output(scaled)),
    *planted("gradient-scaled", "encoder", "blocks.1.down", edit=output(scaled)),
    *planted("float32-inside", "decoder", "norm", edit=through(jnp.float32)),
    *planted("float32-inside", "encoder", "blocks.0.attn.q", edit=through(jnp.float32)),
    *planted("float32-inside", "tagger", "lstm", edit=through(jnp.float32)),
    *planted("bfloat16-inside", "decoder", "second.mlp", edit=through(jnp.bfloat16)),
    *planted("bfloat16-inside", "encoder", "blocks.1.up", edit=through(jnp.bfloat16)),
]
