"""What windows a pooling has: its arguments, checked, and how many windows of them fit along each axis."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..arguments import as_integers
from ..layout import Layout, channel_axis, check_shape, spatial_axes
from ..windows import taps_along

MOST_RUNS = 8  # runs of windows that have the same elements in the padding; with more of them padding is faster

Sizes = int | Sequence[int]
Channels = Literal["there", "where batched", "may be empty"]


@dataclass(frozen=True)
class Span:
    """The windows along one axis of an array.

    Attributes:
      axis: of the array.
      size: of that axis.
      kernel, stride, dilation: of the windows.
      padding: positions before the first element; as many stand after the last.
      count: number of windows.
    """

    axis: int
    size: int
    kernel: int
    stride: int
    dilation: int
    padding: int
    count: int

    @property
    def starts(self) -> np.ndarray:
        """`[count]`: where each window begins; below 0 in the padding."""
        return np.arange(self.count) * self.stride - self.padding

    def along(self, values: np.ndarray, ndim: int) -> np.ndarray:
        """`[count]` as an array that broadcasts over all axes but this one."""
        return values.reshape([-1 if i == self.axis else 1 for i in range(ndim)])

    def padded(self, x: jax.Array, value: Any) -> jax.Array:
        """`x` with as much before and after it as the windows reach over."""
        reach = (self.count - 1) * self.stride + self.dilation * (self.kernel - 1) + 1
        after = max(0, reach - self.padding - self.size)
        if not self.padding and not after:
            return x
        config = [(self.padding, after, 0) if i == self.axis else (0, 0, 0) for i in range(x.ndim)]
        return lax.pad(x, np.array(value, x.dtype), config)

    def taps(self, padded: jax.Array) -> list[jax.Array]:
        """For each element of a window what it meets in every window of a padded array."""
        return taps_along(
            padded, self.axis, kernel=self.kernel, stride=self.stride, dilation=self.dilation, count=self.count
        )

    def first(self, ndim: int) -> np.ndarray:
        """The number of the first element of each window that stands behind the padding."""
        return self.along(np.maximum(0, -(self.starts // self.dilation)), ndim)

    def over(self, x: jax.Array, fill: Any, of_taps: Callable[[Any, dict[int, jax.Array]], Any]) -> Any:
        """`of_taps(first, taps)` for all windows: the first element that is no padding, and what each element meets.

        Windows that reach into the padding go without what they have there, by themselves: XLA's CPU backend would
        write a padded array, and read it again, which takes as long as all the rest. Where that does not serve, `x` is
        padded by `fill`.
        """
        runs = self._runs() if self.axis < x.ndim - 1 else None
        if runs is None:
            return of_taps(self.first(x.ndim), dict(enumerate(self.taps(self.padded(x, fill)))))
        found = []
        for windows, met in runs:
            start = int(self.starts[windows.start]) + met.start * self.dilation
            part = lax.slice_in_dim(x, start, None, axis=self.axis)
            taps = taps_along(
                part, self.axis, kernel=len(met), stride=self.stride, dilation=self.dilation, count=len(windows)
            )
            found.append(of_taps(met.start, dict(zip(met, taps, strict=True))))
        return found[0] if len(found) == 1 else jax.tree.map(lambda *parts: lax.concatenate(parts, self.axis), *found)

    def _runs(self) -> list[tuple[range, range]] | None:
        """Which windows meet `x`, rather than the padding, with which elements; None where some do with none."""
        at = self.starts[:, None] + np.arange(self.kernel) * self.dilation
        inside = (at >= 0) & (at < self.size)
        changes = np.flatnonzero((inside[1:] != inside[:-1]).any(1)) + 1
        edges = [0, *changes.tolist(), self.count]
        if len(edges) > MOST_RUNS + 1 or not inside.any(1).all():
            return None
        runs = []
        for start, end in itertools.pairwise(edges):
            met = np.flatnonzero(inside[start])
            runs.append((range(start, end), range(int(met[0]), int(met[-1]) + 1)))
        return runs


@dataclass(frozen=True)
class Windows:
    """`kernel_size`, `stride`, `padding` and `dilation`, one number each for every spatial axis."""

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def spans(self, input: jax.Array, layout: Layout, *, ceil_mode: bool) -> tuple[Span, ...]:
        """Along each spatial axis of `input`.

        Raises:
          ValueError: where no window fits.
        """
        spans = []
        axes = spatial_axes(layout, input.ndim, len(self.kernel_size))
        for axis, kernel, stride, padding, dilation in zip(
            axes, self.kernel_size, self.stride, self.padding, self.dilation, strict=True
        ):
            size = input.shape[axis]
            room = size + 2 * padding - dilation * (kernel - 1) - 1
            count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
            if ceil_mode and (count - 1) * stride >= size + padding:
                count -= 1  # a window may hang over the end, and not start beyond it
            if count < 1:
                raise ValueError(
                    f"input has shape {tuple(input.shape)}, so {size} elements on axis {axis}, with kernel_size "
                    f"{kernel}, dilation {dilation} and padding {padding}: no window fits; give a larger input or a "
                    "smaller window"
                )
            spans.append(Span(axis, size, kernel, stride, dilation, padding, count))
        return tuple(spans)


def as_axes(name: str, value: Any, spatial: int, *, least: int) -> tuple[int, ...]:
    """One integer for all spatial axes, alone or in a tuple of one, or one each."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        value = value[0]
    return as_integers(name, value, spatial, least=least)


