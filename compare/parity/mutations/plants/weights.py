"""Bugs in parameters: transposed, lost, doubled, swapped, untied; and in what is looked up by an index."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from graphmode.weights import Rule

from ....case import Case
from ..edits import attributes, methods, output, planted, received, variable
from ..plant import Plant

LOST = variable("bias", jnp.zeros_like)
DOUBLED = variable("bias", lambda bias: 2 * bias)
TRANSPOSED = variable("weight", jnp.transpose)


def swapped(first: str, second: str) -> Callable[[Case], Case]:
    """Two layers of one shape that take each other's weights."""

    def change(case: Case) -> Case:
        rules = [
            Rule(f"{ours}.{name}", f"{theirs}.{name}")
            for ours, theirs in ((first, second), (second, first))
            for name in ("weight", "bias")
        ]
        return dataclasses.replace(case, weights=(*rules, *case.weights))

    return change


def swap(specimen: str, first: str, second: str) -> Plant:
    """Modules are matched by their weights, so that the modules around the two are the ones that call the wrong one."""
    around = [path.rpartition(".")[0] for path in (first, second)]
    return Plant(
        kind="weights-swapped",
        specimen=specimen,
        site=f"{first} and {second}",
        change=swapped(first, second),
        modules=(first, second, *around),
    )


def untied(model: Any) -> jax.Array:
    """A head of its own, as a copy that was trained apart."""
    weight = model.embed.weight[...]
    return jax.lax.stop_gradient(weight * (1 + 0.1 * jnp.sin(jnp.arange(weight.shape[1]))))


PLANTS: list[Plant] = [
    *planted("weight-transposed", "encoder", "blocks.0.attn.q", "blocks.1.attn.out", edit=TRANSPOSED),
    *planted("weight-transposed", "decoder", "first.attn.out", "second.attn.out", edit=TRANSPOSED),
    *planted("weight-transposed", "tagger", "rnn", edit=variable("weight_hh_l0", jnp.transpose)),
    *planted("bias-dropped", "encoder", "blocks.0.up", "blocks.0.attn.k", "project", edit=LOST),
    *planted("bias-dropped", "tagger", "tags", edit=LOST),
    *planted("bias-dropped", "tagger", "rnn", edit=variable("bias_hh_l0", jnp.zeros_like)),
    *planted("bias-dropped", "conv_net", "wide", "head", edit=LOST),
    *planted("bias-doubled", "encoder", "blocks.1.down", edit=DOUBLED),
    *planted("bias-doubled", "losses", "logits", edit=DOUBLED),
    *planted("bias-doubled", "tagger", "gru", edit=variable("bias_ih_l1", lambda bias: 2 * bias)),
    swap("encoder", "blocks.0.attn.q", "blocks.0.attn.k"),
    swap("decoder", "first.attn.out", "second.attn.out"),
    *planted("untied", "encoder", "", edit=methods(table=untied), also=("embed",)),
    *planted(
        "layers-permuted", "losses", "hidden", edit=variable("weight", lambda weight: jnp.roll(weight, 1, axis=1))
    ),
    *planted("embedding-off-by-one", "encoder", "embed", edit=received(lambda words: jnp.maximum(words - 1, 0))),
    *planted("embedding-off-by-one", "tagger", "embed", edit=received(lambda words: jnp.minimum(words + 1, 12))),
    *planted("embedding-scaled", "encoder", "embed", edit=output(lambda x: x * 12**0.5)),
    *planted("embedding-scaled", "tagger", "embed", edit=output(lambda x: x * 5**0.5)),
    *planted("padding-idx-gradient", "encoder", "embed", edit=attributes(padding_idx=None)),
    *planted("position-offset", "encoder", "", edit=methods(places=lambda self, length: jnp.arange(length))),
    *planted(
        "position-missing", "encoder", "", edit=methods(joined=lambda self, words, place, features: words + features)
    ),
    *planted(
        "index-truncated",
        "router",
        "distance",
        edit=methods(bucket=lambda self, position: (position * 2).astype(int).clip(-4, 4) + 4),
    ),
    *planted(
        "index-overflow",
        "router",
        "hash",
        edit=methods(bucket=lambda self, words: (words * 7919).astype(jnp.int16).astype(int) % 31),
    ),
    *planted("capacity-off-by-one", "router", "router", edit=methods(kept=lambda self, place: place < 4)),
]
