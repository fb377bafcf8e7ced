"""`torch.nn.Upsample` and its two older forms."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from ..arguments import as_word
from ..layer import Layer
from ..layout import DataFormat, as_layout
from .interpolation import MODES, Mode, interpolate


class Upsample(Layer):
    """`functional.interpolate` as a module.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Upsample.html

    Args:
      size: of the result, one number or one for each spatial axis.
      scale_factor: in place of `size`.
      mode: `"nearest"`, `"nearest-exact"`, `"linear"`, `"bilinear"`, `"trilinear"`, `"bicubic"` or `"area"`.
      align_corners: whether the corners' centres are kept, for linear and cubic modes.
      recompute_scale_factor: whether positions follow from the resulting size rather than from `scale_factor`.
      data_format: of `input`, `[B, *spatial, C]` or channels first.

    Raises:
      ValueError: for an unknown mode; in the call where `input` does not fit.

    Example:
      >>> Upsample(scale_factor=2, mode="bilinear")(jnp.ones((1, 4, 5, 3))).shape
      (1, 8, 10, 3)
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: Mode = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
        *,
        data_format: DataFormat = "channels_last",
    ):
        self.size = tuple(size) if isinstance(size, Sequence) else size
        self.scale_factor = tuple(scale_factor) if isinstance(scale_factor, Sequence) else scale_factor
        self.mode: Mode = as_word("mode", mode, list(MODES))
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor
        as_layout(data_format)
        self.data_format = data_format

    def __call__(self, input: jax.Array) -> jax.Array:
        return interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
            data_format=self.data_format,
        )


class UpsamplingNearest2d(Upsample):
    """`Upsample` of images with mode `"nearest"`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.UpsamplingNearest2d.html
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        *,
        data_format: DataFormat = "NHWC",
    ):
        super().__init__(size, scale_factor, "nearest", data_format=data_format)


class UpsamplingBilinear2d(Upsample):
    """`Upsample` of images with mode `"bilinear"` and the corners aligned.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.UpsamplingBilinear2d.html
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        *,
        data_format: DataFormat = "NHWC",
    ):
        super().__init__(size, scale_factor, "bilinear", True, data_format=data_format)
