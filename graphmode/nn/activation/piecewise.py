"""Activations made of straight and quadratic pieces, each with PyTorch's derivative where pieces meet."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from .derivative import floating, kinked, real


def relu(input: jax.Array, inplace: bool = False) -> jax.Array:
    """`max(input, 0)`; derivative 0 at 0.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.relu.html
    """
    return _relu(input)


def relu6(input: jax.Array, inplace: bool = False) -> jax.Array:
    """`min(max(input, 0), 6)`; derivative 0 at 0 and at 6.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.relu6.html
    """
    return hardtanh(input, 0.0, 6.0)


def hardtanh(input: jax.Array, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> jax.Array:
    """`input` clipped to `[min_val, max_val]`; derivative 0 at both.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardtanh.html

    Raises:
      ValueError: where `min_val > max_val`.
    """
    if min_val > max_val:
        raise ValueError(f"min_val is {min_val!r}, which is above max_val, {max_val!r}; swap them")
    input = real(input)
    if not jnp.issubdtype(input.dtype, jnp.floating):
        min_val, max_val = int(min_val), int(max_val)
    return _hardtanh(input, min_val, max_val)


def threshold(input: jax.Array, threshold: float, value: float, inplace: bool = False) -> jax.Array:
    """`input` where it is above `threshold`, elsewhere `value`; derivative 0 at `threshold`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.threshold.html
    """
    input = real(input)
    if not jnp.issubdtype(input.dtype, jnp.floating):
        threshold, value = int(threshold), int(value)
    return _threshold(input, threshold, value)


def hardshrink(input: jax.Array, lambd: float = 0.5) -> jax.Array:
    """0 on `[-lambd, lambd]`, elsewhere `input`; derivative 0 at both ends.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardshrink.html
    """
    return _hardshrink(floating(input), lambd)


def softshrink(input: jax.Array, lambd: float = 0.5) -> jax.Array:
    """`input` moved by `lambd` towards 0, and 0 on `[-lambd, lambd]`; derivative 0 at both ends.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softshrink.html

    Raises:
      ValueError: for a `lambd` below 0, or beyond the largest number of the dtype.
    """
    input = floating(input)
    largest = float(jnp.finfo(input.dtype).max)
    if not 0 <= lambd <= largest:
        raise ValueError(f"lambd is {lambd!r}; give a number from 0 to {largest:g}, the largest {input.dtype}")
    return _softshrink(input, lambd)


def hardsigmoid(input: jax.Array, inplace: bool = False) -> jax.Array:
    """`min(max(input + 3, 0), 6) / 6`; derivative 0 at -3 and at 3.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardsigmoid.html
    """
    return _hardsigmoid(floating(input))


def hardswish(input: jax.Array, inplace: bool = False) -> jax.Array:
    """`input * hardsigmoid(input)`; derivative 0 at -3, 1 at 3.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardswish.html
    """
    return _hardswish(floating(input))


_SIXTH = float(np.float32(1) / np.float32(6))  # the constant in PyTorch's backward kernel, in float64 too

# A maximum, and no select: XLA's fusion of a convolution with its activation looks for it.
_relu = kinked(
    lambda x: jnp.maximum(x, 0),
    lambda t, x: jnp.where(x <= 0, 0, t),
)
_hardtanh = kinked(
    lambda x, low, high: jnp.clip(x, low, high),
    lambda t, x, low, high: jnp.where((x <= low) | (x >= high), 0, t),
)
_threshold = kinked(
    lambda x, threshold, value: jnp.where(x <= threshold, jnp.asarray(value, x.dtype), x),
    lambda t, x, threshold, value: jnp.where(x <= threshold, 0, t),
)
_hardshrink = kinked(
    lambda x, lambd: jnp.where((x >= -lambd) & (x <= lambd), 0, x),
    lambda t, x, lambd: jnp.where((x >= -lambd) & (x <= lambd), 0, t),
)
_softshrink = kinked(
    lambda x, lambd: jnp.where(x > lambd, x - lambd, jnp.where(x < -lambd, x + lambd, x * 0)),
    lambda t, x, lambd: jnp.where((x >= -lambd) & (x <= lambd), 0, t),
)
_hardsigmoid = kinked(
    lambda x: jnp.clip(x + 3, 0, 6) / 6,
    lambda t, x: jnp.where((x > -3) & (x < 3), t * _SIXTH, 0),
)
_hardswish = kinked(
    lambda x: x * jnp.clip(x + 3, 0, 6) / 6,
    lambda t, x: jnp.where(x <= -3, 0, jnp.where(x < 3, t * (jnp.where(jnp.abs(x) < 3, x, 0) / 3 + 0.5), t)),
)
