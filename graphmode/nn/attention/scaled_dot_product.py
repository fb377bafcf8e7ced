"""`torch.nn.functional.scaled_dot_product_attention`."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from ..arguments import check_floating, check_same_dtype
from ..autocast import autocasts
from ..dropout.functional import dropout


@autocasts
def scaled_dot_product_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    attn_mask: jax.Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    dropout_mask: jax.Array | None = None,
    rngs: nnx.Rngs | nnx.RngStream | None = None,
    precision: lax.PrecisionLike = None,
) -> jax.Array:
    """`softmax(query @ key^T * scale + attn_mask) @ value`; a query that may attend to nothing gives zeros.

    Leading axes broadcast. Half precisions keep the scores and the softmax in float32. Dropout follows `dropout_p`
    alone, in evaluation too.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html

    Args:
      query: `[..., heads, L, E]`, as are the others but for lengths; `[..., L, E]` does.
      key: `[..., heads, S, E]`.
      value: `[..., heads, S, Ev]`.
      attn_mask: broadcasts to `[..., heads, L, S]`: boolean, True where a query attends to a key (the opposite of
        `MultiheadAttention`'s masks); or in the dtype of `query` or float32, added to the scores.
      dropout_p: probability that a weight is zeroed.
      is_causal: query `i` attends to keys `0..i`, also where L differs from S. Excludes `attn_mask`.
      scale: 1 / sqrt(E) where it is None.
      enable_gqa: `key` and `value` may have fewer heads, each serving as many consecutive query heads.
      dropout_mask: `[..., heads, L, S]`, True where a weight is kept; drawn from `rngs` where it is None.
      rngs: what dropout is drawn from (`dropout`).
      precision: of the two products.

    Returns:
      `[..., heads, L, Ev]`, in the dtype of `query`.

    Raises:
      ValueError: for shapes that do not fit, or both of `is_causal` and `attn_mask`.
      TypeError: for dtypes that differ, or a mask of another dtype.
    """
    _check(query, key, value, enable_gqa)
    if is_causal and attn_mask is not None:
        raise ValueError("is_causal is set and attn_mask is given; put the causal mask into attn_mask, or drop it")
    scores = scaled_scores(query, key, scale, attn_mask, is_causal=is_causal, grouped=enable_gqa, precision=precision)
    weights = dropout(_softmax_or_zeros(scores), dropout_p, True, rngs=rngs, mask=dropout_mask)
    return _matmul(weights.astype(value.dtype), value, enable_gqa, precision)


def scaled_scores(
    query: jax.Array,
    key: jax.Array,
    scale: float | None,
    mask: jax.Array | None,
    *,
    is_causal: bool = False,
    grouped: bool = False,
    precision: lax.PrecisionLike = None,
) -> jax.Array:
    """`[..., heads, L, S]`, in float32 for half precisions; what goes into the softmax."""
    if scale is None:
        scale = 1 / math.sqrt(max(query.shape[-1], 1))
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = _matmul(query, jnp.swapaxes(key, -1, -2), grouped, precision, wide) * scale
    length, keys = scores.shape[-2:]
    if is_causal:
        earlier = lax.broadcasted_iota(jnp.int32, (length, keys), 0) >= lax.broadcasted_iota(
            jnp.int32, (length, keys), 1
        )
        scores = jnp.where(earlier, scores, -jnp.inf)
    if mask is None:
        return scores
    if mask.dtype not in (jnp.bool_, jnp.float32, query.dtype):
        raise TypeError(f"attn_mask is {mask.dtype}; give booleans, float32 or the dtype of query, {query.dtype}")
    flat = mask.ndim < 2 and scores.ndim == 4  # which the kernels of PyTorch that are fused refuse, and its others take
    if flat or not _broadcasts(mask.shape, scores.shape):
        raise ValueError(f"attn_mask has shape {mask.shape}, which does not broadcast to {scores.shape}")
    if mask.dtype == jnp.bool_:
        mask = jnp.where(mask, 0.0, -jnp.inf)
    return scores + mask.astype(wide)


@jax.custom_jvp
def _softmax_or_zeros(scores: jax.Array) -> jax.Array:
    """Softmax over the last axis; zeros where all of it is -inf, with no gradient."""
    largest = jnp.max(scores, -1, keepdims=True, initial=-jnp.inf)
    exponentials = jnp.exp(scores - jnp.where(largest == -jnp.inf, 0, largest))
    total = jnp.sum(exponentials, -1, keepdims=True)
    return exponentials / jnp.where(total == 0, 1, total)


@_softmax_or_zeros.defjvp
def _softmax_or_zeros_jvp(primals, tangents):
    weights = _softmax_or_zeros(*primals)
    weighted = weights * tangents[0]
    return weights, weighted - weights * jnp.sum(weighted, -1, keepdims=True)


def _matmul(
    a: jax.Array, b: jax.Array, grouped: bool, precision: lax.PrecisionLike, dtype: jnp.dtype | None = None
) -> jax.Array:
    """`a @ b`; `grouped` where `a` has a multiple of the heads of `b`, which are then never copied."""
    if not grouped or a.shape[-3] == b.shape[-3]:
        return jnp.matmul(a, b, precision=precision, preferred_element_type=dtype)
    heads, length, inner = a.shape[-3:]
    folded = a.reshape(*a.shape[:-3], b.shape[-3], heads // b.shape[-3] * length, inner)
    product = jnp.matmul(folded, b, precision=precision, preferred_element_type=dtype)
    return product.reshape(*product.shape[:-3], heads, length, b.shape[-1])


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    if len(shape) > len(to):
        return False
    return all(n in (1, m) for n, m in zip(reversed(shape), reversed(to), strict=False))


def _check(query: jax.Array, key: jax.Array, value: jax.Array, grouped: bool) -> None:
    check_same_dtype(query=query, key=key, value=value)
    check_floating("query", query)
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    least = 3 if grouped else 2
    if min(query.ndim, key.ndim, value.ndim) < least:
        raise ValueError(f"{shapes}: each wants {least} axes or more{' for enable_gqa' if grouped else ''}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"{shapes}: query and key differ in their last axis")
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"{shapes}: key and value differ in their length, the axis before the last")
    leading = [array.shape[:-least] for array in (query, key, value)]
    try:
        jnp.broadcast_shapes(*leading)
    except ValueError:
        hint = "" if grouped else "; set enable_gqa for key and value with fewer heads"
        raise ValueError(f"{shapes}: their leading axes do not broadcast{hint}") from None
    if grouped:
        heads = query.shape[-3]
        for array in (key, value):
            if array.shape[-3] == 0 or heads % array.shape[-3]:
                raise ValueError(f"{shapes}: for enable_gqa, heads of key and value divide those of query")
