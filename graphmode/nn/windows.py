"""The windows of an array as shifted copies of it, one for each element of a window: what fuses into plain loops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax
from jax import lax


def taps_of(input: jax.Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[jax.Array]:
    """For each element of a window, the last axis fastest, what it meets at every output position: `[B, *spatial, C]`.

    Args:
      input: `[B, *spatial, C]`, any number of spatial axes.
      kernel, stride, dilation: of the windows, one for each spatial axis.
    """
    batch, *size, channels = input.shape
    spans = [(n - d * (k - 1) - 1) // s * s + 1 for n, k, s, d in zip(size, kernel, stride, dilation, strict=True)]
    taps = []
    for offsets in itertools.product(*(range(0, k * d, d) for k, d in zip(kernel, dilation, strict=True))):
        ends = (offset + span for offset, span in zip(offsets, spans, strict=True))
        taps.append(lax.slice(input, (0, *offsets, 0), (batch, *ends, channels), (1, *stride, 1)))
    return taps


def taps_along(input: jax.Array, axis: int, *, kernel: int, stride: int, dilation: int, count: int) -> list[jax.Array]:
    """The same along one axis alone, which becomes `count` long."""
    last = (count - 1) * stride + 1
    return [lax.slice_in_dim(input, i, i + last, stride, axis) for i in range(0, kernel * dilation, dilation)]
