"""How a convolution is computed: XLA's own on accelerators; on a CPU oneDNN's, or slices and matrix products.

`onednn.py` says what oneDNN serves, which is float32 of some size. What follows is of the rest.

XLA's CPU backend runs grouped convolutions as scalar loops, and those over volumes and some gradients hardly better.
Measured on two cores in float32, milliseconds, XLA's convolution against what is used here:

| convolution, NHWC | forward | by input | by weight |
|---|---|---|---|
| depthwise 3x3, 1x56x56x144 (gradients 2x) | 19 / 0.4 | / 0.9 | / 1.9 |
| depthwise 5x5, 1x28x28x240 (gradients 2x) | 9.9 / 0.4 | / 0.9 | / 3.6 |
| 1x1, 4x112x112x32 to 16 (gradients 2x) | 1.5 / 0.9 | 1.3 / 0.8 | 3.6 / 1.7 |
| 3x3, 4x14x14x256 to 256 (gradients 2x) | 15 / 8 | 12 / 6 | 8.1 / 7.4 |
| 3x3, 4x7x7x512 to 512 (gradients 2x) | 13 / 7 | 24 / 7 | 8.9 / 7.5 |
| 3x3, 4x56x56x64 to 64 | 16 / XLA's | XLA's | XLA's |

The same on two cores that others kept busy, the best of several runs:

| convolution, channels last | forward | by input | by weight |
|---|---|---|---|
| 3x3 in 32 groups, 2x28x28x128 | 12 / 1.7 | both 3200 / 2.5 | |
| 5x5 in 2 groups, 2x27x27x96 to 256 | 75 / 4.6 | both 810 / 20 | |
| 3x3x3, 1x16x16x16x16 to 16 | 8 / 0.9 | 6 / 0.7 | 44 / 0.8 |
| 3x3x3, 1x24x24x24x32 to 32 | 170 / 5 | 160 / 21 | 280 / 21 |
| 3x3 with padding 2, 4x28x28x64 to 64 | 1.5 / 3.9 | 8.6 / 2.7 | 280 / 4 |
| 2 with padding 1, 2x500x64 to 256 | 0.6 / 0.5 | 0.6 / 0.5 | 290 / 0.6 |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..compiled_once import compiled_once
from ..folded_sum import added_up, is_large, largest_divisor
from ..layout import Layout, from_channels_last, to_channels_last
from ..windows import taps_of
from . import onednn
from .geometry import Geometry, Paddings
from .native import native, with_bias
from .onednn_products import times_weight

FEW_GROUPS = 8
MOST_COLUMNS = 4_000_000  # elements of all that the kernel covers; beyond, groups one by one are 2 to 9 times as fast
MANY_ROWS = 128  # output positions from which on oneDNN's own order of the weights pays
MANY_POINTS = 1024  # likewise, of a kernel of one element
MOST_SLICES = 64  # to unfold with: 256 of them take XLA 8 s to compile, and their gradients 20
# Of the sums of products over an image: how many LLVM unrolls, and in which pieces of a line it does best.
MOST_UNROLLED = 72
FEW_TAPS, LONGEST_PIECE, LONGEST_PIECE_OF_MANY = 9, 8, 14
MANY = 1 << 14  # elements of what is left of a product, from which on they are added up once more in the same way
LARGEST_UNFOLDED = 14 * 14  # output positions; ResNet-18 runs 1.13 times as fast with it, and at 28 * 28 no faster

Product = Callable[[jax.Array, jax.Array], jax.Array]
Convolution = Callable[[jax.Array, jax.Array, jax.Array | None], jax.Array]


@compiled_once("geometry", "layout", "precision")
def convolve(
    input: jax.Array,
    weight: jax.Array,
    geometry: Geometry,
    layout: Layout,
    precision: lax.PrecisionLike,
    bias: jax.Array | None = None,
) -> jax.Array:
    """Cross-correlation of `input`, `[B, *spatial, C]` or as `layout` says, with `[*kernel, C / groups, out]`."""
    if _algorithm(input, weight, geometry, layout, precision) is None:
        return native(input, weight, bias, geometry, layout, precision)
    return lax.platform_dependent(
        input,
        weight,
        bias,
        cpu=partial(convolve_on_cpu, geometry=geometry, layout=layout, precision=precision),
        default=partial(native, geometry=geometry, layout=layout, precision=precision),
    )


def convolve_on_cpu(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    geometry: Geometry,
    layout: Layout,
    precision: lax.PrecisionLike,
) -> jax.Array:
    """The same where the platform is known to be a CPU."""
    fast = _algorithm(input, weight, geometry, layout, precision)
    if fast is None:
        return native(input, weight, bias, geometry, layout, precision)
    spatial = weight.ndim - 2
    output = fast(to_channels_last(input, layout, spatial), weight, bias)
    return from_channels_last(output, layout, spatial)


def _algorithm(
    input: jax.Array, weight: jax.Array, geometry: Geometry, layout: Layout, precision: lax.PrecisionLike
) -> Convolution | None:
    """What is faster than XLA's own on a CPU, for channels last; None where its own is as fast."""
    kernel = weight.shape[:-2]
    size = input.shape[1:-1] if layout == "channels_last" else input.shape[2:]
    # Sums in half precision would lose what XLA's convolution keeps, and empty arrays have nothing to gain.
    if input.dtype not in (np.float32, np.float64) or not input.size or not weight.size:
        return None
    outputs = math.prod(geometry.output(size, kernel))
    least = 0 if geometry.groups > 1 else MANY_ROWS if math.prod(kernel) > 1 else MANY_POINTS
    if input.shape[0] * outputs >= least and onednn.serves(size, input, weight, geometry):
        return partial(onednn.convolve, geometry=geometry)
    product = _product(input, weight, outputs, geometry, size, precision)
    return None if product is None else partial(_then_biased, product)


