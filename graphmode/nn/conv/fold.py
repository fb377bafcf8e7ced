"""`torch.nn.Fold` and `torch.nn.Unfold`."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from ..arguments import as_integers
from ..layer import Layer
from ..layout import DataFormat, as_layout, spelled
from .blocks import fold, unfold


class Unfold(Layer):
    """What a sliding window covers, flattened, one block after the other.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Unfold.html

    Args:
      kernel_size, dilation, stride: of the window, an integer or a pair.
      padding: zeros on both sides of each axis.
      data_format: `"NHWC"` takes `[B, H, W, C]` to `[B, blocks, C * h * w]`, `"NCHW"` as PyTorch `[B, C, H, W]` to
        `[B, C * h * w, blocks]`; in both the channel is the slowest within a block, and the batch axis is optional.

    Raises:
      ValueError: where an argument is out of range, or no window fits.

    Example:
      >>> import jax.numpy as jnp
      >>> Unfold((2, 3))(jnp.ones((1, 4, 5, 3))).shape
      (1, 9, 18)
    """

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
        *,
        data_format: DataFormat = "NHWC",
    ):
        self.kernel_size = as_integers("kernel_size", kernel_size, 2, least=1)
        self.dilation = as_integers("dilation", dilation, 2, least=1)
        self.padding = as_integers("padding", padding, 2, least=0)
        self.stride = as_integers("stride", stride, 2, least=1)
        self.data_format = spelled(as_layout(data_format, 2), 2)

    def __call__(self, input: jax.Array) -> jax.Array:
        return unfold(
            input,
            self.kernel_size,
            self.dilation,
            self.padding,
            self.stride,
            data_format=self.data_format,  # type: ignore[arg-type]
        )


class Fold(Layer):
    """Blocks added up to an image, where they overlap: the transpose of `Unfold`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Fold.html

    Args:
      output_size: height and width of the image.
      kernel_size, dilation, stride: of the window, an integer or a pair.
      padding: what `Unfold` would have padded; blocks that reach into it lose that part.
      data_format: `"NHWC"` takes `[B, blocks, C * h * w]` to `[B, H, W, C]`, `"NCHW"` as PyTorch `[B, C * h * w,
        blocks]` to `[B, C, H, W]`; the batch axis is optional.

    Raises:
      ValueError: where an argument is out of range, or `input` has another number of blocks or values.

    Example:
      >>> import jax.numpy as jnp
      >>> Fold((4, 5), (2, 3))(jnp.ones((1, 9, 18))).shape
      (1, 4, 5, 3)
    """

    def __init__(
        self,
        output_size: int | Sequence[int],
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
        *,
        data_format: DataFormat = "NHWC",
    ):
        self.output_size = as_integers("output_size", output_size, 2, least=1)
        self.kernel_size = as_integers("kernel_size", kernel_size, 2, least=1)
        self.dilation = as_integers("dilation", dilation, 2, least=1)
        self.padding = as_integers("padding", padding, 2, least=0)
        self.stride = as_integers("stride", stride, 2, least=1)
        self.data_format = spelled(as_layout(data_format, 2), 2)

    def __call__(self, input: jax.Array) -> jax.Array:
        return fold(
            input,
            self.output_size,
            self.kernel_size,
            self.dilation,
            self.padding,
            self.stride,
            data_format=self.data_format,  # type: ignore[arg-type]
        )
