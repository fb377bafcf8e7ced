"""`torch.nn.functional.multi_head_attention_forward`, and the same over batch-first arrays."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from ..autocast import autocasts
from ..dropout.functional import dropout
from ..linear.functional import linear
from .masks import additive
from .scaled_dot_product import scaled_dot_product_attention, scaled_scores


def multi_head_attention_forward(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: jax.Array | None,
    in_proj_bias: jax.Array | None,
    bias_k: jax.Array | None,
    bias_v: jax.Array | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: jax.Array,
    out_proj_bias: jax.Array | None,
    training: bool = True,
    key_padding_mask: jax.Array | None = None,
    need_weights: bool = True,
    attn_mask: jax.Array | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: jax.Array | None = None,
    k_proj_weight: jax.Array | None = None,
    v_proj_weight: jax.Array | None = None,
    static_k: jax.Array | None = None,
    static_v: jax.Array | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    batch_first: bool = False,
    dropout_mask: jax.Array | None = None,
    rngs: nnx.Rngs | nnx.RngStream | None = None,
    precision: lax.PrecisionLike = None,
) -> tuple[jax.Array, jax.Array | None]:
    """What `MultiheadAttention` computes, for weights laid out as it holds them: `[in, out]`, PyTorch's transposed.

    The in-projection is one product where `query`, `key` and `value` are the same object, two where `key` and
    `value` are. A query that may attend to nothing gives NaN with `need_weights` and zero attention without, as in
    PyTorch.

    Source: the arguments of torch.nn.functional.multi_head_attention_forward.

    Args:
      query: `[L, E]` or `[L, N, E]`; `[N, L, E]` for `batch_first`.
      key, value: `[S, E]` or `[S, N, E]`; with separate weights they may have another last axis.
      embed_dim_to_check: E.
      num_heads: divides E.
      in_proj_weight: `[E, 3E]`: for query, key and value side by side.
      in_proj_bias: `[3E]`, or None.
      bias_k, bias_v: E values each that are appended to the keys and values, both or none.
      add_zero_attn: whether a key and value of zeros is appended after that.
      dropout_p: of the weights, in training.
      out_proj_weight, out_proj_bias: `[E, E]` and `[E]`, or None.
      training: whether dropout is on.
      key_padding_mask: `[N, S]` or `[S]`: True for keys to ignore, or floats to add to the scores.
      need_weights: whether to return the weights, which is slower.
      attn_mask: `[L, S]` or `[N * num_heads, L, S]`: True where attention is prevented, or floats to add.
      use_separate_proj_weight: whether the next three are used in place of `in_proj_weight`.
      q_proj_weight, k_proj_weight, v_proj_weight: `[Eq, E]`, `[Ek, E]`, `[Ev, E]`.
      static_k, static_v: `[N * num_heads, S, E / num_heads]`, in place of the projected keys and values.
      average_attn_weights: whether the weights are averaged over the heads.
      is_causal: says that `attn_mask` is causal; it is then not read where there is neither `need_weights` nor
        `key_padding_mask`.
      batch_first: ours: whether the batch is the first axis of `query`, `key`, `value` and the output.
      dropout_mask: ours: broadcasts to `[N, num_heads, L, S]`, True where a weight is kept.
      rngs: ours: what dropout is drawn from (`dropout`).
      precision: ours: of all products.

    Returns:
      The output, shaped as `query`; and the weights: None, `[N, L, S]`, or `[N, num_heads, L, S]` without averaging (no
      N where the input has none).

    Raises:
      ValueError: for shapes that do not fit, and `is_causal` without `attn_mask`.
      TypeError: for dtypes that do not fit.
    """
    batched = _check_ranks(query, key, value, key_padding_mask, attn_mask)
    if not batched:
        query, key, value = _each(lambda x: x[None], query, key, value)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
    elif not batch_first:
        query, key, value = _each(lambda x: jnp.swapaxes(x, 0, 1), query, key, value)
    batch, length, embed_dim = query.shape
    _check_shapes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    if is_causal and attn_mask is None:
        raise ValueError(
            "is_causal says that attn_mask is causal, and there is none; give "
            "Transformer.generate_square_subsequent_mask(length)"
        )
    hint = is_causal and key_padding_mask is None and not need_weights
    if attn_mask is not None:
        attn_mask = _four_axes(attn_mask, batch, num_heads, length, key.shape[1])
        attn_mask = None if hint else additive("attn_mask", attn_mask, query.dtype)
    key_padding_mask = additive("key_padding_mask", key_padding_mask, query.dtype)

    if use_separate_proj_weight:
        separate = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = _project_separately(query, key, value, separate, in_proj_bias, precision)
    else:
        q, k, v = _project_packed(query, key, value, in_proj_weight, in_proj_bias, precision)
    if (bias_k is None) != (bias_v is None):
        raise ValueError(f"bias_{'k' if bias_k is None else 'v'} is None and the other is not; give both or none")
    appended = 0
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise ValueError("bias_k and bias_v are given with static_k or static_v; give one kind")
        k, v = (_with_row(x, bias) for x, bias in ((k, bias_k), (v, bias_v)))
        appended += 1
    q, k, v = (x.reshape(*x.shape[:2], num_heads, embed_dim // num_heads).swapaxes(1, 2) for x in (q, k, v))
    k = _static("static_k", static_k, k)
    v = _static("static_v", static_v, v)
    if add_zero_attn:
        k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0))) for x in (k, v))
        appended += 1
    mask = _merged(attn_mask, key_padding_mask, appended, batch, k.shape[2])

    drawn = _Dropout(dropout_p if training else 0.0, dropout_mask, rngs)
    weights: jax.Array | None = None
    if need_weights:
        attended, weights = _with_weights(q, k, v, mask, drawn, precision)
        weights = jnp.mean(weights, 1) if average_attn_weights else weights
        weights = weights if batched else weights[0]
    else:
        attended = scaled_dot_product_attention(
            q, k, v, mask, drawn.p, hint, dropout_mask=drawn.mask, rngs=drawn.rngs, precision=precision
        )
    output = attended.swapaxes(1, 2).reshape(batch, length, embed_dim)
    output = linear(output, out_proj_weight, out_proj_bias, precision=precision)
    if not batched:
        return output[0], weights
    return output if batch_first else jnp.swapaxes(output, 0, 1), weights


class _Dropout(NamedTuple):
    p: float
    mask: jax.Array | None
    rngs: nnx.Rngs | nnx.RngStream | None


def _with_weights(q, k, v, mask, drawn: _Dropout, precision) -> tuple[jax.Array, jax.Array]:
    """`[N, heads, L, E]` attended to and the weights `[N, heads, L, S]`; NaN where a query attends to nothing."""
    if mask is not None and mask.dtype != q.dtype and not (mask.dtype == np.float32 and q.dtype.itemsize == 2):
        raise TypeError(f"the mask is {mask.dtype} and query {q.dtype}; with need_weights give booleans or {q.dtype}")
    weights = _softmax(scaled_scores(q, k, None, mask, precision=precision), like=q.dtype)
    weights = dropout(weights, drawn.p, True, rngs=drawn.rngs, mask=drawn.mask)
    return jnp.matmul(weights.astype(v.dtype), v, precision=precision), weights


def _softmax(scores: jax.Array, *, like: jnp.dtype, dtype: jnp.dtype | None = None) -> jax.Array:
    return jax.nn.softmax(scores, -1).astype(like if dtype is None else dtype)


_softmax.__name__ = "softmax"  # whose rule it follows
_softmax = autocasts(_softmax)


def _project_packed(query, key, value, weight, bias, precision) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries, keys and values `[N, length, E]`, in as few products as the arguments allow."""
    embed_dim = query.shape[-1]
    if weight is None:
        raise ValueError("in_proj_weight is None; give it, or set use_separate_proj_weight")
    if weight.shape != (embed_dim, 3 * embed_dim):
        raise ValueError(f"in_proj_weight has shape {weight.shape}, and {(embed_dim, 3 * embed_dim)} was wanted")
    _check_in_proj_bias(bias, embed_dim)
    if query is key and key is value:
        q, k, v = jnp.split(linear(query, weight, bias, precision=precision), 3, -1)
        return q, k, v
    first, rest = weight[:, :embed_dim], weight[:, embed_dim:]
    bias_first, bias_rest = (None, None) if bias is None else (bias[:embed_dim], bias[embed_dim:])
    q = linear(query, first, bias_first, precision=precision)
    if key is value:
        k, v = jnp.split(linear(key, rest, bias_rest, precision=precision), 2, -1)
        return q, k, v
    k, v = (
        linear(x, w, b, precision=precision)
        for x, w, b in zip((key, value), jnp.split(rest, 2, -1), _split(bias_rest, 2), strict=True)
    )
    return q, k, v


