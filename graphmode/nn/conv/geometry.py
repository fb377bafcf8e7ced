"""The sizes of a convolution: its arguments as one tuple for each axis, checked, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp

from ..arguments import as_integer, as_integers, as_word
from ..layout import Layout, spatial_axes

Axes = tuple[int, ...]
Paddings = tuple[tuple[int, int], ...]
Padding = int | Sequence[int] | Sequence[Sequence[int]] | Literal["same", "valid"]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]

PADDING_MODES: dict[PaddingMode, str] = {
    "zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"
}  # fmt: skip


@dataclass(frozen=True)
class Geometry:
    """How a kernel moves over an array.

    Attributes:
      stride, dilation: for each spatial axis.
      paddings: zeros before and after each spatial axis; negative ones take elements away.
      groups: blocks of channels that do not see each other.
    """

    stride: Axes
    paddings: Paddings
    dilation: Axes
    groups: int = 1

    def output(self, size: Sequence[int], kernel: Sequence[int]) -> Axes:
        """Number of positions along each axis."""
        axes = zip(size, self.paddings, kernel, self.stride, self.dilation, strict=True)
        return tuple((n + sum(p) - d * (k - 1) - 1) // s + 1 for n, p, k, s, d in axes)

    @property
    def steps(self) -> tuple[Axes, Axes]:
        """Stride and dilation."""
        return self.stride, self.dilation

    def padded(self, paddings: Paddings) -> Geometry:
        return replace(self, paddings=paddings)

    def unpadded(self) -> Geometry:
        return self.padded(((0, 0),) * len(self.stride))


def as_axes(name: str, value: Any, spatial: int, *, least: int) -> Axes:
    """One integer for all spatial axes, by itself or alone in a tuple, or one each."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        value = value[0]
    return as_integers(name, value, spatial, least=least)


def as_padding(padding: Padding, stride: Axes) -> Axes | Paddings | Literal["same", "valid"]:
    """The argument as a tuple, or the word.

    Raises:
      ValueError: for another word, a negative number, another length, or `"same"` with a stride.
    """
    if isinstance(padding, str):
        as_word("padding", padding, ("same", "valid"))
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError(f"padding is 'same' and stride is {stride}; 'same' is for a stride of 1")
        return padding
    if isinstance(padding, Sequence) and any(isinstance(item, Sequence) for item in padding):
        if len(padding) != len(stride):
            raise ValueError(f"padding is {padding!r}; give {len(stride)} pairs (before, after), one for each axis")
        befores_and_afters = (as_integers("padding", pair, 2, least=0) for pair in padding)
        return tuple((before, after) for before, after in befores_and_afters)
    return as_axes("padding", padding, len(stride), least=0)


def paddings_of(padding: Axes | Paddings | str, kernel: Sequence[int], dilation: Axes) -> Paddings:
    """What `as_padding` gives, as zeros before and after each axis; the odd one of `"same"` goes after."""
    if padding == "valid":
        return ((0, 0),) * len(dilation)
    if padding == "same":
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((p, p) if isinstance(p, int) else (p[0], p[1]) for p in padding)  # type: ignore[misc]


def padded_from_itself(input: jax.Array, paddings: Paddings, mode: PaddingMode, layout: Layout) -> jax.Array:
    """`input` continued beyond its edges by its own values.

    Raises:
      ValueError: where the padding wants values that are not there.
    """
    axes = spatial_axes(layout, input.ndim, len(paddings))
    for axis, pair in zip(axes, paddings, strict=True):
        length = input.shape[axis]
        most = {"reflect": length - 1, "circular": length, "replicate": max(pair) if length else 0}[mode]
        if max(pair) > most:
            raise ValueError(
                f"padding is {pair} on axis {axis} of an input of shape {tuple(input.shape)}, and padding_mode "
                f"{mode!r} has values for {max(most, 0)} at most; pad less, or with another mode"
            )
    widths = [(0, 0)] * input.ndim
    for axis, pair in zip(axes, paddings, strict=True):
        widths[axis] = pair
    return jnp.pad(input, widths, mode=PADDING_MODES[mode])


def check_fit(size: Sequence[int], kernel: Sequence[int], geometry: Geometry) -> None:
    """Raises `ValueError` where the kernel is larger than what it moves over."""
    if min(geometry.output(size, kernel), default=1) < 1:
        extents = tuple(d * (k - 1) + 1 for k, d in zip(kernel, geometry.dilation, strict=True))
        padded = tuple(n + sum(p) for n, p in zip(size, geometry.paddings, strict=True))
        raise ValueError(f"input has the size {padded} with its padding, and the kernel spans {extents}; pad it more")


def as_output_padding(value: Any, stride: Axes, dilation: Axes) -> Axes:
    """Checked as PyTorch does: less than the stride or the dilation, axis by axis."""
    output_padding = as_axes("output_padding", value, len(stride), least=0)
    for extra, s, d in zip(output_padding, stride, dilation, strict=True):
        if extra >= max(s, d):
            raise ValueError(
                f"output_padding is {output_padding}, stride {stride} and dilation {dilation}; give less than the "
                "larger of the two on every axis"
            )
    return output_padding


def transposed_output(
    size: Sequence[int], kernel: Sequence[int], stride: Axes, padding: Axes, output_padding: Axes, dilation: Axes
) -> Axes:
    """The size that a transposed convolution gives.

    Raises:
      ValueError: where nothing is left.
    """
    axes = zip(size, kernel, stride, padding, output_padding, dilation, strict=True)
    output = tuple((n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, extra, d in axes)
    if min(output, default=1) < 1:
        raise ValueError(f"input has the size {tuple(size)}, and padding {padding} leaves {output} of the output")
    return output


def output_padding_for(output_size: Any, shape: Sequence[int], smallest: Axes, stride: Axes, layout: Layout) -> Axes:
    """The `output_padding` that gives `output_size`.

    Args:
      output_size: one integer for each spatial axis, or the whole shape of the output, laid out as the input is.
      shape: of the input.
      smallest: what an `output_padding` of 0 gives.
      stride: of the layer.
      layout: of the input.

    Raises:
      ValueError: for a size that is out of reach, or another number of axes.
    """
    if not isinstance(output_size, Sequence):
        raise TypeError(f"output_size is {output_size!r}; give a tuple of {len(smallest)} integers")
    wanted = tuple(output_size)
    if len(wanted) == len(shape):
        axes = spatial_axes(layout, len(shape), len(smallest))
        wanted = tuple(wanted[axis] for axis in axes)
    if len(wanted) != len(smallest):
        raise ValueError(
            f"output_size is {output_size!r}; give {len(smallest)} integers, or all {len(shape)} of the output's shape"
        )
    wanted = tuple(as_integer("output_size", n, least=0) for n in wanted)
    largest = tuple(least + s - 1 for least, s in zip(smallest, stride, strict=True))
    if any(not least <= n <= most for n, least, most in zip(wanted, smallest, largest, strict=True)):
        raise ValueError(
            f"output_size is {output_size!r}, and an input of shape {tuple(shape)} gives from {smallest} to {largest}"
        )
    return tuple(n - least for n, least in zip(wanted, smallest, strict=True))
