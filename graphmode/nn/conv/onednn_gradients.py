"""Derivatives of the convolutions by oneDNN, forward and reverse: convolutions again, by oneDNN where that serves.

By the weight, on two cores in float32, milliseconds: one product of all columns, the batch for channels, the rows for
a batch, and PyTorch's own.

| convolution, NHWC | product | exchanged | row by row | PyTorch |
|---|---|---|---|---|
| 3x3, 8x56x56x64 to 64 | 87 | 30 | 32 | 34 |
| 3x3, 8x28x28x256 to 256 | 119 | 74 | 88 | 90 |
| 3x3, 4x14x14x256 to 256 | 10 | 13 | 11 | 14 |
| 3x3, 2x28x28x128 to 128 | 5.6 | 9.2 | 5.2 | 6.6 |
| 3x3, 1x56x56x64 to 64 | 3.8 | 6.2 | 3.1 | 2.8 |
| 3x3, 8x7x7x512 to 512 | 19 | 24 | | 33 |
| 3x3x3, 2x32x32x32x16 to 16 | | 22 | 13 | 8.7 |

On a processor with AVX-512, whose vectors a batch of 8 fills by half, and with oneDNN's own products:

| convolution, NHWC | product | one for each element of the kernel | exchanged | PyTorch |
|---|---|---|---|---|
| 3x3, 8x56x56x64 to 64 | 11 | 11 | 9.5 | 5.0 |
| 3x3, 8x28x28x256 to 256 | 25 | 23 | 53 | 18 |
| 3x3, 32x28x28x128 to 128 | 29 | 31 | 52 | 19 |
| 3x3, 8x28x28x128 to 128 | 7.8 | 8.1 | 8.8 | 5.0 |
| 3x3, 8x14x14x512 to 512 | 22 | 21 | 37 | 20 |
| 3x3, 4x14x14x256 to 256 | 3.0 | 3.4 | 4.9 | 2.4 |

Later, on such a processor and restricted to AVX2, oneDNN's products for the planes of the kernel:

| convolution, NHWC | exchanged | by planes | PyTorch | AVX2: exchanged | by planes | PyTorch |
|---|---|---|---|---|---|---|
| 3x3, 8x56x56x64 to 64 | 29 | 22 | 11 | 32 | 31 | 26 |
| 3x3, 4x56x56x64 to 64 (row by row) | 29 | 13 | 6.4 | 25 | 16 | 14 |
| 3x3, 32x28x28x64 to 64 | 40 | 27 | 9.9 | 52 | 31 | 22 |
| 3x3, 16x28x28x32 to 32 | 5.0 | 3.9 | 1.5 | 4.5 | 4.6 | 3.2 |
| 3x3x3, 2x32x32x32x16 to 16 | 32 | 18 | 5.2 | 32 | 22 | 19 |
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad

from ..windows import taps_of
from . import onednn
from .geometry import Axes, Geometry
from .lowering import pad, sums_of_products
from .onednn_products import over_rows
from .transposed_lowering import Transposed, convolve_transposed

MOST_COLUMNS = 3_500_000  # elements of what the kernel covers at all positions; with more, the product is slower
MANY_CHANNELS = 128  # from which on a product for each element of the kernel is the fastest
MANY_SEQUENCES = 64  # fewer long ones XLA's convolution serves better: 8x16000x64 to 64 takes 180 ms, oneDNN's 290
MANY_GROUPED = 16  # channels of a group, with fewer of which products for each group are slower
SMALL_BATCH = 8  # images, below which their rows make a better one


def _by_input(cotangent: jax.Array, input: Any, weight: jax.Array, *, geometry: Geometry) -> jax.Array:
    """The transposed convolution."""
    lows = tuple(low for low, _ in geometry.paddings)
    size = input.aval.shape[1:-1]
    how = Transposed(geometry.stride, lows, geometry.dilation, geometry.groups, size, "channels_last", None)
    return convolve_transposed(cotangent, weight, how)


def _by_weight(cotangent: jax.Array, input: jax.Array, weight: Any, *, geometry: Geometry) -> jax.Array:
    shape = weight.aval.shape
    kernel, groups = shape[:-2], geometry.groups
    if groups > 1 and shape[-2] == 1:
        several = jnp.repeat(input, shape[-1] // groups, -1)
        taps = taps_of(lax.optimization_barrier(pad(several, geometry.paddings)), kernel, *geometry.steps)
        return sums_of_products(tuple(taps), cotangent).reshape(shape)
    if groups == 1 and len(input) * math.prod(cotangent.shape[1:-1]) * math.prod(shape[:-1]) <= MOST_COLUMNS:
        taps = taps_of(pad(input, geometry.paddings), kernel, *geometry.steps)
        columns = jnp.concatenate([tap.reshape(-1, shape[-2]) for tap in taps], -1)
        return over_rows(columns, cotangent.reshape(len(columns), -1)).reshape(shape)
    if groups == 1 and shape[-2] >= MANY_CHANNELS:
        rows = cotangent.reshape(-1, shape[-1])
        taps = taps_of(pad(input, geometry.paddings), kernel, *geometry.steps)
        return jnp.stack([over_rows(tap.reshape(len(rows), -1), rows) for tap in taps]).reshape(shape)
    if (groups == 1 or shape[-2] >= MANY_GROUPED) and len(kernel) > 1 and geometry.stride[-2] == 1:
        alone = (*shape[:-1], shape[-1] // groups)
        blocks = zip(jnp.split(cotangent, groups, -1), jnp.split(input, groups, -1), strict=True)
        return jnp.concatenate([_by_planes(c, x, alone, geometry) for c, x in blocks], -1)
    if len(input) < SMALL_BATCH and len(kernel) > 1:
        return _row_by_row(cotangent, input, kernel, geometry)
    return _exchanged(cotangent, input, kernel, geometry)


def _by_planes(cotangent: jax.Array, input: jax.Array, shape: Axes, geometry: Geometry) -> jax.Array:
    """A product for each plane of the kernel: of the input, once for each of its columns, by the cotangent, once for
    each of its rows, since the input moved up a row meets what the cotangent moved down meets.
    """
    if len(shape) == 4:
        flat = Geometry((1, *geometry.stride), ((0, 0), *geometry.paddings), (1, *geometry.dilation))
        return _by_planes(cotangent[:, None], input[:, None], (1, *shape), flat)[0]
    depth, height, width, channels, features = shape
    planes, _, points = cotangent.shape[1:-1]
    (along, _, across), (deep, down, aside) = geometry.stride, geometry.dilation
    padded = pad(input, geometry.paddings)
    lines, reach = padded.shape[2], (height - 1) * down
    spread = pad(cotangent, ((0, 0), (reach, reach), (0, 0)))
    moved = [spread[:, :, start : start + lines] for start in range(reach, -1, -down)]
    rows = jnp.concatenate(moved, -1).reshape(-1, height * features)
    products = []
    for i in range(0, depth * deep, deep):
        plane = padded[:, i : i + (planes - 1) * along + 1 : along]
        last = (points - 1) * across + 1
        met = [plane[:, :, :, start : start + last : across] for start in range(0, width * aside, aside)]
        columns = jnp.concatenate(met, -1).reshape(-1, width * channels)
        products.append(over_rows(columns, rows).reshape(width, channels, height, features))
    return jnp.transpose(jnp.stack(products), (0, 3, 1, 2, 4))


def _row_by_row(cotangent: jax.Array, input: jax.Array, kernel: Axes, geometry: Geometry) -> jax.Array:
    """For each row of the kernel what it meets, all rows of the image being a batch."""
    none = ((0, 0),) * (len(kernel) - 1)
    padded = pad(input, (geometry.paddings[0], *none))
    last = (cotangent.shape[1] - 1) * geometry.stride[0] + 1
    across = Geometry(geometry.stride[1:], geometry.paddings[1:], geometry.dilation[1:], geometry.groups)
    rows = cotangent.reshape(-1, *cotangent.shape[2:])
    met = (
        lax.slice_in_dim(padded, start, start + last, geometry.stride[0], 1)
        for start in range(0, kernel[0] * geometry.dilation[0], geometry.dilation[0])
    )
    return jnp.stack([_exchanged(rows, x.reshape(-1, *x.shape[2:]), kernel[1:], across) for x in met])


def _exchanged(cotangent: jax.Array, input: jax.Array, kernel: Axes, geometry: Geometry) -> jax.Array:
    """A convolution of the input's channels, the batch in their place, with the cotangent for a kernel."""
    batch, *size, channels = input.shape
    outputs, groups = cotangent.shape[1:-1], geometry.groups
    images = jnp.moveaxis(input.reshape(batch, *size, groups, channels // groups), (-1, -2, 0), (0, -2, -1))
    images = images.reshape(channels // groups, *size, groups * batch)
    paddings = tuple(
        (low, d * (k - 1) + s * (m - 1) + 1 - n - low)
        for n, m, k, s, d, (low, _) in zip(
            size, outputs, kernel, geometry.stride, geometry.dilation, geometry.paddings, strict=True
        )
    )
    exchanged = Geometry(stride=geometry.dilation, paddings=paddings, dilation=geometry.stride, groups=groups)
    kernels = jnp.moveaxis(cotangent, 0, -2)
    if groups == 1 and len(kernel) == 1 and batch < MANY_SEQUENCES:
        # The layout and the padding are those with which XLA's CPU backend does not fall back to a scalar loop.
        images, kernels = lax.optimization_barrier((pad(images, paddings), kernels))
        by_channel = onednn.by_xla(images, kernels, geometry=exchanged.unpadded())
    else:
        by_channel = onednn.convolve(images, kernels, None, exchanged)
    return jnp.moveaxis(by_channel, 0, -2)


ad.defbilinear(onednn.convolution, _by_input, _by_weight)
ad.defjvp(
    onednn.biased_convolution,
    lambda tangent, input, weight, bias, geometry: onednn.convolution.bind(tangent, weight, geometry=geometry),
    lambda tangent, input, weight, bias, geometry: onednn.convolution.bind(input, tangent, geometry=geometry),
    lambda tangent, input, weight, bias, geometry: jnp.broadcast_to(
        tangent, onednn.output_shape(input, weight, geometry=geometry).shape
    ),
)
