"""The windows of an image as shifted copies of it, one for each element of a window: what fuses into plain loops."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax import lax

from .arguments import Pair


def taps_of(x: jax.Array, kernel: Sequence[int], stride: Pair, dilation: Pair) -> list[jax.Array]:
    """For each element of a window, row by row, what it meets at every output position: `[B, H', W', C]`."""
    batch, height, width, channels = x.shape
    rows, columns = (
        (n - d * (k - 1) - 1) // s for n, k, s, d in zip((height, width), kernel, stride, dilation, strict=True)
    )
    taps = []
    for i in range(0, kernel[0] * dilation[0], dilation[0]):
        for j in range(0, kernel[1] * dilation[1], dilation[1]):
            limits = (batch, i + rows * stride[0] + 1, j + columns * stride[1] + 1, channels)
            taps.append(lax.slice(x, (0, i, j, 0), limits, (1, *stride, 1)))
    return taps
