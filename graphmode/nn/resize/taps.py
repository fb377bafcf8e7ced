"""One axis of an interpolation: which inputs each output reads, and with what weights, as PyTorch's kernels have it."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LARGEST_MATRIX = 2**18  # elements; beyond, the taps are gathered


@dataclass(frozen=True)
class Taps:
    """Attributes:
    indices: `[out, K]` of inputs, int64.
    weights: `[out, K]`, float64; None for 1 (nearest).
    """

    indices: np.ndarray
    weights: np.ndarray | None


def nearest(size: int, out: int, factor: float | None, *, exact: bool) -> Taps:
    """Nearest neighbour; the position is a float32 product in PyTorch, whatever the dtype of the image."""
    positions = np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)
    if out == size:
        indices = np.arange(out)
    elif out == 2 * size and not exact:
        indices = np.arange(out) // 2
    else:
        indices = np.floor(positions * _step(size, out, factor, np.float32)).astype(np.int64)
    return Taps(np.minimum(indices, size - 1)[:, None], None)


def linear(size: int, out: int, factor: float | None, *, align_corners: bool) -> Taps:
    source = np.maximum(_source(size, out, factor, align_corners), 0)
    first = np.minimum(source.astype(np.int64), size - 1)
    second = np.minimum(first + 1, size - 1)
    fraction = np.clip(source - first, 0, 1)
    return Taps(np.stack([first, second], 1), np.stack([1 - fraction, fraction], 1))


def cubic(size: int, out: int, factor: float | None, *, align_corners: bool) -> Taps:
    """Keys' kernel with a = -0.75, indices clamped at the borders."""
    source = _source(size, out, factor, align_corners)
    base = np.floor(source)
    fraction = source - base
    weights = np.stack([_keys(fraction + 1 - k, -0.75) for k in range(4)], 1)
    indices = base.astype(np.int64)[:, None] + np.arange(-1, 3)
    return Taps(np.clip(indices, 0, size - 1), weights)


def antialiased(size: int, out: int, factor: float | None, *, align_corners: bool, is_cubic: bool) -> Taps:
    """A triangle or Keys' kernel with a = -0.5, stretched by the scale where the image shrinks."""
    step = _aligned_step(size, out) if align_corners else _step(size, out, factor, np.float64)
    half = (2.0 if is_cubic else 1.0) * max(step, 1.0)
    inverse = 1 / step if step >= 1 else 1.0
    centers = step * (np.arange(out) + 0.5)
    starts = np.maximum((centers - half + 0.5).astype(np.int64), 0)
    ends = np.minimum((centers + half + 0.5).astype(np.int64), size)
    offsets = np.arange(int((ends - starts).max()))
    indices = starts[:, None] + offsets
    distance = (indices - centers[:, None] + 0.5) * inverse
    weights = _keys(distance, -0.5) if is_cubic else np.maximum(1 - np.abs(distance), 0)
    weights = np.where(indices < ends[:, None], weights, 0)
    total = weights.sum(1, keepdims=True)
    return Taps(np.minimum(indices, size - 1), weights / np.where(total == 0, 1, total))


def phases(size: int, out: int, factor: float | None, *, is_cubic: bool) -> list[dict[int, float]] | None:
    """For a whole enlargement without aligned corners: for each output of an input's, its taps as offset and weight.

    None where the enlargement is not a whole number.
    """
    if out % size or (factor is not None and factor != out // size):
        return None
    repeats = out // size
    found = []
    for phase in range(repeats):
        source = (phase + 0.5) / repeats - 0.5
        base = int(np.floor(source))
        t = source - base
        weights = [float(_keys(np.array(t + 1 - k), -0.75)) for k in range(4)] if is_cubic else [1 - t, t]
        first = base - 1 if is_cubic else base
        found.append({first + k: weight for k, weight in enumerate(weights) if weight})
    return found


def apply_phases(input: jax.Array, axis: int, found: list[dict[int, float]]) -> jax.Array:
    """A whole enlargement as sums of shifted images: elementwise, its derivative too."""
    size = input.shape[axis]
    reach = max(abs(offset) for taps in found for offset in taps)
    padding = [(reach, reach) if i == axis else (0, 0) for i in range(input.ndim)]
    padded = jnp.pad(input, padding, mode="edge") if reach else input
    images = []
    for taps in found:
        shifted = (
            lax.slice_in_dim(padded, reach + offset, reach + offset + size, axis=axis) * np.array(weight, input.dtype)
            for offset, weight in taps.items()
        )
        images.append(sum(shifted, start=jnp.zeros((), input.dtype)))
    shape = (*input.shape[:axis], size * len(found), *input.shape[axis + 1 :])
    return jnp.stack(images, axis + 1).reshape(shape)


def apply_taps(input: jax.Array, axis: int, taps: Taps) -> jax.Array:
    """`input` with this axis interpolated."""
    size, out = input.shape[axis], len(taps.indices)
    if taps.weights is None:
        return _picked(input, axis, taps.indices[:, 0])
    if size * out <= LARGEST_MATRIX:
        matrix = np.zeros((out, size))
        np.add.at(matrix, (np.arange(out)[:, None], taps.indices), taps.weights)
        moved = jnp.tensordot(matrix.astype(input.dtype), input, (1, axis), precision=lax.Precision.HIGHEST)
        return jnp.moveaxis(moved, 0, axis)
    shape = [out if i == axis else 1 for i in range(input.ndim)]
    total = jnp.zeros((), input.dtype)
    for indices, weights in zip(taps.indices.T, taps.weights.T, strict=True):
        total += jnp.take(input, indices, axis, mode="clip") * weights.reshape(shape).astype(input.dtype)
    return total


def _picked(input: jax.Array, axis: int, indices: np.ndarray) -> jax.Array:
    size, out = input.shape[axis], len(indices)
    if out % size == 0 and (indices == np.arange(out) // (out // size)).all():
        return jnp.repeat(input, out // size, axis)
    step = size // out
    start = int(indices[0])
    if step and (indices == start + np.arange(out) * step).all():
        return lax.slice_in_dim(input, start, start + (out - 1) * step + 1, step, axis)
    return jnp.take(input, indices, axis, mode="clip")


def _source(size: int, out: int, factor: float | None, align_corners: bool) -> np.ndarray:
    """Where each output's centre lies among the inputs, `[out]`."""
    if align_corners:
        return _aligned_step(size, out) * np.arange(out)
    return _step(size, out, factor, np.float64) * (np.arange(out) + 0.5) - 0.5


def _aligned_step(size: int, out: int) -> float:
    return (size - 1) / (out - 1) if out > 1 else 0.0


def _step(size: int, out: int, factor: float | None, dtype):
    """Inputs for each output: by the factor that was given, or by the sizes."""
    return dtype(1 / factor) if factor is not None and factor > 0 else dtype(size) / dtype(out)


def _keys(distance: np.ndarray, a: float) -> np.ndarray:
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