def _project_separately(query, key, value, weights, bias, precision) -> tuple[jax.Array, jax.Array, jax.Array]:
    embed_dim = query.shape[-1]
    for name, x, weight in zip("qkv", (query, key, value), weights, strict=True):
        if weight is None:
            raise ValueError(f"use_separate_proj_weight is set and {name}_proj_weight is None; give it")
        if weight.shape != (x.shape[-1], embed_dim):
            raise ValueError(
                f"{name}_proj_weight has shape {weight.shape}, and {(x.shape[-1], embed_dim)} was wanted, [in, out]"
            )
    _check_in_proj_bias(bias, embed_dim)
    q, k, v = (
        linear(x, weight, b, precision=precision)
        for x, weight, b in zip((query, key, value), weights, _split(bias, 3), strict=True)
    )
    return q, k, v


def _split(bias: jax.Array | None, parts: int) -> list[jax.Array] | list[None]:
    return [None] * parts if bias is None else jnp.split(bias, parts)


def _with_row(x: jax.Array, bias: jax.Array) -> jax.Array:
    """`[N, S + 1, E]`: the bias as one more position of every sequence."""
    if bias.size != x.shape[-1]:
        raise ValueError(f"bias_k or bias_v has shape {bias.shape}, and {(1, 1, x.shape[-1])} was wanted")
    row = jnp.broadcast_to(bias.reshape(1, 1, -1), (x.shape[0], 1, x.shape[-1]))
    return jnp.concatenate([x, row.astype(x.dtype)], 1)


