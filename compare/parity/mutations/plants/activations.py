"""Bugs in activations and in the wiring between layers: residuals, their order, dropout."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import graphmode.nn.functional as F

from ..edits import attributes, methods, output, planted
from ..plant import Plant


def dropped(x: jax.Array) -> jax.Array:
    kept = jax.random.bernoulli(jax.random.key(3), 0.75, x.shape)
    return jnp.where(kept, x / 0.75, 0)


PLANTS: list[Plant] = [
    *planted("gelu-form", "encoder", "blocks.0", "blocks.1", edit=methods(activate=lambda self, x: jax.nn.gelu(x))),
    *planted("activation-swapped", "decoder", "first.mlp", edit=methods(activate=lambda self, x: jax.nn.gelu(x))),
    *planted("activation-swapped", "decoder", "second.mlp", edit=methods(activate=lambda self, x: jax.nn.relu(x))),
    *planted("activation-swapped", "encoder", "blocks.0", edit=methods(activate=lambda self, x: jax.nn.relu(x))),
    *planted("activation-swapped", "trained_sgd", "", edit=methods(activate=lambda self, x: jnp.tanh(x))),
    *planted("activation-swapped", "conv_net", "act", edit=methods(call=lambda self, x: jax.nn.gelu(x))),
    *planted("activation-swapped", "tagger", "rnn", edit=attributes(nonlinearity="relu")),
    *planted("activation-missing", "losses", "", edit=methods(activate=lambda self, x: x)),
    *planted("activation-missing", "conv_net", "", edit=methods(first_activation=lambda self, x: x)),
    *planted("activation-missing", "upsampler", "", edit=methods(activate=lambda self, x: x)),
    *planted("leaky-slope", "kinks", "leaky", edit=attributes(negative_slope=0.01)),
    *planted("leaky-slope", "conv_net", "", edit=methods(last_activation=lambda self, x: F.leaky_relu(x))),
    *planted("elu-alpha", "upsampler", "elu", edit=attributes(alpha=1.0)),
    *planted("hardtanh-limits", "kinks", "hard", edit=attributes(min_val=-1.0, max_val=1.0)),
    *planted("hardtanh-limits", "upsampler", "limit", edit=attributes(min_val=-1.0, max_val=1.0)),
    *planted(
        "gate-swapped",
        "decoder",
        "first.mlp",
        "second.mlp",
        edit=methods(call=lambda self, x: self.down(self.gate(x) * self.activate(self.up(x)))),
    ),
    *planted(
        "residual-missing",
        "encoder",
        "blocks.0",
        edit=methods(attended=lambda self, x, ignored: self.attn(self.norm1(x), ignored)),
    ),
    *planted(
        "residual-missing", "decoder", "second", edit=methods(fed_forward=lambda self, x: self.mlp(self.norm2(x)))
    ),
    *planted("residual-missing", "conv_net", "", edit=methods(join=lambda self, x, update: update)),
    *planted(
        "residual-doubled", "decoder", "first", edit=methods(attended=lambda self, x: 2 * x + self.attn(self.norm1(x)))
    ),
    *planted("residual-doubled", "conv_net", "", edit=methods(join=lambda self, x, update: x + 2 * update)),
    *planted(
        "residual-from-normed",
        "decoder",
        "first",
        "second",
        edit=methods(attended=lambda self, x: self.norm1(x) + self.attn(self.norm1(x))),
    ),
    *planted(
        "post-norm",
        "encoder",
        "blocks.0",
        "blocks.1",
        edit=methods(attended=lambda self, x, ignored: self.norm1(x + self.attn(x, ignored))),
    ),
    *planted("post-norm", "decoder", "second", edit=methods(fed_forward=lambda self, x: self.norm2(x + self.mlp(x)))),
    *planted("norm-missing", "decoder", "first", edit=methods(fed_forward=lambda self, x: x + self.mlp(x))),
    *planted(
        "parallel-blocks",
        "decoder",
        "second",
        edit=methods(call=lambda self, x: self.attended(x) + self.mlp(self.norm2(x))),
    ),
    *planted("layer-order", "encoder", "", edit=methods(sequence=lambda self: [self.blocks[1], self.blocks[0]])),
    *planted("layer-order", "decoder", "", edit=methods(blocks=lambda self: [self.second, self.first])),
    *planted("layer-skipped", "decoder", "", edit=methods(blocks=lambda self: [self.first])),
    *planted("layer-repeated", "decoder", "", edit=methods(blocks=lambda self: [self.first, self.first])),
    *planted("dropout-left-on", "encoder", "blocks.0.drop", "blocks.1.drop", edit=output(dropped)),
    *planted("dropout-scale", "encoder", "blocks.0.drop", "blocks.1.drop", edit=output(lambda x: 0.75 * x)),
]
