"""Softmax, its logarithm, its mirror image and its sampled form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..arguments import warn
from ..autocast import autocasts
from ..dropout.masks import Rngs, key_from
from .derivative import floating


@autocasts
def softmax(input: jax.Array, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> jax.Array:
    """`exp(input)` over its sum along `dim`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html

    Args:
      input: floating array of any shape; where `dtype` is given, of any dtype.
      dim: axis of the array as it is given; None for PyTorch's deprecated choice (0 of an array of 0, 1 or 3 axes, else
        1), with a warning.
      _stacklevel: means nothing.
      dtype: that `input` is cast to first.

    Raises:
      ValueError: where that axis is not there.
      TypeError: where `input` is not floating.
    """
    return _along(jax.nn.softmax, "softmax", input, dim, dtype)


@autocasts
def log_softmax(input: jax.Array, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> jax.Array:
    """`log(softmax(input, dim))`, without overflow; arguments as those of `softmax`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.log_softmax.html
    """
    return _along(jax.nn.log_softmax, "log_softmax", input, dim, dtype)


def softmin(input: jax.Array, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> jax.Array:
    """`softmax(-input, dim)`; arguments as those of `softmax`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmin.html
    """
    if dim is None:
        dim = _implicit_dim("softmin", jnp.ndim(input))
    return softmax(-input, dim, dtype=dtype)


def gumbel_softmax(
    logits: jax.Array,
    tau: float = 1,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
    *,
    gumbels: jax.Array | None = None,
    rngs: Rngs | None = None,
) -> jax.Array:
    """A sample of the Gumbel-softmax distribution: `softmax((logits + gumbels) / tau, dim)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gumbel_softmax.html

    Args:
      logits: floating array of any shape, unnormalised log-probabilities along `dim`.
      tau: temperature.
      hard: whether the value is one-hot, its gradient staying that of the soft sample.
      eps: means nothing, as in PyTorch, which warns of any but the default.
      dim: axis of the array as it is given.
      gumbels: standard Gumbel noise, `-log` of standard exponential; of a shape that broadcasts to that of `logits`.
      rngs: drawn from where `gumbels` is None: an `nnx.Rngs` (its `dropout`), a stream, or a key.

    Raises:
      ValueError: where that axis is not there, the noise does not fit, or there is nothing to draw from.
    """
    logits = floating(logits, "logits")
    if eps != 1e-10:
        warn(f"eps is {eps!r}; it is deprecated in PyTorch and has no effect")
    if gumbels is None:
        if rngs is None:
            raise ValueError("gumbel_softmax has nothing to draw from; give rngs=nnx.Rngs(...), or gumbels=")
        gumbels = jax.random.gumbel(key_from(rngs), logits.shape, jnp.promote_types(logits.dtype, jnp.float32))
    gumbels = jnp.asarray(gumbels)
    if jnp.broadcast_shapes(gumbels.shape, logits.shape) != logits.shape:
        raise ValueError(
            f"gumbels has shape {tuple(gumbels.shape)}, and one that broadcasts to {tuple(logits.shape)}, that of "
            "logits, was wanted"
        )
    soft = softmax((logits + gumbels.astype(logits.dtype)) / tau, dim)
    if not hard:
        return soft
    if soft.ndim == 0:
        return jnp.ones_like(soft) - jax.lax.stop_gradient(soft) + soft
    one_hot = jax.nn.one_hot(jnp.argmax(soft, dim), soft.shape[dim], dtype=soft.dtype, axis=dim)
    return one_hot - jax.lax.stop_gradient(soft) + soft


def _along(function: Any, name: str, input: jax.Array, dim: int | None, dtype: Any) -> jax.Array:
    input = jnp.asarray(input) if dtype is None else jnp.asarray(input).astype(dtype)
    input = floating(input)
    if dim is None:
        dim = _implicit_dim(name, input.ndim)
    axes = max(input.ndim, 1)
    if not -axes <= dim < axes:
        raise ValueError(f"dim is {dim!r}, and input has shape {tuple(input.shape)}; name one of its axes")
    wide = input.astype(jnp.promote_types(input.dtype, jnp.float32))
    return function(wide.reshape(input.shape or (1,)), axis=dim).reshape(input.shape).astype(input.dtype)


def _implicit_dim(name: str, ndim: int) -> int:
    dim = 0 if ndim in (0, 1, 3) else 1
    warn(f"{name} is given no dim, and takes {dim} for an input of {ndim} axes; PyTorch has deprecated that: name it")
    return dim
