"""The six dropout layers of `torch.nn`: a probability, a mode and a stream to draw from."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from ..arguments import as_probability
from ..layer import Layer
from ..layout import DataFormat, as_layout
from . import functional
from .masks import Rngs, stream_from


class _Dropout(Layer):
    """What the six have in common.

    Attributes:
      deterministic: True for the input as it is: evaluation.
      rngs: the stream that masks are drawn from, or None.
    """

    _function: str

    def __init__(
        self,
        p: float = 0.5,
        inplace: bool = False,
        *,
        deterministic: bool = False,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ):
        self.p = as_probability("p", p)
        self.inplace = inplace
        self.deterministic = deterministic
        self.rngs = stream_from(rngs)

    def __call__(
        self,
        input: jax.Array,
        mask: jax.Array | None = None,
        deterministic: bool | None = None,
        rngs: Rngs | None = None,
    ) -> jax.Array:
        """`input` with some of it dropped; each argument overrides the attribute for this call."""
        training = not (self.deterministic if deterministic is None else deterministic)
        function = getattr(functional, self._function)
        rngs = self.rngs if rngs is None else rngs
        return function(input, self.p, training, mask=mask, rngs=rngs, **self._layout())

    def set_view(self, deterministic: bool | None = None) -> None:
        """Called by `nnx.view`.

        Args:
          deterministic: True for evaluation.
        """
        if deterministic is not None:
            self.deterministic = deterministic

    def _layout(self) -> dict[str, Any]:
        return {}


class _FeatureDropout(_Dropout):
    _spatial: int | None

    def __init__(
        self,
        p: float = 0.5,
        inplace: bool = False,
        *,
        data_format: DataFormat = "channels_last",
        deterministic: bool = False,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ):
        super().__init__(p, inplace, deterministic=deterministic, rngs=rngs)
        self.data_format = as_layout(data_format, self._spatial)

    def _layout(self) -> dict[str, Any]:
        return {"data_format": self.data_format}


class Dropout(_Dropout):
    """Zeroes elements with probability `p` in training, and divides the others by `1 - p`.

    `module.train()` and `module.eval()` switch the mode, and so does `nnx.view(module, deterministic=...)`. Without
    `rngs` it works in evaluation and with masks (`mask=`, or inside `dropout_masks`).

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html

    Args:
      p: probability of an element to be zeroed.
      inplace: means nothing.
      deterministic: True for the input as it is.
      rngs: `dropout` is drawn from.

    Raises:
      ValueError: for a `p` outside of [0, 1]; on a call that would have to draw and has nothing to draw from.

    Example:
      >>> dropout = Dropout(0.5, rngs=nnx.Rngs(0))
      >>> dropout(jnp.ones(2), mask=jnp.array([True, False])).tolist()
      [2.0, 0.0]
      >>> dropout.eval()
      >>> dropout(jnp.ones(2)).tolist()
      [1.0, 1.0]
    """

    _function = "dropout"


class Dropout1d(_FeatureDropout):
    """Zeroes whole channels of `[B, L, C]` or `[L, C]` with probability `p` in training; else as `Dropout`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout1d.html

    Args:
      p, inplace, deterministic, rngs: as of `Dropout`.
      data_format: `"NLC"`, or `"NCL"` for `[B, C, L]`.

    Example:
      >>> dropout = Dropout1d(0.5, rngs=nnx.Rngs(0))
      >>> dropout(jnp.ones((1, 2, 2)), mask=jnp.array([[[True, False]]])).tolist()
      [[[2.0, 0.0], [2.0, 0.0]]]
    """

    _function = "dropout1d"
    _spatial = 1


class Dropout2d(_FeatureDropout):
    """Zeroes whole channels of `[B, H, W, C]` with probability `p` in training; else as `Dropout`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout2d.html

    Args:
      p, inplace, deterministic, rngs: as of `Dropout`.
      data_format: `"NHWC"`, or `"NCHW"` for `[B, C, H, W]`.

    Example:
      >>> Dropout2d(0.5, rngs=nnx.Rngs(0))(jnp.ones((2, 5, 5, 3))).shape
      (2, 5, 5, 3)
    """

    _function = "dropout2d"
    _spatial = 2


class Dropout3d(_FeatureDropout):
    """Zeroes whole channels of `[B, D, H, W, C]` or `[D, H, W, C]` with probability `p` in training; else as `Dropout`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout3d.html

    Args:
      p, inplace, deterministic, rngs: as of `Dropout`.
      data_format: `"NDHWC"`, or `"NCDHW"` for `[B, C, D, H, W]`.

    Example:
      >>> Dropout3d(0.5, rngs=nnx.Rngs(0))(jnp.ones((2, 4, 5, 5, 3))).shape
      (2, 4, 5, 5, 3)
    """

    _function = "dropout3d"
    _spatial = 3


class AlphaDropout(_Dropout):
    """Sets elements to the saturation value of SELU in training and restores mean and variance; else as `Dropout`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AlphaDropout.html

    Args:
      p, inplace, deterministic, rngs: as of `Dropout`.

    Example:
      >>> AlphaDropout(0.5, rngs=nnx.Rngs(0))(jnp.ones((2, 3))).shape
      (2, 3)
    """

    _function = "alpha_dropout"


class FeatureAlphaDropout(_FeatureDropout):
    """`AlphaDropout` of whole channels of `[B, ..., C]`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.FeatureAlphaDropout.html

    Args:
      p, inplace, deterministic, rngs: as of `Dropout`.
      data_format: `"channels_last"`, or `"channels_first"` for `[B, C, ...]`.

    Example:
      >>> FeatureAlphaDropout(0.5, rngs=nnx.Rngs(0))(jnp.ones((2, 5, 5, 3))).shape
      (2, 5, 5, 3)
    """

    _function = "feature_alpha_dropout"
    _spatial = None