def _static(name: str, static: jax.Array | None, x: jax.Array) -> jax.Array:
    """`[N, heads, S, E / heads]`: the given one where there is one."""
    if static is None:
        return x
    batch, heads, _, width = x.shape
    if static.ndim != 3 or static.shape[0] != batch * heads or static.shape[2] != width:
        raise ValueError(f"{name} has shape {static.shape}, and [{batch * heads}, S, {width}] was wanted")
    return static.reshape(batch, heads, *static.shape[1:])


def _merged(attn_mask, key_padding_mask, appended: int, batch: int, keys: int) -> jax.Array | None:
    """Both additive masks as one that broadcasts to `[N, heads, L, S]`; what was appended to the keys is not masked."""
    if attn_mask is not None:
        attn_mask = jnp.pad(attn_mask, ((0, 0),) * 3 + ((0, appended),))
    if key_padding_mask is None:
        return attn_mask
    key_padding_mask = jnp.pad(key_padding_mask, ((0, 0), (0, appended)))
    if key_padding_mask.shape != (batch, keys):
        wanted = (batch, keys - appended)
        given = (key_padding_mask.shape[0], key_padding_mask.shape[1] - appended)
        raise ValueError(f"key_padding_mask has shape {given}, and [N, S] = {wanted} was wanted")
    key_padding_mask = key_padding_mask[:, None, None, :]
    return key_padding_mask if attn_mask is None else attn_mask + key_padding_mask


def _four_axes(attn_mask: jax.Array, batch: int, heads: int, length: int, keys: int) -> jax.Array:
    if attn_mask.shape == (length, keys):
        return attn_mask[None, None]
    if attn_mask.shape == (batch * heads, length, keys):
        return attn_mask.reshape(batch, heads, length, keys)
    raise ValueError(
        f"attn_mask has shape {attn_mask.shape}, and [L, S] = {(length, keys)} or [N * num_heads, L, S] = "
        f"{(batch * heads, length, keys)} was wanted"
    )


def _each(function, query, key, value) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Arguments that are one object stay one."""
    query_is_key, key_is_value = query is key, key is value
    key = function(key)
    return key if query_is_key else function(query), key, key if key_is_value else function(value)


def _check_ranks(query, key, value, key_padding_mask, attn_mask) -> bool:
    """Whether there is a batch."""
    if query.ndim not in (2, 3):
        raise ValueError(f"query has shape {query.shape}; give 3 axes, or 2 without a batch")
    for name, array, ranks in (
        ("key", key, (query.ndim,)),
        ("value", value, (query.ndim,)),
        ("key_padding_mask", key_padding_mask, (query.ndim - 1,)),
        ("attn_mask", attn_mask, (2, 3)),
    ):
        if array is not None and array.ndim not in ranks:
            wanted = " or ".join(map(str, ranks))
            raise ValueError(f"{name} has shape {array.shape}; give {wanted} axes, since query has {query.ndim}")
    return query.ndim == 3


def _check_shapes(query, key, value, embed_dim: int, num_heads: int, separate: bool) -> None:
    if query.shape[-1] != embed_dim:
        raise ValueError(f"query has {query.shape[-1]} features, and embed_dim = {embed_dim} was wanted")
    if embed_dim % num_heads:
        raise ValueError(f"embed_dim is {embed_dim}, which num_heads = {num_heads} does not divide")
    if key.shape[:2] != value.shape[:2] or (not separate and key.shape != value.shape):
        raise ValueError(f"key and value differ in shape, without a batch or with it first: {key.shape}, {value.shape}")
    if key.shape[0] != query.shape[0]:
        raise ValueError(f"query has a batch of {query.shape[0]}, and key one of {key.shape[0]}")


def _check_in_proj_bias(bias: jax.Array | None, embed_dim: int) -> None:
    if bias is not None and bias.shape != (3 * embed_dim,):
        raise ValueError(f"in_proj_bias has shape {bias.shape}, and {(3 * embed_dim,)} was wanted")
