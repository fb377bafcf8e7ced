"""Layer normalisation of rows by oneDNN, with `standardize` elsewhere and for the derivatives.

Milliseconds on two cores in float32, XLA's against oneDNN's: 4096 rows of 512 0.6 and 0.2 (PyTorch 0.3).
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ..onednn import call, is_free, is_there, lowered
from .standardize import standardize, statistics

TARGET = "__onednn$layernorm"
LEAST_SIZE = 10_000  # elements below which the call itself costs more than it gains

layer_norm = Primitive("graphmode_onednn_layer_norm")


def serves(x: jax.Array) -> bool:
    """Whether it would go to oneDNN, on a CPU, and is large enough to gain by it."""
    known = all(isinstance(n, int) for n in x.shape)
    return x.dtype == np.float32 and known and x.size >= LEAST_SIZE and is_there() and is_free()


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def normalized_rows(x: jax.Array, weight: jax.Array, bias: jax.Array, eps: float) -> jax.Array:
    """`(x - mean) / sqrt(variance + eps) * weight + bias` over the rows of `x`, `[N, D]`; the others are `[D]`."""
    return layer_norm.bind(x, weight, bias, eps=eps)


@normalized_rows.defjvp
def _normalized_rows_jvp(eps: float, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    x, weight, bias = primals
    dx, dweight, dbias = tangents
    plain = normalized_rows(x, jnp.ones_like(weight), jnp.zeros_like(bias), eps)
    rate = lax.rsqrt(statistics(x, (1,))[1] + eps)
    dplain = rate * (dx - jnp.mean(dx, 1, keepdims=True) - plain * jnp.mean(plain * dx, 1, keepdims=True))
    return plain * weight + bias, weight * dplain + plain * dweight + dbias


def _by_xla(x: jax.Array, weight: jax.Array, bias: jax.Array, *, eps: float) -> jax.Array:
    return standardize(x, None, None, (1,), eps)[0] * weight + bias


def _by_onednn(x: jax.Array, weight: jax.Array, bias: jax.Array, *, eps: float) -> jax.Array:
    (bits,) = struct.unpack("i", struct.pack("f", eps))
    config = {"onednn_layer_norm_config": {"rescale": "SCALE_AND_SHIFT", "epsilon_typecast": bits}}
    return call(TARGET, jax.ShapeDtypeStruct(x.shape, x.dtype), config, x, weight, bias)


def _batched(operands: Any, axes: Any, *, eps: float) -> tuple[jax.Array, int]:
    x, weight, bias = operands
    if axes[1] is axes[2] is None:  # lanes are more rows
        lanes = jnp.moveaxis(x, axes[0], 0)
        rows = layer_norm.bind(lanes.reshape(-1, lanes.shape[-1]), weight, bias, eps=eps)
        return rows.reshape(lanes.shape), 0
    return jax.vmap(partial(_by_xla, eps=eps), axes)(*operands), 0


layer_norm.def_impl(jax.jit(layer_norm.bind, static_argnames="eps"))
layer_norm.def_abstract_eval(lambda x, weight, bias, *, eps: ShapedArray(x.shape, x.dtype))
batching.primitive_batchers[layer_norm] = _batched
mlir.register_lowering(layer_norm, mlir.lower_fun(_by_xla, multiple_results=False))
mlir.register_lowering(
    layer_norm, lowered(_by_onednn, _by_xla, lambda x, weight, bias, *, eps: min(x.shape) > 0), platform="cpu"
)