def _then_biased(product: Product, input: jax.Array, weight: jax.Array, bias: jax.Array | None) -> jax.Array:
    return with_bias(product(input, weight), bias, "channels_last", weight.ndim - 2)


def _product(
    input: jax.Array,
    weight: jax.Array,
    outputs: int,
    geometry: Geometry,
    size: Sequence[int],
    precision: lax.PrecisionLike,
) -> Product | None:
    """What is faster than XLA's own without oneDNN."""
    *kernel, per_group, _ = weight.shape
    if geometry.groups > 1 and per_group == 1:
        return partial(_channelwise, geometry)
    if geometry.groups > 1:
        columns = outputs * input.shape[0] * math.prod(kernel) * per_group
        few = geometry.groups <= FEW_GROUPS or columns * geometry.groups > MOST_COLUMNS
        return partial(_group_by_group if few else _batched_groups, geometry, precision)
    if math.prod(kernel) == 1:
        return partial(_pointwise, geometry, precision)
    if outputs <= LARGEST_UNFOLDED and min(outputs, math.prod(kernel)) <= MOST_SLICES:
        return partial(_unfolded, geometry, precision)
    if len(kernel) == 3:
        return partial(_by_planes, geometry, precision)
    if any(m > n for m, n in zip(geometry.output(size, kernel), size, strict=True)):
        return partial(_padded_first, geometry, precision)
    return None


def _pointwise(geometry: Geometry, precision: lax.PrecisionLike, input: jax.Array, weight: jax.Array) -> jax.Array:
    strided = pad(input, geometry.paddings)[:, *(slice(None, None, s) for s in geometry.stride)]
    rows = strided.reshape(-1, strided.shape[-1])
    return times_weight(rows, weight.reshape(weight.shape[-2:]), precision).reshape(*strided.shape[:-1], -1)


