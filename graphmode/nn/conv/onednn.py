"""Convolutions by oneDNN, the kernels that PyTorch's own run on, with `lax.conv_general_dilated` elsewhere.

Forward with a bias, on two cores in float32, milliseconds:

| convolution, NHWC | XLA's | oneDNN here | PyTorch |
|---|---|---|---|
| 3x3, 8x56x56x64 to 64 | 27 | 11 | 11 |
| 3x3, 8x28x28x256 to 256 | 53 | 42 | 42 |
| 7x7 stride 2, 8x224x224x3 to 64 | 25 | 13 | 16 |
| 3x3 dilated by 2, 8x56x56x64 to 64 | 25 | 11 | 15 |
| 3x3 in 4 groups, 8x56x56x64 to 64 | 68 | 6.2 | 6.5 |
| 3x3x3, 2x16x16x16x32 to 32 | 16 | 2.6 | 2.5 |
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ..onednn import call, is_free, is_there, lowered
from .geometry import Axes, Geometry
from .native import native

TARGET = "__onednn$convolution"
LEAST_WORK = 2_000_000  # multiplications and additions below which the call itself costs more than it gains

convolution = Primitive("graphmode_onednn_convolution")
biased_convolution = Primitive("graphmode_onednn_biased_convolution")


def serves(size: Axes, input: jax.Array, weight: jax.Array, geometry: Geometry) -> bool:
    """Whether these would go to oneDNN, on a CPU, and are large enough to gain by it; `size` is the image's."""
    shapes = (*input.shape, *weight.shape)
    if input.dtype != np.float32 or weight.dtype != np.float32 or not all(isinstance(n, int) for n in shapes):
        return False
    if not is_there() or not is_free() or not _is_safe(weight.shape[:-2], geometry):
        return False
    outputs = math.prod(geometry.output(size, weight.shape[:-2]))
    return input.shape[0] * outputs * math.prod(weight.shape) >= LEAST_WORK


def _is_safe(kernel: Axes, geometry: Geometry) -> bool:
    """Whether every output sees some of the image: where one sees zeros alone, oneDNN 3.7 with a bias may crash."""
    reach = [d * (k - 1) for d, k in zip(geometry.dilation, kernel, strict=True)]
    return all(max(pair) <= most for pair, most in zip(geometry.paddings, reach, strict=True))


def convolve(input: jax.Array, weight: jax.Array, bias: jax.Array | None, geometry: Geometry) -> jax.Array:
    """Cross-correlation of `input`, `[B, *spatial, C]`, with `[*kernel, C / groups, out]`, plus `bias`, `[out]`."""
    cut = [(min(low, 0), min(high, 0), 0) for low, high in geometry.paddings]
    if any(map(any, cut)):  # oneDNN adds zeros, and takes nothing away
        input = lax.pad(input, jnp.zeros((), input.dtype), ((0, 0, 0), *cut, (0, 0, 0)))
        geometry = geometry.padded(tuple((max(low, 0), max(high, 0)) for low, high in geometry.paddings))
    if bias is None:
        return convolution.bind(input, weight, geometry=geometry)
    return biased_convolution.bind(input, weight, bias, geometry=geometry)


def by_xla(input: jax.Array, weight: jax.Array, bias: jax.Array | None = None, *, geometry: Geometry) -> jax.Array:
    """What `convolve` gives, without oneDNN."""
    return native(input, weight, bias, geometry)


def output_shape(input: Any, weight: Any, *bias: Any, geometry: Geometry) -> ShapedArray:
    """Of what `convolve` gives for operands of such shapes."""
    size = geometry.output(input.shape[1:-1], weight.shape[:-2])
    return ShapedArray((input.shape[0], *size, weight.shape[-1]), input.dtype)


def _by_onednn(input: jax.Array, weight: jax.Array, *bias: jax.Array, geometry: Geometry) -> jax.Array:
    shape = output_shape(input, weight, geometry=geometry)
    result = jax.ShapeDtypeStruct(shape.shape, shape.dtype)
    return call(TARGET, result, _configuration(weight, len(bias), geometry), input, weight, *bias)


def _configuration(weight: jax.Array, biases: int, geometry: Geometry) -> dict[str, Any]:
    rank = weight.ndim
    spatial = list(range(rank - 2))
    image = {"dims": rank, "data": {"batch_dim": 0, "feature_dim": rank - 1, "spatial_dims": [i + 1 for i in spatial]}}
    kernel = {"input_feature_dim": rank - 2, "output_feature_dim": rank - 1, "spatial_dims": spatial}
    window = {
        "size": list(weight.shape[:-2]),
        "pad_left": [low for low, _ in geometry.paddings],
        "pad_right": [high for _, high in geometry.paddings],
        "strides": list(geometry.stride),
        "window_dilations": list(geometry.dilation),
    }
    config: dict[str, Any] = {
        "dims": rank,
        "input": image,
        "kernel": {"dims": rank, "filter": kernel},
        "output": image,
        "window": window,
        "feature_groups": geometry.groups,
    }
    if biases:
        config["fusions"] = {"ops": ["BIAS"]}
    return {"onednn_conv_config": config}


def _batched(operands: Any, axes: Any, *, geometry: Geometry) -> tuple[jax.Array, int]:
    """Lanes with the weights in common are more images; lanes with weights of their own are more groups."""
    input, weight, *bias = operands
    if bias and axes[2] is not None:  # a bias for each lane
        product = jax.vmap(lambda x, w: convolve(x, w, None, geometry), axes[:2])
        output = convolve(input, weight, None, geometry)[None] if axes[0] is axes[1] is None else product(input, weight)
        each = jnp.moveaxis(bias[0], axes[2], 0)
        return output + each.reshape(len(each), *[1] * (output.ndim - 2), -1), 0
    lanes = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    if axes[1] is None:
        images = _led(input, axes[0], lanes)
        shared = bias[0] if bias else None
        output = convolve(images.reshape(-1, *images.shape[2:]), weight, shared, geometry)
        return output.reshape(*images.shape[:2], *output.shape[1:]), 0
    pairs = (jnp.moveaxis(_led(x, axis, lanes), 0, -2) for x, axis in zip((input, weight), axes[:2], strict=True))
    images, kernels = (x.reshape(*x.shape[:-2], -1) for x in pairs)
    biases = jnp.tile(bias[0], lanes) if bias else None
    output = convolve(images, kernels, biases, replace(geometry, groups=lanes * geometry.groups))
    return output.reshape(*output.shape[:-1], lanes, -1), output.ndim - 1


def _led(x: jax.Array, axis: int | None, lanes: int) -> jax.Array:
    """`x` with its lanes ahead of the other axes."""
    return jnp.broadcast_to(x, (lanes, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)


for _primitive in (convolution, biased_convolution):
    _primitive.def_impl(jax.jit(_primitive.bind, static_argnames="geometry"))
    _primitive.def_abstract_eval(output_shape)
    batching.primitive_batchers[_primitive] = _batched
    mlir.register_lowering(_primitive, mlir.lower_fun(by_xla, multiple_results=False))
    mlir.register_lowering(
        _primitive,
        lowered(_by_onednn, by_xla, lambda _, w, *b, geometry: _is_safe(w.shape[:-2], geometry)),
        platform="cpu",
    )
