"""Bugs in ports of the `transformers` library's own classes: originals that nobody here wrote."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import jax
import jax.numpy as jnp

from graphmode.nn.functional import scaled_dot_product_attention

from ..edits import attributes, methods, output, planted
from ..plant import Plant
from .gradients import through
from .weights import LOST, TRANSPOSED

BERT, GPT2 = "bert", "gpt2"
IS_THERE = importlib.util.find_spec("transformers") is not None
ATTENTION = "transformer.h.{}.attn"


def masked_by(change: Any) -> Any:
    """A model whose mask is made of another one of padding."""

    def edit(model: Any) -> None:
        usual = type(model)._additive
        methods(_additive=lambda self, mask, dtype: usual(self, change(mask), dtype))(model)

    return edit


def later_positions(embeddings: Any, input_ids: jax.Array, token_type_ids: jax.Array) -> jax.Array:
    positions = jnp.arange(input_ids.shape[1])[None] + 2  # as RoBERTa counts them
    x = embeddings.word_embeddings(input_ids) + embeddings.token_type_embeddings(token_type_ids)
    return embeddings.LayerNorm(x + embeddings.position_embeddings(positions))


def key_for_query(attention: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    key, query, value = (attention._split(layer(x)) for layer in (attention.query, attention.key, attention.value))
    return scaled_dot_product_attention(query, key, value, mask).swapaxes(1, 2).reshape(x.shape)


def without_residual(block: Any, x: jax.Array, before: jax.Array) -> jax.Array:
    return block.LayerNorm(block.dense(x))


def norm_first(block: Any, x: jax.Array, before: jax.Array) -> jax.Array:
    return block.LayerNorm(block.dense(x)) + before


def last_token(pooler: Any, x: jax.Array) -> jax.Array:
    return pooler.activation(pooler.dense(x[:, -1]))


def seen_by(causal: Any, sees_padding: bool = False) -> Any:
    """GPT-2's mask, where `causal` makes `[T, T]` of the length."""

    def additive(model: Any, mask: jax.Array, dtype: Any) -> jax.Array:
        seen = causal(mask.shape[1]) & ((mask != 0) | sees_padding)[:, None, None]
        return jnp.where(seen, jnp.zeros((), dtype), jnp.finfo(dtype).min)

    return methods(_additive=additive)


def lower(length: int, of: int = 0) -> jax.Array:
    return jnp.tril(jnp.ones((length, length), bool), of)


