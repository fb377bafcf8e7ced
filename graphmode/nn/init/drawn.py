"""Initial values that are drawn, from PyTorch's distributions: the numbers themselves are others."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from ..arguments import as_word
from .fixed import calculate_gain
from .layouts import checked, fans, set_from_torch, set_value, torch_shape

Mode = Literal["fan_in", "fan_out"]


def uniform_(variable: nnx.Variable, a: float = 0.0, b: float = 1.0, *, rngs: Any) -> nnx.Variable:
    """U(a, b).

    Args:
      variable: that is set.
      a, b: bounds.
      rngs: an `nnx.Rngs`, whose `params` stream is drawn from, an `nnx.RngStream`, or a key.

    Raises:
      ValueError: where `a` is above `b`.
    """
    if not a <= b:
        raise ValueError(f"a is {a} and b is {b}; the lower bound comes first")
    shape, dtype = _drawn(variable)
    return set_value(variable, jax.random.uniform(_key(rngs), shape, dtype, a, b))


def normal_(variable: nnx.Variable, mean: float = 0.0, std: float = 1.0, *, rngs: Any) -> nnx.Variable:
    """N(mean, std^2).

    Args:
      variable: that is set.
      mean, std: of the distribution.
      rngs: as in `uniform_`.

    Raises:
      ValueError: where `std` is negative.
    """
    if not std >= 0:
        raise ValueError(f"std is {std}; give 0 or more")
    shape, dtype = _drawn(variable)
    return set_value(variable, mean + std * jax.random.normal(_key(rngs), shape, dtype))


def trunc_normal_(
    variable: nnx.Variable, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, *, rngs: Any
) -> nnx.Variable:
    """N(mean, std^2) between `a` and `b`, which are values and no multiples of `std`.

    Args:
      variable: that is set.
      mean, std: of the distribution before it is cut.
      a, b: bounds.
      rngs: as in `uniform_`.

    Raises:
      ValueError: where `std` is not positive, or `a` is not below `b`.
    """
    if not std > 0:
        raise ValueError(f"std is {std}; give more than 0")
    if not a < b:
        raise ValueError(f"a is {a} and b is {b}; the lower bound comes first")
    low, high = (a - mean) / std, (b - mean) / std
    # Where both lie above the mean, the mirror image is drawn: small probabilities keep their digits, those near 1 not.
    sign = -1 if low > 0 else 1
    low, high = (-high, -low) if sign < 0 else (low, high)
    shape, dtype = _drawn(variable)
    first, last = (0.5 * math.erfc(-bound / math.sqrt(2)) for bound in (low, high))
    probability = jax.random.uniform(_key(rngs), shape, dtype, first, last)
    # Of 2^23 draws one is 0, at which the quantile is the bound itself, be it a hundred deviations away.
    probability = jnp.maximum(probability, first + (last - first) * float(jnp.finfo(dtype).eps) / 2)
    value = mean + std * sign * jnp.clip(jax.scipy.special.ndtri(probability), low, high)
    return set_value(variable, jnp.clip(value, a, b))


def xavier_uniform_(variable: nnx.Variable, gain: float = 1.0, *, rngs: Any) -> nnx.Variable:
    """U(-a, a) with `a = gain * sqrt(6 / (fan_in + fan_out))`.

    Args:
      variable: that is set; of 2 axes or more.
      gain: see `calculate_gain`.
      rngs: as in `uniform_`.

    Raises:
      ValueError: where `variable` has fewer axes.
    """
    bound = gain * math.sqrt(6 / max(sum(fans(variable)), 1))
    return uniform_(variable, -bound, bound, rngs=rngs)


def xavier_normal_(variable: nnx.Variable, gain: float = 1.0, *, rngs: Any) -> nnx.Variable:
    """N(0, std^2) with `std = gain * sqrt(2 / (fan_in + fan_out))`.

    Args:
      variable: that is set; of 2 axes or more.
      gain: see `calculate_gain`.
      rngs: as in `uniform_`.

    Raises:
      ValueError: where `variable` has fewer axes.
    """
    return normal_(variable, 0.0, gain * math.sqrt(2 / max(sum(fans(variable)), 1)), rngs=rngs)


def kaiming_uniform_(
    variable: nnx.Variable, a: float = 0, mode: Mode = "fan_in", nonlinearity: str = "leaky_relu", *, rngs: Any
) -> nnx.Variable:
    """U(-bound, bound) with `bound = gain * sqrt(3 / fan)`.

    Args:
      variable: that is set; of 2 axes or more. One without entries stays as it is.
      a: negative slope of the activation that follows, for `"leaky_relu"` only.
      mode: `"fan_in"` keeps the variance forward, `"fan_out"` backward.
      nonlinearity: see `calculate_gain`.
      rngs: as in `uniform_`.

    Raises:
      ValueError: where `variable` has fewer axes, or for another mode or activation.
    """
    std = _kaiming_std(variable, a, mode, nonlinearity)
    return variable if std is None else uniform_(variable, -math.sqrt(3) * std, math.sqrt(3) * std, rngs=rngs)


def kaiming_normal_(
    variable: nnx.Variable, a: float = 0, mode: Mode = "fan_in", nonlinearity: str = "leaky_relu", *, rngs: Any
) -> nnx.Variable:
    """N(0, std^2) with `std = gain / sqrt(fan)`; the arguments are those of `kaiming_uniform_`."""
    std = _kaiming_std(variable, a, mode, nonlinearity)
    return variable if std is None else normal_(variable, 0.0, std, rngs=rngs)


def orthogonal_(variable: nnx.Variable, gain: float = 1, *, rngs: Any) -> nnx.Variable:
    """A matrix whose rows, or, where they are more, whose columns are orthogonal and of length `gain`.

    Args:
      variable: that is set; of 2 axes or more, all but the first in PyTorch's layout taken together.
      gain: factor.
      rngs: as in `uniform_`.

    Raises:
      ValueError: where `variable` has fewer axes.
    """
    shape = torch_shape(variable)
    if len(shape) < 2:
        raise ValueError(f"variable has shape {shape}, and 2 axes or more were wanted")
    if 0 in shape:
        return variable
    rows, columns = shape[0], math.prod(shape[1:])
    _, dtype = _drawn(variable)
    drawn = jax.random.normal(_key(rngs), (max(rows, columns), min(rows, columns)), dtype)
    q, r = jnp.linalg.qr(drawn)
    q = q * jnp.sign(jnp.diagonal(r))
    return set_from_torch(variable, gain * (q.T if rows < columns else q).reshape(shape))


def sparse_(variable: nnx.Variable, sparsity: float, std: float = 0.01, *, rngs: Any) -> nnx.Variable:
    """N(0, std^2) with zeros for a fraction of each column of PyTorch's layout, of the weights of each input therefore.

    Args:
      variable: that is set; of 2 axes.
      sparsity: fraction of each column that is zero, rounded up to a whole number of entries.
      std: of the others.
      rngs: as in `uniform_`.

    Raises:
      ValueError: where `variable` has not 2 axes, or `std` is negative.
    """
    shape = torch_shape(variable)
    if len(shape) != 2:
        raise ValueError(f"variable has shape {shape}, and 2 axes were wanted")
    if not std >= 0:
        raise ValueError(f"std is {std}; give 0 or more")
    _, dtype = _drawn(variable)
    values, order = jax.random.split(_key(rngs))
    ranks = jnp.argsort(jnp.argsort(jax.random.uniform(order, shape), axis=0), axis=0)
    drawn = std * jax.random.normal(values, shape, dtype)
    return set_from_torch(variable, jnp.where(ranks < math.ceil(sparsity * shape[0]), 0, drawn))


def _kaiming_std(variable: nnx.Variable, a: float, mode: str, nonlinearity: str) -> float | None:
    as_word("mode", mode, ("fan_in", "fan_out"))
    gain = calculate_gain(nonlinearity, a)
    if 0 in checked(variable).get_value().shape:
        return None
    return gain / math.sqrt(fans(variable)[mode == "fan_out"])


def _drawn(variable: nnx.Variable) -> tuple[tuple[int, ...], Any]:
    """The shape, and the dtype that is drawn in: float32 for halves, which have too few numbers below 1."""
    value = checked(variable).get_value()
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"variable is {value.dtype}, and a floating dtype was wanted")
    return tuple(value.shape), jnp.promote_types(value.dtype, jnp.float32)


def _key(rngs: Any) -> jax.Array:
    if isinstance(rngs, nnx.Rngs):
        return rngs.params()
    if isinstance(rngs, nnx.RngStream):
        return rngs()
    if isinstance(rngs, jax.Array):
        return rngs
    raise TypeError(f"rngs is {type(rngs).__name__}; give an nnx.Rngs, an nnx.RngStream or a key")
