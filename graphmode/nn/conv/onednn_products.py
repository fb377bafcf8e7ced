"""Matrix products by oneDNN where XLA's CPU backend copies a factor first.

With the left factor transposed, which is what a gradient by a weight is made of, XLA transposes it in memory.
Milliseconds on two cores with AVX-512, float32:

| rows, K, O | XLA's | oneDNN |
|---|---|---|
| 25088, 64, 64 | 1.8 | 0.6 |
| 25088, 576, 64 | 10.7 | 7.7 |
| 6272, 256, 256 | 3.4 | 2.2 |
| 392, 4608, 512 | 6.2 | 4.4 |

Of few rows with large weights, XLA packs the weights at each call: three times the memory that is to be read once.
Microseconds, where 100 MB of other weights came in between, as in a network, and where none did:

| rows, K, O | XLA's | oneDNN | XLA's, again | oneDNN, again |
|---|---|---|---|---|
| 8, 4608, 512 | 1827 | 754 | 628 | 529 |
| 8, 2048, 512 | 864 | 391 | 222 | 280 |
| 32, 2304, 256 | 1030 | 593 | 287 | 310 |
| 49, 320, 1280 | 459 | 322 | 357 | 306 |
| 196, 672, 112 | 265 | 233 | 283 | 248 |
| 128, 512, 128 | 297 | 257 | 141 | 160 |
| 2, 256, 256 | 39 | 66 | 20 | 40 |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..onednn import call, is_free, is_there, lowered

TARGET = "__onednn$matmul"
LARGE_WEIGHT = 30_000  # elements of a weight from which on packing it costs more than the call

product = Primitive("graphmode_onednn_product")
product_of_rows = Primitive("graphmode_onednn_product_of_rows")


def times_weight(rows: jax.Array, weight: jax.Array, precision: lax.PrecisionLike = None) -> jax.Array:
    """`rows @ weight`, `[N, O]`, of `[N, K]` and `[K, O]`, where the weight is read once a call and not kept near."""
    large = rows.dtype == weight.dtype == np.float32 and len(rows) > 1 and weight.size >= LARGE_WEIGHT
    if large and is_there() and is_free():
        return product.bind(rows, weight)
    return jnp.matmul(rows, weight, precision=precision)


def over_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a.T @ b`, `[K, O]`, of `[N, K]` and `[N, O]`."""
    return product_of_rows.bind(a, b)


def _define(primitive: Primitive, by_xla: Callable[..., jax.Array], transpose_a: bool) -> None:
    def shape(a: Any, b: Any) -> ShapedArray:
        return ShapedArray((a.shape[int(transpose_a)], b.shape[1]), a.dtype)

    def by_onednn(a: jax.Array, b: jax.Array) -> jax.Array:
        config = {"onednn_matmul_config": {"transpose_a": transpose_a, "transpose_b": False}}
        result = shape(a, b)
        return call(TARGET, jax.ShapeDtypeStruct(result.shape, result.dtype), config, a, b)

    def batched(operands: Any, axes: Any) -> tuple[jax.Array, int]:
        return jax.vmap(by_xla, axes)(*operands), 0

    primitive.def_impl(jax.jit(primitive.bind))
    primitive.def_abstract_eval(shape)
    batching.primitive_batchers[primitive] = batched
    mlir.register_lowering(primitive, mlir.lower_fun(by_xla, multiple_results=False))
    rule = lowered(by_onednn, by_xla, lambda a, b: min(*a.shape, *b.shape) > 0)
    mlir.register_lowering(primitive, rule, platform="cpu")


_define(product, lambda a, b: a @ b, transpose_a=False)
_define(product_of_rows, lambda a, b: a.T @ b, transpose_a=True)
ad.defbilinear(product, lambda ct, a, b: jnp.matmul(ct, b.T), lambda ct, a, b: over_rows(a, ct))
ad.defbilinear(product_of_rows, lambda ct, a, b: jnp.matmul(b, ct.T), lambda ct, a, b: jnp.matmul(a, ct))