def _unfolded(geometry: Geometry, precision: lax.PrecisionLike, input: jax.Array, weight: jax.Array) -> jax.Array:
    """One matrix product: each row holds what the kernel covers at one position.

    It is sliced by elements of the kernel, or, where there are fewer, by output positions: each slice is compiled.
    """
    *kernel, _, _ = weight.shape
    padded = pad(input, geometry.paddings)
    outputs = geometry.output(input.shape[1:-1], kernel)
    if math.prod(kernel) <= math.prod(outputs):
        columns = jnp.concatenate(taps_of(padded, kernel, geometry.stride, geometry.dilation), -1)
    else:
        # with stride and dilation exchanged, the elements that one position covers are those that one tap meets
        windows = taps_of(padded, outputs, geometry.dilation, geometry.stride)
        cut = tuple(slice(k) for k in kernel)
        columns = jnp.stack([window[:, *cut].reshape(len(input), -1) for window in windows], 1)
        columns = columns.reshape(len(input), *outputs, -1)
    rows = columns.reshape(-1, columns.shape[-1])
    return times_weight(rows, weight.reshape(rows.shape[-1], -1), precision).reshape(*columns.shape[:-1], -1)


def _by_planes(geometry: Geometry, precision: lax.PrecisionLike, input: jax.Array, weight: jax.Array) -> jax.Array:
    """A sum of convolutions of planes, one for each element of the kernel's depth."""
    none = ((0, 0), (0, 0))
    padded = pad(input, (geometry.paddings[0], *none))
    stride, dilation = geometry.stride[0], geometry.dilation[0]
    depth = (padded.shape[1] - dilation * (weight.shape[0] - 1) - 1) // stride + 1
    plane = Geometry(geometry.stride[1:], geometry.paddings[1:], geometry.dilation[1:])
    products = []
    for i, kernel in enumerate(weight):
        planes = padded[:, i * dilation : i * dilation + (depth - 1) * stride + 1 : stride]
        y = convolve_on_cpu(planes.reshape(-1, *planes.shape[2:]), kernel, None, plane, "channels_last", precision)
        products.append(y.reshape(*planes.shape[:2], *y.shape[1:]))
    return reduce(lax.add, products)


def _padded_first(geometry: Geometry, precision: lax.PrecisionLike, input: jax.Array, weight: jax.Array) -> jax.Array:
    """XLA's own, of an input with its padding in memory.

    Where the output is larger than the input, XLA would take the convolution that is the gradient by the weight for
    one with its operands exchanged, and its CPU backend runs that as a scalar loop.
    """
    padded = lax.optimization_barrier(pad(input, geometry.paddings))
    return native(padded, weight, None, geometry.unpadded(), "channels_last", precision)


def _group_by_group(geometry: Geometry, precision: lax.PrecisionLike, input: jax.Array, weight: jax.Array) -> jax.Array:
    """One convolution after another, each of a block of channels."""
    alone = Geometry(geometry.stride, geometry.paddings, geometry.dilation)
    blocks = zip(jnp.split(input, geometry.groups, -1), jnp.split(weight, geometry.groups, -1), strict=True)
    return jnp.concatenate([convolve_on_cpu(x, w, None, alone, "channels_last", precision) for x, w in blocks], -1)


def _batched_groups(geometry: Geometry, precision: lax.PrecisionLike, input: jax.Array, weight: jax.Array) -> jax.Array:
    """The same in one batched product, of what the kernel covers at each position."""
    taps = _taps(geometry, input, weight)
    shape = taps[0].shape[:-1]
    blocks = [tap.reshape(math.prod(shape), geometry.groups, -1).swapaxes(0, 1) for tap in taps]
    columns = jnp.concatenate(blocks, -1)
    kernels = weight.reshape(columns.shape[-1], geometry.groups, -1).swapaxes(0, 1)
    return jnp.matmul(columns, kernels, precision=precision).swapaxes(0, 1).reshape(*shape, -1)


