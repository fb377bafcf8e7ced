"""Bugs in attention: masks, scales, heads, rotary positions, the order of projections."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..edits import methods, planted
from ..plant import Plant

SIZE = 4  # of a head, in both specimens


def interleaved(attention: Any, x: jax.Array) -> jax.Array:
    """Rotary positions on neighbours in place of halves."""
    angle = attention.angles(x.shape[-2], x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    turned = [a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)]
    return jnp.stack(turned, -1).reshape(x.shape)


def backwards(attention: Any, x: jax.Array) -> jax.Array:
    angle = attention.angles(x.shape[-2], x.dtype)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * jnp.cos(angle) + b * jnp.sin(angle), b * jnp.cos(angle) - a * jnp.sin(angle)], -1)


def base(attention: Any, length: int, dtype: Any) -> jax.Array:
    return jnp.arange(length, dtype=dtype)[:, None] * 10000.0 ** -(jnp.arange(SIZE // 2, dtype=dtype) * 2 / SIZE)


def one_later(attention: Any, length: int, dtype: Any) -> jax.Array:
    """Of no effect: rotary positions are relative."""
    return jnp.arange(length, dtype=dtype) + 1


def split_last(attention: Any, x: jax.Array) -> jax.Array:
    """The heads as the fast part of the features."""
    return x.reshape(*x.shape[:2], -1, 3).transpose(0, 3, 1, 2)


def merged_wrongly(attention: Any, x: jax.Array) -> jax.Array:
    """`[B, H, T, d]` reshaped before the axes are moved back."""
    return x.reshape(x.shape[0], x.shape[2], -1)


def reordered(*order: int) -> Any:
    def split(attention: Any, x: jax.Array) -> list[jax.Array]:
        parts = jnp.split(x, 3, -1)
        return [parts[i] for i in order]

    return methods(split=split)


ENCODERS = ("blocks.0.attn", "blocks.1.attn")
DECODERS = ("first.attn", "second.attn")

PLANTS: list[Plant] = [
    *planted(
        "mask-polarity",
        "encoder",
        *ENCODERS,
        edit=methods(masked=lambda self, scores, ignored: jnp.where(ignored[:, None, None], scores, -1e9)),
    ),
    *planted("mask-missing", "encoder", *ENCODERS, edit=methods(masked=lambda self, scores, ignored: scores)),
    *planted(
        "mask-too-small",
        "encoder",
        ENCODERS[0],
        edit=methods(masked=lambda self, scores, ignored: jnp.where(ignored[:, None, None], -10.0, scores)),
    ),
    *planted(
        "causal-mask-missing",
        "decoder",
        *DECODERS,
        edit=methods(hidden=lambda self, length: jnp.zeros((length, length), bool)),
    ),
    *planted(
        "causal-mask-off-by-one",
        "decoder",
        *DECODERS,
        edit=methods(hidden=lambda self, length: jnp.triu(jnp.ones((length, length), bool), 2)),
    ),
    *planted(
        "causal-mask-transposed",
        "decoder",
        DECODERS[0],
        edit=methods(hidden=lambda self, length: jnp.tril(jnp.ones((length, length), bool), -1)),
    ),
    *planted("attention-scale-missing", "decoder", *DECODERS, edit=methods(scaled=lambda self, scores: scores)),
    *planted("attention-scale-missing", "encoder", ENCODERS[1], edit=methods(scale=lambda self, size: 1.0)),
    *planted("attention-scale-by-d", "decoder", *DECODERS, edit=methods(scaled=lambda self, scores: scores / SIZE)),
    *planted("attention-scale-by-d", "encoder", ENCODERS[0], edit=methods(scale=lambda self, size: 1 / size)),
    *planted("softmax-axis", "encoder", *ENCODERS, edit=methods(weights=lambda self, x: jax.nn.softmax(x, -2))),
    *planted("softmax-axis", "router", "router", edit=methods(gates=lambda self, x: jax.nn.softmax(self.scores(x), 0))),
    *planted("rotary-interleaved", "decoder", *DECODERS, edit=methods(rotated=interleaved)),
    *planted("rotary-direction", "decoder", *DECODERS, edit=methods(rotated=backwards)),
    *planted("rotary-base", "decoder", *DECODERS, edit=methods(angles=base)),
    *planted(
        "rotary-offset",
        "decoder",
        DECODERS[0],
        edit=methods(times=lambda self, n, dtype: jnp.arange(n, dtype=dtype) + 1),
    ),
    *planted("qkv-order", "decoder", DECODERS[0], edit=reordered(1, 0, 2)),
    *planted("qkv-order", "decoder", DECODERS[1], edit=reordered(2, 0, 1)),
    *planted(
        "qkv-order",
        "encoder",
        ENCODERS[0],
        edit=methods(projections=lambda self, x: (self.k(x), self.q(x), self.v(x))),
    ),
    *planted("heads-split", "decoder", DECODERS[0], edit=methods(heads=split_last)),
    *planted("heads-split", "encoder", ENCODERS[1], edit=methods(heads=split_last)),
    *planted("heads-merged", "decoder", *DECODERS, edit=methods(merge=merged_wrongly)),
    *planted("heads-merged", "encoder", ENCODERS[0], edit=methods(merge=merged_wrongly)),
    *planted(
        "head-count",
        "encoder",
        *ENCODERS,
        edit=methods(heads=lambda self, x: x.reshape(*x.shape[:2], 2, -1).swapaxes(1, 2)),
    ),
]
