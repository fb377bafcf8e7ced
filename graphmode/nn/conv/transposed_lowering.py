"""How a transposed convolution is computed: as convolutions of stride 1, since XLA multiplies all the zeros between.

Output `m * stride + r` sees the elements `j * stride + r` of the kernel: every phase `r` is a convolution of stride 1
with its own share of the kernel, and the phases are interleaved. In float32 on two cores that others kept busy, best of
several runs in milliseconds, zeros between against phases, forward and both gradients:

| kernel, stride | input and outputs | forward | with gradients |
|---|---|---|---|
| 3x3, 2 | 4x28x28x64 to 32 | 1.0 / 1.6 | 390 / 31 |
| 4x4, 2 | 4x28x28x64 to 32 | 1.6 / 2.3 | 760 / 11 |
| 4x4, 2, 4 groups | 4x28x28x64 to 64 | 58 / 2.5 | 490 / 7.7 |
| 16, 8 | 2x500x64 to 32 | 0.7 / 0.8 | 250 / 1.6 |
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from ..compiled_once import compiled_once
from ..layout import Layout
from .geometry import Axes, Geometry
from .lowering import convolve, convolve_on_cpu
from .native import dimension_numbers

MOST_PHASES = 8  # convolutions that one transposed convolution may become on a CPU


@dataclass(frozen=True)
class Transposed:
    """How kernels are spread over the output.

    Attributes:
      stride, padding, dilation, groups: of the convolution that this is the transpose of.
      output_size: what the kernels do not reach of it is zero.
      layout: of input and output.
      precision: of the products.
    """

    stride: Axes
    padding: Axes
    dilation: Axes
    groups: int
    output_size: Axes
    layout: Layout
    precision: lax.PrecisionLike

    @property
    def rows(self) -> list[tuple[int, int]]:
        """First and last (exclusive) `m` of the positions `m * stride` that cover the output, for each axis."""
        axes = zip(self.padding, self.output_size, self.stride, strict=True)
        return [(p // s, -(-(p + n) // s)) for p, n, s in axes]

    def size(self, input: jax.Array) -> Axes:
        return input.shape[1:-1] if self.layout == "channels_last" else input.shape[2:]


@compiled_once("how")
def convolve_transposed(input: jax.Array, weight: jax.Array, how: Transposed) -> jax.Array:
    """`input`, `[B, *spatial, C]` or as the layout says, through `weight`, `[*kernel, out / groups, C]`."""
    kernel = weight.shape[:-2]
    if any(s > 1 and d > 1 for s, d in zip(how.stride, how.dilation, strict=True)):
        return _spread(input, weight, how)
    if not any(k % s for k, s in zip(kernel, how.stride, strict=True)):
        return _all_phases(input, weight, how)
    # With zeros for the missing elements of a phase one convolution would do, but 0 * inf is NaN.
    if math.prod(how.stride) > MOST_PHASES:
        return _spread(input, weight, how)
    return lax.platform_dependent(
        input, weight, cpu=partial(_phase_by_phase, how=how), default=partial(_spread, how=how)
    )


def _all_phases(input: jax.Array, weight: jax.Array, how: Transposed) -> jax.Array:
    """The sub-pixel form: the phases are channels of one convolution."""
    *kernel, out, channels = weight.shape
    spatial, groups = len(kernel), how.groups
    taps = [k // s for k, s in zip(kernel, how.stride, strict=True)]
    split = [length for pair in zip(taps, how.stride, strict=True) for length in pair]
    weight = jnp.flip(weight.reshape(*split, out, groups, channels // groups), range(0, 2 * spatial, 2))
    end = 2 * spatial
    weight = weight.transpose(*range(0, end, 2), end + 2, end + 1, *range(1, end, 2), end)
    weight = weight.reshape(*taps, channels // groups, groups * math.prod(how.stride) * out)
    y = convolve(input, weight, _geometry(how.size(input), taps, how), how.layout, how.precision)
    if how.layout == "channels_last":
        y = jnp.moveaxis(y.reshape(*y.shape[:-1], groups, *how.stride, out), 1 + spatial, -2)
        return _interleaved(y.reshape(*y.shape[:-2], groups * out), how)
    y = jnp.moveaxis(y.reshape(y.shape[0], groups, *how.stride, out, *y.shape[2:]), 1, 1 + spatial)
    return _interleaved(y.reshape(*y.shape[: 1 + spatial], groups * out, *y.shape[3 + spatial :]), how)


def _phase_by_phase(input: jax.Array, weight: jax.Array, how: Transposed) -> jax.Array:
    """One convolution for each phase."""
    phases = []
    for offsets in itertools.product(*map(range, how.stride)):
        share = weight[tuple(slice(r, None, s) for r, s in zip(offsets, how.stride, strict=True))]
        if share.size:
            geometry = _geometry(how.size(input), share.shape[:-2], how)
            phases.append(
                convolve_on_cpu(input, _flipped(share, how.groups), None, geometry, how.layout, how.precision)
            )
        else:
            shape = [input.shape[0], *(last - first for first, last in how.rows)]
            shape.insert(1 if how.layout == "channels_first" else len(shape), how.groups * weight.shape[-2])
            phases.append(jnp.zeros(shape, input.dtype))
    if how.layout == "channels_last":
        y = jnp.stack(phases, -2)
        return _interleaved(y.reshape(*y.shape[:-2], *how.stride, y.shape[-1]), how)
    y = jnp.stack(phases, 1)
    return _interleaved(y.reshape(y.shape[0], *how.stride, *y.shape[2:]), how)


def _spread(input: jax.Array, weight: jax.Array, how: Transposed) -> jax.Array:
    """The input with zeros between its elements, through the flipped kernel."""
    *kernel, _, _ = weight.shape
    lows = [d * (k - 1) - p for d, k, p in zip(how.dilation, kernel, how.padding, strict=True)]
    highs = [
        n - ((m - 1) * s + 1) - low + d * (k - 1)
        for n, m, s, low, d, k in zip(
            how.output_size, how.size(input), how.stride, lows, how.dilation, kernel, strict=True
        )
    ]
    return lax.conv_general_dilated(
        input,
        _flipped(weight, how.groups),
        (1,) * len(kernel),
        list(zip(lows, highs, strict=True)),
        lhs_dilation=how.stride,
        rhs_dilation=how.dilation,
        feature_group_count=how.groups,
        dimension_numbers=dimension_numbers(how.layout, len(kernel)),
        precision=how.precision,
    )


def _flipped(weight: jax.Array, groups: int) -> jax.Array:
    """`[*kernel, out / groups, in]` as the kernel of a convolution, `[*kernel[::-1], in / groups, out]`."""
    *kernel, out, channels = weight.shape
    weight = jnp.flip(weight, range(len(kernel))).reshape(*kernel, out, groups, channels // groups)
    return jnp.moveaxis(weight, -1, -3).swapaxes(-1, -2).reshape(*kernel, channels // groups, groups * out)


def _geometry(size: Axes, taps: Axes | list[int], how: Transposed) -> Geometry:
    """Of the convolution of stride 1 that gives all of `how.rows`, from kernels of so many elements."""
    paddings = tuple(
        (d * (t - 1) - first, last - n)
        for d, t, (first, last), n in zip(how.dilation, taps, how.rows, size, strict=True)
    )
    return Geometry((1,) * len(size), paddings, how.dilation, how.groups)


def _interleaved(y: jax.Array, how: Transposed) -> jax.Array:
    """The output from `[B, *rows, *phases, C]`, or from `[B, *phases, C, *rows]`."""
    spatial = len(how.stride)
    first, phase = (1, 1 + spatial) if how.layout == "channels_last" else (2 + spatial, 1)
    pairs = [axis for i in range(spatial) for axis in (first + i, phase + i)]
    whole = [(last - first) * s for (first, last), s in zip(how.rows, how.stride, strict=True)]
    cuts = [slice(p % s, p % s + n) for p, s, n in zip(how.padding, how.stride, how.output_size, strict=True)]
    if how.layout == "channels_last":
        return y.transpose(0, *pairs, y.ndim - 1).reshape(y.shape[0], *whole, y.shape[-1])[:, *cuts]
    return y.transpose(0, 1 + spatial, *pairs).reshape(y.shape[0], y.shape[1 + spatial], *whole)[:, :, *cuts]
