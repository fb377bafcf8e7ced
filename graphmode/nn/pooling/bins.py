"""The windows of an adaptive pooling: as many as asked for, which cover the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..compiled_once import compiled_once
from ..layout import Layout, spatial_axes
from .avg_pool import sum_along
from .largest import UNROLLED, Walk, regular
from .span import Span

FEW = 8  # windows along an axis that are taken one by one

OutputSize = int | None | Sequence[int | None]


@dataclass(frozen=True)
class Bins:
    """Windows from `floor(i * size / count)` to `ceil((i + 1) * size / count)` along one axis."""

    axis: int
    size: int
    count: int

    @property
    def starts(self) -> np.ndarray:
        return np.arange(self.count) * self.size // self.count

    @property
    def lengths(self) -> np.ndarray:
        return -(-(np.arange(self.count) + 1) * self.size // self.count) - self.starts

    @property
    def regular(self) -> Span | None:
        """The windows where all are equal and none overlaps."""
        if self.size % self.count:
            return None
        length = self.size // self.count
        return Span(self.axis, self.size, length, length, 1, 0, self.count)

    @property
    def laid_out(self) -> Span:
        """The windows of what `lay_out` gives."""
        longest = int(self.lengths.max())
        return Span(self.axis, self.count * longest, longest, longest, 1, 0, self.count)

    def lay_out(self, x: jax.Array) -> jax.Array:
        """All windows one after the other, each as long as the longest: the last element stands for what it lacks."""
        within = np.minimum(np.arange(self.laid_out.kernel), self.lengths[:, None] - 1)
        return jnp.take(x, (self.starts[:, None] + within).ravel(), self.axis)

    def sums(self, x: jax.Array) -> jax.Array:
        if self.regular:
            return sum_along(x, self.regular)
        if self.count <= FEW:
            return _sums_of_few(x, self)
        spread = self.lay_out(x)
        real = (np.arange(self.laid_out.kernel) < self.lengths[:, None]).ravel()
        return sum_along(jnp.where(self.laid_out.along(real, x.ndim), spread, 0), self.laid_out)

    def walk(self, ndim: int) -> Walk:
        few = self.count <= FEW and self.lengths.max() <= UNROLLED
        windows = tuple(zip(self.starts.tolist(), self.lengths.tolist(), strict=True)) if few else None
        if self.regular:
            return replace(regular(self.regular, ndim), windows=windows)
        starts, lengths = (self.laid_out.along(values, ndim) for values in (self.starts, self.lengths))
        return Walk(self.laid_out, lambda tap: jnp.minimum(tap, lengths - 1) + starts, self.lay_out, windows)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
@compiled_once("bins")
def _sums_of_few(x: jax.Array, bins: Bins) -> jax.Array:
    """Window by window; element by element where they are short, for which XLA's CPU backend takes a third."""
    if bins.lengths.max() > UNROLLED:
        return _sums_of_slices(x, bins)
    sums = []
    for start, length in zip(bins.starts.tolist(), bins.lengths.tolist(), strict=True):
        taps = (lax.slice_in_dim(x, i, i + 1, axis=bins.axis) for i in range(start, start + length))
        sums.append(reduce(lax.add, taps))
    return lax.concatenate(sums, bins.axis)


@_sums_of_few.defjvp
def _sums_of_few_jvp(bins: Bins, primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return _sums_of_few(*primals, bins), _sums_of_slices(*tangents, bins)  # the transpose of the other is slow


@compiled_once("bins")
def _sums_of_slices(x: jax.Array, bins: Bins) -> jax.Array:
    ends = zip(bins.starts.tolist(), (bins.starts + bins.lengths).tolist(), strict=True)
    slices = [lax.slice_in_dim(x, start, end, axis=bins.axis) for start, end in ends]
    return lax.concatenate([one.sum(bins.axis, keepdims=True) for one in slices], bins.axis)


def bins_of(input: jax.Array, layout: Layout, output_size: Sequence[int | None]) -> list[Bins]:
    """Along each spatial axis; None for as many as the input has elements."""
    axes = spatial_axes(layout, input.ndim, len(output_size))
    sizes = [input.shape[axis] for axis in axes]
    wanted = [size if one is None else one for one, size in zip(output_size, sizes, strict=True)]
    return [Bins(*one) for one in zip(axes, sizes, wanted, strict=True)]


def shape_if_empty(input: jax.Array, bins: Sequence[Bins]) -> tuple[int, ...] | None:
    """The shape of an output that has no elements."""
    shape = list(input.shape)
    for one in bins:
        shape[one.axis] = one.count
    return None if all(one.count for one in bins) else tuple(shape)