def as_windows(spatial: int, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes = 1) -> Windows:
    """The arguments of a pooling as PyTorch takes them; no stride, or an empty one, stands for `kernel_size`.

    Raises:
      TypeError: where one is no integer.
      ValueError: where one is out of range, or the padding is more than half of `kernel_size`.
    """
    kernel = as_axes("kernel_size", kernel_size, spatial, least=1)
    empty = stride is None or (isinstance(stride, Sequence) and len(stride) == 0)
    windows = Windows(
        kernel,
        kernel if empty else as_axes("stride", stride, spatial, least=1),
        as_axes("padding", padding, spatial, least=0),
        as_axes("dilation", dilation, spatial, least=1),
    )
    if any(p > k // 2 for p, k in zip(windows.padding, kernel, strict=True)):
        raise ValueError(f"padding is {padding!r}; give at most half of the window, whose kernel_size is {kernel}")
    return windows


def as_output_size(value: Any, spatial: int) -> tuple[int | None, ...]:
    """What an adaptive pooling is asked for: a size, or None for that of the input, for all axes or one each."""
    items = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    items = items * spatial if len(items) == 1 else items
    if len(items) != spatial:
        raise ValueError(f"output_size is {value!r}; give an integer, None, or a tuple of {spatial} of them")
    return tuple(None if item is None else as_integers("output_size", item, 1, least=0)[0] for item in items)


def check_pooled(input: jax.Array, layout: Layout, spatial: int, *, channels: Channels = "there") -> None:
    """Raises `ValueError` unless `input` has the axes that are wanted and none is empty but the batch.

    Args:
      channels: whether there has to be at least one: PyTorch's kernels differ in it.
    """
    check_shape(input, layout, spatial)
    wanted = [*spatial_axes(layout, input.ndim, spatial)]
    if channels == "there" or (channels == "where batched" and input.ndim == spatial + 2):
        wanted.append(channel_axis(layout, input.ndim, spatial))
    empty = sorted(axis for axis in wanted if not input.shape[axis])
    if empty:
        raise ValueError(
            f"input has shape {tuple(input.shape)}, and axis {empty[0]} is empty; only a batch may be, so give at "
            "least one element there"
        )


def check_ordered(input: jax.Array) -> None:
    """Raises `TypeError` unless a largest of the elements can be had, as PyTorch's kernels have it."""
    if not (jnp.issubdtype(input.dtype, jnp.floating) or jnp.issubdtype(input.dtype, jnp.integer)):
        raise TypeError(f"input is {input.dtype}, and a real dtype was wanted; cast it")
