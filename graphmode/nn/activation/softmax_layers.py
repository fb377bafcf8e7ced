"""The layers over `softmax`."""

from __future__ import annotations

import jax

from ..layer import Layer
from ..layout import DataFormat, as_layout
from .softmax import log_softmax, softmax, softmin


class Softmax(Layer):
    """`exp(input)` over its sum along `dim`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmax.html

    Args:
      dim: axis of the array as it is given; None for PyTorch's deprecated choice, as `functional.softmax` has it.

    Raises:
      ValueError: where `input` has no such axis.

    Example:
      >>> Softmax(-1)(jnp.zeros((1, 4))).tolist()
      [[0.25, 0.25, 0.25, 0.25]]
    """

    def __init__(self, dim: int | None = None):
        self.dim = dim

    def __call__(self, input: jax.Array) -> jax.Array:
        return softmax(input, self.dim)


class LogSoftmax(Layer):
    """`log(softmax(input, dim))`, without overflow; `dim` as of `Softmax`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LogSoftmax.html
    """

    def __init__(self, dim: int | None = None):
        self.dim = dim

    def __call__(self, input: jax.Array) -> jax.Array:
        return log_softmax(input, self.dim)


class Softmin(Layer):
    """`softmax(-input, dim)`; `dim` as of `Softmax`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmin.html
    """

    def __init__(self, dim: int | None = None):
        self.dim = dim

    def __call__(self, input: jax.Array) -> jax.Array:
        return softmin(input, self.dim)


class Softmax2d(Layer):
    """Softmax over the channels at each place of an image.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmax2d.html

    Args:
      data_format: `"NHWC"` for `[B, H, W, C]` or `[H, W, C]`, or `"NCHW"`.

    Raises:
      ValueError: where `input` has another number of axes.

    Example:
      >>> Softmax2d()(jnp.zeros((5, 5, 2)))[0, 0].tolist()
      [0.5, 0.5]
    """

    def __init__(self, *, data_format: DataFormat = "NHWC"):
        self.data_format = as_layout(data_format, 2)

    def __call__(self, input: jax.Array) -> jax.Array:
        if input.ndim not in (3, 4):
            raise ValueError(f"input has shape {tuple(input.shape)}, and an image was wanted: 3 axes, or 4 in a batch")
        return softmax(input, -1 if self.data_format == "channels_last" else -3)