def _channelwise(geometry: Geometry, input: jax.Array, weight: jax.Array) -> jax.Array:
    """Each channel by itself, to one or more outputs."""
    return _depthwise(geometry, jnp.repeat(input, weight.shape[-1] // geometry.groups, -1), weight)


def _taps(geometry: Geometry, input: jax.Array, weight: jax.Array) -> list[jax.Array]:
    return taps_of(pad(input, geometry.paddings), weight.shape[:-2], geometry.stride, geometry.dilation)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _depthwise(geometry: Geometry, input: jax.Array, weight: jax.Array) -> jax.Array:
    """A sum of shifted images, each times its element of the kernel: one fused loop, vectorised over the channels."""
    # Without the barrier the padding is fused into the loop, as a comparison for every element of every shift.
    padded = lax.optimization_barrier(pad(input, geometry.paddings))
    taps = taps_of(padded, weight.shape[:-2], geometry.stride, geometry.dilation)
    # `lax` rather than `jnp`: dozens of operations a layer, and jnp's way to each takes four times as long to trace.
    rows = lax.split(weight.reshape(-1, weight.shape[-1]), [1] * len(taps))
    last = input.ndim - 1
    products = [
        lax.mul(tap, lax.broadcast_in_dim(row, tap.shape, (0, last))) for tap, row in zip(taps, rows, strict=True)
    ]
    return reduce(lax.add, products)


def _depthwise_forward(geometry, input, weight):
    return _depthwise(geometry, input, weight), (input, weight)


def _depthwise_backward(geometry, saved, cotangent):
    """By `input` a depthwise convolution of the cotangent, spread out by the stride; by `weight` sums of products."""
    input, weight = saved
    kernel = weight.shape[:-2]
    spread = [(0, 0, 0)]
    for n, y, (before, _), k, s, d in zip(
        input.shape[1:-1],
        cotangent.shape[1:-1],
        geometry.paddings,
        kernel,
        geometry.stride,
        geometry.dilation,
        strict=True,
    ):
        low = d * (k - 1) - before
        length = (y - 1) * s + 1
        spread.append((low, n + d * (k - 1) - low - length, s - 1))
    wide = lax.pad(cotangent, jnp.zeros((), input.dtype), (*spread, (0, 0, 0)))
    whole = Geometry((1,) * len(kernel), ((0, 0),) * len(kernel), geometry.dilation)
    by_input = _depthwise(whole, wide, jnp.flip(weight, range(len(kernel))))
    padded = lax.optimization_barrier(pad(input, geometry.paddings))
    taps = taps_of(padded, kernel, geometry.stride, geometry.dilation)
    return by_input, sums_of_products(tuple(taps), cotangent).reshape(weight.shape)


_depthwise.defvjp(_depthwise_forward, _depthwise_backward)


@jax.custom_jvp
def sums_of_products(taps: tuple[jax.Array, ...], other: jax.Array) -> jax.Array:
    """`[taps, C]`: for each tap `sum(tap * other)` over all but the channels, several taps in one pass over the image.

    XLA's CPU backend uses vectors where LLVM unrolls the loop over what is added, so a line is added up in short
    pieces: for 3x3 taps of 8x56x56x64 that takes 0.8 ms where whole lines take 1.6, for 5x5 of 8x14x14x480 1 and 2.8.
    """
    most = LONGEST_PIECE if len(taps) <= FEW_TAPS else LONGEST_PIECE_OF_MANY
    pieces = largest_divisor(other.shape[-2], most)
    at_once = len(taps) if pieces == 1 else max(1, MOST_UNROLLED // pieces)
    sums: list[jax.Array] = []
    for start in range(0, len(taps), at_once):
        products = tuple(lax.mul(tap, other) for tap in taps[start : start + at_once])
        # Along one axis first: of a sum over all of them at once only one core would do the work.
        lines = added_up(products, other.ndim - 2, pieces if pieces > 1 else other.shape[-2])
        if is_large(lines[0].shape, MANY):
            axis = 0 if len(other) > 1 else 1
            lines = added_up(lines, axis, largest_divisor(lines[0].shape[axis], most))
        sums += [line.sum(range(line.ndim - 1)) for line in lines]
    return jnp.stack(sums)


@sums_of_products.defjvp
def _sums_of_products_jvp(primals, tangents):
    (taps, other), (moved, other_moved) = primals, tangents
    axes = range(other.ndim - 1)
    products = (m * other + tap * other_moved for tap, m in zip(taps, moved, strict=True))
    return sums_of_products(taps, other), jnp.stack([product.sum(axes) for product in products])


def pad(input: jax.Array, paddings: Paddings) -> jax.Array:
    if not any(map(any, paddings)):
        return input
    return lax.pad(input, jnp.zeros((), input.dtype), ((0, 0, 0), *((*pair, 0) for pair in paddings), (0, 0, 0)))
