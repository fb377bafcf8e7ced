"""How a convolution is computed: XLA's own on accelerators, slices and matrix products where a CPU is faster with them.

XLA's CPU backend runs grouped convolutions as scalar loops and derives slow gradients for the rest. Measured on two
cores in float32, milliseconds, XLA's convolution against what is used here:

| convolution, NHWC | forward | by input | by weight |
|---|---|---|---|
| depthwise 3x3, 1x56x56x144 (gradients 2x) | 19 / 0.4 | / 0.9 | / 1.9 |
| depthwise 5x5, 1x28x28x240 (gradients 2x) | 9.9 / 0.4 | / 0.9 | / 3.6 |
| 1x1, 4x112x112x32 to 16 (gradients 2x) | 1.5 / 0.9 | 1.3 / 0.8 | 3.6 / 1.7 |
| 3x3, 4x14x14x256 to 256 (gradients 2x) | 15 / 8 | 12 / 6 | 8.1 / 7.4 |
| 3x3, 4x7x7x512 to 512 (gradients 2x) | 13 / 7 | 24 / 7 | 8.9 / 7.5 |
| 3x3, 4x56x56x64 to 64 | 16 / XLA's | XLA's | XLA's |
"""

from __future__ import annotations

from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax import lax

from .arguments import DataFormat, Paddings, Pair
from .windows import taps_of

LARGEST_UNFOLDED = 14 * 14  # output positions; ResNet-18 runs 1.13 times as fast with it, and at 28 * 28 no faster


def convolve(
    x: jax.Array,
    weight: jax.Array,
    *,
    stride: Pair,
    paddings: Paddings,
    dilation: Pair,
    groups: int,
    data_format: DataFormat,
) -> jax.Array:
    """Cross-correlation of `x`, `[B, H, W, C]` or as `data_format` says, with `weight`, `[h, w, C / groups, out]`."""
    native = partial(
        lax.conv_general_dilated,
        window_strides=stride,
        padding=paddings,
        rhs_dilation=dilation,
        feature_group_count=groups,
        dimension_numbers=(data_format, "HWIO", data_format),
    )
    size = x.shape[1:3] if data_format == "NHWC" else x.shape[2:]
    outputs = [
        (n + sum(padding) - d * (k - 1) - 1) // s + 1
        for n, padding, k, s, d in zip(size, paddings, weight.shape, stride, dilation, strict=False)
    ]
    kernel = weight.shape[:2]
    # Sums in half precision would lose what XLA's convolution keeps, and empty arrays have nothing to gain.
    if x.dtype not in (jnp.float32, jnp.float64) or not x.size or not weight.size:
        return native(x, weight)
    if groups > 1 and weight.shape[2:] == (1, groups):
        fast = partial(_depthwise, stride, paddings, dilation)
    elif groups == 1 and kernel == (1, 1):
        fast = partial(_pointwise, stride, paddings)
    elif groups == 1 and outputs[0] * outputs[1] <= LARGEST_UNFOLDED:
        fast = partial(_unfolded, stride, paddings, dilation)
    else:
        return native(x, weight)

    def on_cpu(x: jax.Array, weight: jax.Array) -> jax.Array:
        if data_format == "NHWC":
            return fast(x, weight)
        return jnp.moveaxis(fast(jnp.moveaxis(x, 1, -1), weight), -1, 1)

    return lax.platform_dependent(x, weight, cpu=on_cpu, default=native)


def _pointwise(stride: Pair, paddings: Paddings, x: jax.Array, weight: jax.Array) -> jax.Array:
    x = _padded(x, paddings)[:, :: stride[0], :: stride[1]]
    y = x.reshape(-1, x.shape[-1]) @ weight[0, 0]
    return y.reshape(*x.shape[:-1], -1)


def _unfolded(stride: Pair, paddings: Paddings, dilation: Pair, x: jax.Array, weight: jax.Array) -> jax.Array:
    """One matrix product: each row holds what the kernel covers at one position."""
    taps = taps_of(_padded(x, paddings), weight.shape[:2], stride, dilation)
    columns = jnp.concatenate(taps, -1)
    y = columns.reshape(-1, columns.shape[-1]) @ weight.reshape(columns.shape[-1], -1)
    return y.reshape(*columns.shape[:-1], -1)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _depthwise(stride: Pair, paddings: Paddings, dilation: Pair, x: jax.Array, weight: jax.Array) -> jax.Array:
    """A sum of shifted images, each times its element of the kernel: one fused loop, vectorised over the channels."""
    # Without the barrier the padding is fused into the loop, as a comparison for every element of every shift.
    padded = lax.optimization_barrier(_padded(x, paddings))
    taps = taps_of(padded, weight.shape[:2], stride, dilation)
    # `lax` rather than `jnp`: dozens of operations a layer, and jnp's way to each takes four times as long to trace.
    rows = lax.split(weight.reshape(-1, weight.shape[-1]), [1] * len(taps))
    products = [lax.mul(tap, lax.broadcast_in_dim(row, tap.shape, (0, 3))) for tap, row in zip(taps, rows, strict=True)]
    return reduce(lax.add, products)


def _depthwise_forward(stride, paddings, dilation, x, weight):
    return _depthwise(stride, paddings, dilation, x, weight), (x, weight)


def _depthwise_backward(stride, paddings, dilation, saved, cotangent):
    """By `x` a depthwise convolution again, of the cotangent spread out by the stride; by `weight` sums of products."""
    x, weight = saved
    kernel = weight.shape[:2]
    spread = [(0, 0, 0)]
    for n, y, (before, _), k, s, d in zip(
        x.shape[1:3], cotangent.shape[1:3], paddings, kernel, stride, dilation, strict=True
    ):
        low = d * (k - 1) - before
        length = (y - 1) * s + 1
        spread.append((low, n + d * (k - 1) - low - length, s - 1))
    wide = lax.pad(cotangent, jnp.zeros((), x.dtype), (*spread, (0, 0, 0)))
    by_x = _depthwise((1, 1), ((0, 0), (0, 0)), dilation, wide, weight[::-1, ::-1])
    padded = lax.optimization_barrier(_padded(x, paddings))
    by_weight = _sums_of_products(tuple(taps_of(padded, kernel, stride, dilation)), cotangent)
    return by_x, by_weight.reshape(weight.shape)


_depthwise.defvjp(_depthwise_forward, _depthwise_backward)


@jax.custom_vjp
def _sums_of_products(taps: tuple[jax.Array, ...], other: jax.Array) -> jax.Array:
    """`[taps, C]`: for each tap `sum(tap * other)` over all but the channels, all taps in one pass over the image."""
    products = tuple(lax.mul(tap, other) for tap in taps)
    zeros = (jnp.zeros((), other.dtype),) * len(taps)
    return jnp.stack(lax.reduce(products, zeros, lambda a, b: tuple(map(lax.add, a, b)), (0, 1, 2)))


def _sums_of_products_backward(saved, cotangent):
    taps, other = saved
    return tuple(c * other for c in cotangent), sum(c * tap for c, tap in zip(cotangent, taps, strict=True))


_sums_of_products.defvjp(
    lambda taps, other: (_sums_of_products(taps, other), (taps, other)), _sums_of_products_backward
)


def _padded(x: jax.Array, paddings: Paddings) -> jax.Array:
    return jnp.pad(x, ((0, 0), *paddings, (0, 0))) if any(map(any, paddings)) else x
