"""Attention: scale, the order of queries, keys and values, and how heads lie in the features."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..variants import Called, Fit, Variant, of, other_orders, signature
from .mask import POLARITY

signature("scaled_dot_product_attention", "query key value attn_mask dropout_p is_causal scale enable_gqa")
signature(
    "multi_head_attention_forward",
    "query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k bias_v add_zero_attn dropout_p "
    "out_proj_weight out_proj_bias training key_padding_mask need_weights attn_mask use_separate_proj_weight "
    "q_proj_weight k_proj_weight v_proj_weight static_k static_v average_attn_weights is_causal",
)


@of("scaled_dot_product_attention")
def scaled(call: Called) -> Iterator[Variant | Fit]:
    size = call.args[0].shape[-1]
    known = call.get("scale") or 1 / math.sqrt(size)
    for value, words in (
        (1.0, "does not scale the products"),
        (1 / size, "scales the products by 1/d"),
        (size**0.5, "multiplies the products by sqrt(d)"),
    ):
        yield Variant("attention-scale", words, f"scale them by {known:.6g}, 1/sqrt(d)", call.with_(scale=value))
    yield Fit(
        "attention-scale",
        "scales the products by {value}",
        "scale them by {known}",
        known,
        lambda value: call.with_(scale=value),
    )
    yield from _masks(call, "attn_mask")
    causal = bool(call.get("is_causal", False))
    yield Variant(
        "causal-mask",
        "masks nothing of the future" if causal else "masks the future",
        f"give is_causal={causal}",
        call.with_(is_causal=not causal),
    )
    if causal:
        for shift in (-1, 1):
            yield Variant(
                "causal-mask",
                f"sets the causal mask off by {shift:+d}",
                "let position i see 0 to i",
                call.with_(is_causal=False, attn_mask=lambda _, s=shift: _causal(call, s)),
            )


@of("multi_head_attention_forward")
def multi_head(call: Called) -> Iterator[Variant]:
    yield from _masks(call, "attn_mask", inverted=True)
    yield from _masks(call, "key_padding_mask", inverted=True)
    weight, heads = call.get("in_proj_weight"), call.get("num_heads")
    width = call.get("embed_dim_to_check")
    for name in ("in_proj_bias", "out_proj_bias"):
        if call.get(name) is not None:
            yield Variant("bias-missing", f"does not add {name}", "add it", call.with_(**{name: None}))
    if weight is not None:
        for order in other_orders(3):
            words = ", ".join("qkv"[i] for i in order)
            yield Variant(
                "qkv-order",
                f"takes the projections as {words}",
                "in_proj_weight holds q, k, v",
                call.with_(in_proj_weight=_chunks(order), in_proj_bias=_chunks(order)),
            )
        for factor, words in (
            (math.sqrt(width / heads), "does not scale the products"),
            (math.sqrt(heads / width), "scales the products by 1/d"),
        ):
            yield Variant(
                "attention-scale",
                words,
                "scale them by 1/sqrt(d)",
                call.with_(in_proj_weight=_scaled(factor, width), in_proj_bias=_scaled(factor, width)),
            )
        yield Variant(
            "attention-scale",
            "scales by the whole width, not by a head's",
            "scale by 1/sqrt(head_dim)",
            call.with_(
                in_proj_weight=_scaled(math.sqrt(1 / heads), width), in_proj_bias=_scaled(math.sqrt(1 / heads), width)
            ),
        )
        features = torch.arange(width).reshape(heads, -1).T.reshape(-1)
        rows = torch.cat([features + i * width for i in range(3)])
        yield Variant(
            "head-order",
            "takes every n-th feature into a head",
            "split features as [heads, head_dim]",
            call.with_(
                in_proj_weight=lambda w: w[rows],
                in_proj_bias=lambda b: None if b is None else b[rows],
                out_proj_weight=lambda w: w[:, features],
            ),
        )
    for other in range(1, width + 1):
        if width % other == 0 and other != heads:
            yield Variant("heads", f"has {other} heads", f"give num_heads={heads}", call.with_(num_heads=other))


def _masks(call: Called, name: str, inverted: bool = False) -> Iterator[Variant]:
    mask = call.get(name)
    if mask is None:
        return
    if mask.dtype == torch.bool:
        yield Variant(
            "mask-polarity", f"reads {name} the other way round", POLARITY, call.with_(**{name: lambda m: ~m})
        )
    else:
        flipped = torch.where(mask == 0, torch.full_like(mask, float("-inf")), torch.zeros_like(mask))
        yield Variant("mask-polarity", f"reads {name} the other way round", POLARITY, call.with_(**{name: flipped}))
        yield Variant("mask-value", f"does not add {name}", "add the mask to the products", call.with_(**{name: None}))
    yield Variant("mask-missing", f"leaves {name} out", "mask as the reference does", call.with_(**{name: None}))
    if mask.dim() > 1 and mask.shape[-1] == mask.shape[-2]:
        yield Variant(
            "mask-transposed",
            f"transposes {name}",
            "rows are queries, columns are keys",
            call.with_(**{name: lambda m: m.transpose(-1, -2)}),
        )


def _causal(call: Called, shift: int) -> torch.Tensor:
    rows, columns = call.args[0].shape[-2], call.args[1].shape[-2]
    return torch.ones(rows, columns, dtype=torch.bool).tril(shift)


def _chunks(order: tuple[int, ...]) -> Callable[[Any], Any]:
    return lambda x: None if x is None else torch.cat([x.chunk(3)[i] for i in order])


def _scaled(factor: float, width: int) -> Callable[[Any], Any]:
    return lambda x: None if x is None else torch.cat([x[:width] * factor, x[width:]])
