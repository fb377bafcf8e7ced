"""Adapters of this room."""

from __future__ import annotations

import torch
from flax import nnx

import graphmode.nn as ours
from graphmode.nn.functional import gelu, relu

from .base import Adapter

LAYER_WORDS = ("d_model", "nhead", "dim_feedforward", "dropout", "activation")


def transposed(args, kwargs, layout):
    """Weights of `multi_head_attention_forward` in our layout."""
    args = tuple(a.T if i in (5, 11) and a is not None else a for i, a in enumerate(args))
    weights = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    return args, {name: value.T if name in weights and value is not None else value for name, value in kwargs.items()}


def mask_of_heads(module, args, kwargs, outputs):
    """What `multi_head_attention_forward` drew: its weights that are not zero, from a run that draws them again."""
    query, p, heads = args[0], args[10], args[4]
    if not p or not kwargs.get("training", True):
        return {}
    if query.ndim == 2:
        length, batch, keys = query.shape[0], 1, args[1].shape[0]
    else:
        (length, batch, _), keys = query.shape, args[1].shape[0]
    keys += (args[7] is not None) + bool(args[9])
    return {"dropout_mask": drawn((batch * heads, length, keys), p, query.dtype).reshape(batch, heads, length, keys)}


def mask_of_product(module, args, kwargs, outputs):
    """What `scaled_dot_product_attention` drew: PyTorch's test sets the seed 42 right before it."""
    query, key = args[:2]
    p = kwargs.get("dropout_p", 0.0)
    if not p:
        return {}
    leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return {"dropout_mask": drawn((*leading, query.shape[-2], key.shape[-2]), p, query.dtype)}


def drawn(shape, p, dtype):
    torch.manual_seed(42)
    return torch.nn.functional.dropout(torch.ones(shape, dtype=dtype), p) != 0


def activation_of(value):
    """Ours for PyTorch's."""
    return {"relu": relu, "gelu": gelu}.get(getattr(value, "__name__", ""), value)


def layer(cls):
    """A Transformer's layer, whose activation is PyTorch's function."""

    def built(builder, args, kwargs, extras):
        return cls(*map(activation_of, args), **{k: activation_of(v) for k, v in kwargs.items()}, **extras)

    return built


def encoder(builder, args, kwargs, extras):
    """From PyTorch's own, whose layer is an argument."""
    module = builder()
    first = module.layers[0]
    one = ours.TransformerEncoderLayer(
        first.linear1.in_features,
        first.self_attn.num_heads,
        first.linear1.out_features,
        first.dropout.p,
        activation_of(first.activation),
        first.norm1.eps,
        first.self_attn.batch_first,
        first.norm_first,
        first.linear1.bias is not None,
        rngs=nnx.Rngs(0),
    )
    return ours.TransformerEncoder(one, module.num_layers, None, module.enable_nested_tensor)


ADAPTERS: dict[str, Adapter] = {
    "MultiheadAttention": Adapter(),
    "TransformerDecoderLayer": Adapter(build=lambda *a: layer(ours.TransformerDecoderLayer)(*a)),
    "TransformerEncoder": Adapter(build=encoder),
    "TransformerEncoderLayer": Adapter(build=lambda *a: layer(ours.TransformerEncoderLayer)(*a)),
}
FUNCTION_ADAPTERS: dict[str, Adapter] = {
    "multi_head_attention_forward": Adapter(inputs=transposed, given=mask_of_heads),
    "scaled_dot_product_attention": Adapter(given=mask_of_product),
}