def attended(order: tuple[int, ...] = (0, 1, 2), scale: float | None = None, merge: Any = None) -> Any:
    """GPT-2's attention with its pieces in another order, another scale, or heads that are merged otherwise."""
    merged = merge or (lambda x, shape: x.swapaxes(1, 2).reshape(shape))

    def call(attention: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
        pieces = jnp.split(attention.c_attn(x), 3, -1)
        query, key, value = (attention._split(pieces[i]) for i in order)
        return attention.c_proj(merged(scaled_dot_product_attention(query, key, value, mask, scale=scale), x.shape))

    return methods(call=call)


def parallel(block: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    return x + block.attn(block.ln_1(x), mask) + block.mlp(block.ln_2(x))


def post_norm(block: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    x = block.ln_1(x + block.attn(x, mask))
    return block.ln_2(x + block.mlp(x))


def normed_residual(block: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    x = x + block.attn(block.ln_1(x), mask)
    normed = block.ln_2(x)
    return normed + block.mlp(normed)


def one_later(model: Any, input_ids: jax.Array, mask: jax.Array) -> jax.Array:
    x = model.wte(input_ids) + model.wpe(jnp.arange(1, input_ids.shape[1] + 1)[None])
    for block in model.h:
        x = block(x, model._additive(mask, x.dtype))
    return model.ln_f(x)


_ALL: list[Plant] = [
    *planted(
        "gelu-form",
        BERT,
        *(f"encoder.layer.{i}.intermediate.intermediate_act_fn" for i in (0, 1)),
        edit=attributes(approximate="tanh"),
    ),
    *planted(
        "layer-norm-eps",
        BERT,
        "encoder.layer.0.attention.output.LayerNorm",
        "embeddings.LayerNorm",
        edit=attributes(eps=1e-6),
    ),
    *planted("mask-polarity", BERT, "", edit=masked_by(lambda mask: 1 - mask)),
    *planted("mask-missing", BERT, "", edit=masked_by(jnp.ones_like)),
    *planted("position-offset", BERT, "embeddings", edit=methods(call=later_positions)),
    *planted("qkv-order", BERT, "encoder.layer.1.attention.self", edit=methods(call=key_for_query)),
    *planted("head-count", BERT, "encoder.layer.0.attention.self", edit=attributes(heads=8)),
    *planted("bias-dropped", BERT, "encoder.layer.0.attention.self.value", "encoder.layer.1.output.dense", edit=LOST),
    *planted("weight-transposed", BERT, "encoder.layer.1.attention.self.key", edit=TRANSPOSED),
    *planted("residual-missing", BERT, "encoder.layer.0.output", edit=methods(call=without_residual)),
    *planted("post-norm", BERT, "encoder.layer.1.attention.output", edit=methods(call=norm_first)),
    *planted("last-step", BERT, "pooler", edit=methods(call=last_token)),
    *planted("activation-swapped", BERT, "pooler.activation", edit=methods(call=lambda self, x: jax.nn.sigmoid(x))),
    *planted("padding-idx-gradient", BERT, "embeddings.word_embeddings", edit=attributes(padding_idx=None)),
    *planted("stop-gradient", BERT, "encoder.layer.0.intermediate", edit=output(jax.lax.stop_gradient)),
    *planted("bfloat16-inside", BERT, "encoder.layer.1.output.dense", edit=through(jnp.bfloat16)),
    *planted("gelu-form", GPT2, "transformer.h.1.mlp.act", edit=attributes(approximate="none")),
    *planted("layer-norm-eps", GPT2, "transformer.ln_f", "transformer.h.0.ln_2", edit=attributes(eps=1e-6)),
    *planted("causal-mask-missing", GPT2, "transformer", edit=seen_by(lambda n: jnp.ones((n, n), bool))),
    *planted("causal-mask-off-by-one", GPT2, "transformer", edit=seen_by(lambda n: lower(n, 1))),
    *planted("mask-missing", GPT2, "transformer", edit=seen_by(lower, sees_padding=True)),
    *planted("mask-polarity", GPT2, "transformer", edit=masked_by(lambda mask: 1 - mask)),
    *planted("position-offset", GPT2, "transformer", edit=methods(call=one_later)),
    *planted("qkv-order", GPT2, ATTENTION.format(0), edit=attended(order=(1, 0, 2))),
    *planted("attention-scale-missing", GPT2, ATTENTION.format(1), edit=attended(scale=1.0)),
    *planted("attention-scale-by-d", GPT2, ATTENTION.format(0), edit=attended(scale=1 / 8)),
    *planted("heads-merged", GPT2, ATTENTION.format(1), edit=attended(merge=lambda x, shape: x.reshape(shape))),
    *planted("weight-transposed", GPT2, "transformer.h.1.attn.c_proj", edit=TRANSPOSED),
    *planted("bias-dropped", GPT2, "transformer.h.0.mlp.c_proj", edit=LOST),
    *planted("parallel-blocks", GPT2, "transformer.h.1", edit=methods(call=parallel)),
    *planted("post-norm", GPT2, "transformer.h.0", edit=methods(call=post_norm)),
    *planted("residual-from-normed", GPT2, "transformer.h.1", edit=methods(call=normed_residual)),
    *planted("embedding-scaled", GPT2, "transformer.wte", edit=output(lambda x: x * 32**0.5)),
    *planted("activation-missing", GPT2, "transformer.h.0.mlp.act", edit=methods(call=lambda self, x: x)),
    *planted("stop-gradient", GPT2, "transformer.h.1.mlp", edit=output(jax.lax.stop_gradient)),
]


def _on_drawn_inputs(plant: Plant) -> Plant:
    """Judged on no other shapes, for which all operations would be compiled anew."""
    return dataclasses.replace(
        plant, change=lambda case: dataclasses.replace(plant.change(case), edge_inputs={}, sweep=None)
    )


PLANTS = [_on_drawn_inputs(plant) for plant in _ALL]
