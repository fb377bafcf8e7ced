"""Dropout of elements and of whole features, plain and for self-normalising networks.

All keep each element (each channel of each sample) with probability `1 - p`. A mask is drawn in training only, and
not where `p` is 0 (the input itself) or 1 (the input times zero); a NaN that is dropped stays NaN, as PyTorch
multiplies. `inplace` is taken for PyTorch's sake and means nothing.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ..arguments import as_probability, check_floating, warn
from ..layout import DataFormat, as_layout
from .masks import Rngs, mask_for

__all__: list[str] = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

_SATURATION = -1.7580993408473766  # of SELU at minus infinity


def dropout(
    input: jax.Array,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    mask: jax.Array | None = None,
    rngs: Rngs | None = None,
) -> jax.Array:
    """Zeroes elements with probability `p`, and divides the others by `1 - p`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout.html

    Args:
      input: floating array of any shape.
      p: probability of an element to be zeroed.
      training: False for `input` as it is.
      inplace: means nothing.
      mask: True where an element is kept; of a shape that broadcasts to `input`'s. Taken instead of a draw.
      rngs: drawn from where `mask` is None: an `nnx.Rngs` (its `dropout`), a stream, or a key.

    Raises:
      ValueError: for a `p` outside of [0, 1], a mask that does not fit, or where there is nothing to draw from.
      TypeError: where `input` is not floating, or `mask` not boolean.
    """
    return _dropped(input, p, training, tuple(input.shape), mask, rngs, "dropout")


def alpha_dropout(
    input: jax.Array,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    *,
    mask: jax.Array | None = None,
    rngs: Rngs | None = None,
) -> jax.Array:
    """Sets elements to the saturation value of SELU with probability `p`, then restores mean 0 and variance 1.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.alpha_dropout.html

    Args and errors: as those of `dropout`; `training` is False by default.
    """
    return _dropped(input, p, training, tuple(input.shape), mask, rngs, "alpha_dropout", alpha=True)


def dropout1d(
    input: jax.Array,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    data_format: DataFormat = "NLC",
    mask: jax.Array | None = None,
    rngs: Rngs | None = None,
) -> jax.Array:
    """Zeroes whole channels of `[B, L, C]` or `[L, C]` with probability `p`, and divides the others by `1 - p`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout1d.html

    Args:
      input, p, training, inplace, rngs: as of `dropout`.
      data_format: `"NLC"`, or `"NCL"` for `[B, C, L]`.
      mask: True where a channel is kept: `[B, 1, C]`, or as the layout says.

    Raises:
      ValueError: as `dropout`, and for an input of another rank.
    """
    if input.ndim not in (2, 3):
        raise ValueError(
            f"input has shape {tuple(input.shape)}; dropout1d wants one spatial axis, channels and at most a batch: "
            "2 or 3 axes"
        )
    shape = _features(input, as_layout(data_format, 1), batched=input.ndim == 3)
    return _dropped(input, p, training, shape, mask, rngs, "dropout1d")


def dropout2d(
    input: jax.Array,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    data_format: DataFormat = "NHWC",
    mask: jax.Array | None = None,
    rngs: Rngs | None = None,
) -> jax.Array:
    """Zeroes whole channels of `[B, H, W, C]` with probability `p`, and divides the others by `1 - p`.

    An input of three axes is a batch of sequences, as it is to PyTorch, which warns of that: `[B, L, C]`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout2d.html

    Args:
      input, p, training, inplace, rngs: as of `dropout`.
      data_format: `"NHWC"`, or `"NCHW"` for `[B, C, H, W]`.
      mask: True where a channel is kept: `[B, 1, 1, C]`, or as the layout says.

    Raises:
      ValueError: as `dropout`, and for an input of fewer than two axes.
    """
    layout = as_layout(data_format, 2)
    if input.ndim == 3:
        warn(
            f"input of dropout2d has shape {tuple(input.shape)}, and its first axis is taken for the batch, as PyTorch "
            "does; call dropout1d for sequences, or give images a batch axis"
        )
    elif input.ndim != 4:
        _warn_of_rank("dropout2d", input, "[B, H, W, C]")
    shape = _features(input, layout, batched=True)
    return _dropped(input, p, training, shape, mask, rngs, "dropout2d")


def dropout3d(
    input: jax.Array,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    data_format: DataFormat = "NDHWC",
    mask: jax.Array | None = None,
    rngs: Rngs | None = None,
) -> jax.Array:
    """Zeroes whole channels of `[B, D, H, W, C]` or `[D, H, W, C]` with probability `p`, divides others by `1 - p`.

    An input of any rank but five has no batch axis, as PyTorch has it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout3d.html

    Args:
      input, p, training, inplace, rngs: as of `dropout`.
      data_format: `"NDHWC"`, or `"NCDHW"` for `[B, C, D, H, W]`.
      mask: True where a channel is kept: `[B, 1, 1, 1, C]`, or as the layout says.

    Raises:
      ValueError: as `dropout`, and for a scalar input.
    """
    layout = as_layout(data_format, 3)
    if input.ndim not in (4, 5):
        _warn_of_rank("dropout3d", input, "[B, D, H, W, C] or [D, H, W, C]")
    shape = _features(input, layout, batched=input.ndim == 5)
    return _dropped(input, p, training, shape, mask, rngs, "dropout3d")


def feature_alpha_dropout(
    input: jax.Array,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    *,
    data_format: DataFormat = "channels_last",
    mask: jax.Array | None = None,
    rngs: Rngs | None = None,
) -> jax.Array:
    """`alpha_dropout` of whole channels of `[B, ..., C]`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.feature_alpha_dropout.html

    Args:
      input, p, training, inplace, rngs: as of `dropout`; `training` is False by default.
      data_format: `"channels_last"`, or `"channels_first"` for `[B, C, ...]`.
      mask: True where a channel is kept: `[B, 1.., C]`, or as the layout says.

    Raises:
      ValueError: as `dropout`, and for an input of fewer than two axes.
    """
    shape = _features(input, as_layout(data_format), batched=True)
    return _dropped(input, p, training, shape, mask, rngs, "feature_alpha_dropout", alpha=True)


def _features(input: jax.Array, layout: str, *, batched: bool) -> tuple[int, ...] | None:
    """The shape of `input`, 1 on its spatial axes; None where it has too few axes to have channels."""
    if input.ndim < 1 + batched:
        return None
    channel = input.ndim - 1 if layout == "channels_last" else int(batched)
    kept = {0, channel} if batched else {channel}
    return tuple(length if axis in kept else 1 for axis, length in enumerate(input.shape))


def _dropped(
    input: jax.Array,
    p: float,
    training: bool,
    shape: tuple[int, ...] | None,
    mask: jax.Array | None,
    rngs: Rngs | None,
    name: str,
    *,
    alpha: bool = False,
) -> jax.Array:
    p = as_probability("p", p)
    if p == 0 or not training or input.size == 0:
        return input
    if p == 1:
        return input * jnp.zeros((), input.dtype)
    if shape is None:
        raise ValueError(f"input has shape {tuple(input.shape)}; {name} wants channels, and a batch axis beside them")
    check_floating("input", input)
    wide = input.astype(jnp.promote_types(input.dtype, jnp.float32))
    kept = mask_for(shape, p, mask, rngs, of=name).astype(jnp.finfo(wide.dtype).dtype)
    if not alpha:
        return (wide * (kept / (1 - p))).astype(input.dtype)
    scale = 1 / math.sqrt((_SATURATION**2 * p + 1) * (1 - p))
    shift = (1 - kept) * (scale * _SATURATION) - scale * _SATURATION * p
    return (wide * (kept * scale) + shift).astype(input.dtype)


def _warn_of_rank(name: str, input: jax.Array, wanted: str) -> None:
    warn(
        f"input of {name} has shape {tuple(input.shape)}, and {wanted} was wanted; other ranks are deprecated in "
        "PyTorch: call dropout for single elements"
    )
