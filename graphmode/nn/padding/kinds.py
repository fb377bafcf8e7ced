"""What is padded with: a constant, zeros, the mirror image, the end or the other end; the bases of the layers."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import ClassVar

import jax

from ..layer import Layer
from ..layout import DataFormat, as_layout, check_shape, spelled
from .pad import Mode, pad


class Pad(Layer):
    """Entries added around the spatial axes; taken away where a number is negative.

    Args:
      padding: one integer for all ends, or (left, right), (left, right, top, bottom), or (left, right, top, bottom,
        front, back): pairs of which the first is for the last spatial axis.
      data_format: `"NLC"`, `"NHWC"` or `"NDHWC"`, channels last, or channels first; the batch axis is optional.

    Raises:
      TypeError: where `padding` has other than integers.
      ValueError: where `padding` has another number of them, or does not fit the input.
    """

    spatial: ClassVar[int]
    mode: ClassVar[Mode]

    def __init__(self, padding: int | Sequence[int], *, data_format: DataFormat = "channels_last"):
        self.padding = _as_padding(padding, self.spatial)
        self.data_format = as_layout(data_format, self.spatial)

    def __call__(self, input: jax.Array) -> jax.Array:
        check_shape(input, self.data_format, self.spatial)
        return pad(input, self.padding, self.mode, data_format=self.data_format)


class ConstantPad(Pad):
    """`Pad` by a number.

    Args:
      padding, data_format: as `Pad`'s; any number of axes may come before the spatial ones, as in PyTorch.
      value: that is added, in the dtype of the input.
    """

    mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float, *, data_format: DataFormat = "channels_last"):
        super().__init__(padding, data_format=data_format)
        self.value = value

    def __call__(self, input: jax.Array) -> jax.Array:
        fewest = self.spatial + (self.data_format == "channels_last")
        if input.ndim < fewest:
            letters = spelled(self.data_format, self.spatial)
            raise ValueError(f"input has shape {tuple(input.shape)}, and {letters}, {fewest} axes or more, was wanted")
        return pad(input, self.padding, self.mode, self.value, data_format=self.data_format)


class ZeroPad(ConstantPad):
    """`Pad` by zeros; any number of axes may come before the spatial ones, as in PyTorch."""

    def __init__(self, padding: int | Sequence[int], *, data_format: DataFormat = "channels_last"):
        super().__init__(padding, 0.0, data_format=data_format)


class ReflectionPad(Pad):
    """`Pad` by the mirror image, the end itself left out; `padding` is less than the axis."""

    mode = "reflect"


class ReplicationPad(Pad):
    """`Pad` by copies of the end."""

    mode = "replicate"


class CircularPad(Pad):
    """`Pad` by the other end, going around once at most."""

    mode = "circular"


def _as_padding(padding: int | Sequence[int], spatial: int) -> tuple[int, ...]:
    count = 2 * spatial
    items = tuple(padding) if isinstance(padding, Sequence) and not isinstance(padding, str) else (padding,) * count
    if len(items) != count:
        raise ValueError(f"padding is {padding!r}; give one integer, or {count}: two an axis, the last axis first")
    try:
        return tuple(operator.index(item) for item in items)
    except TypeError:
        raise TypeError(f"padding is {padding!r}; give integers") from None
