"""Activations made of exponentials, error functions and their like, in the forms that PyTorch evaluates."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..arguments import as_word
from ..autocast import autocasts
from .derivative import floating, kinked, smooth

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946
_ATANH = (0.1408732863, 0.1398070942, 0.2001242686, 0.3333315797, 1.0000000039)  # atanh(s) / s by s^2 to 1/9, to 4e-9


def elu(input: jax.Array, alpha: float = 1.0, inplace: bool = False) -> jax.Array:
    """`input` above 0, elsewhere `alpha * (exp(input) - 1)`; derivative `alpha` at 0.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.elu.html
    """
    return _elu(floating(input), alpha, 1.0, 1.0, 1.0)


def celu(input: jax.Array, alpha: float = 1.0, inplace: bool = False) -> jax.Array:
    """`input` above 0, elsewhere `alpha * (exp(input / alpha) - 1)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.celu.html

    Raises:
      ValueError: for an `alpha` of 0.
    """
    if alpha == 0:
        raise ValueError("alpha is 0, and celu divides by it; give another number, or call relu")
    # PyTorch's derivative rounds alpha to float32 on the way, in float64 too.
    return _elu(floating(input), alpha, 1.0, 1.0 / alpha, 1.0 / float(np.float32(alpha)))


def selu(input: jax.Array, inplace: bool = False) -> jax.Array:
    """`elu` scaled so that mean 0 and variance 1 are a fixed point; derivative 1.758 at 0.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.selu.html
    """
    return _elu(floating(input), _SELU_ALPHA, _SELU_SCALE, 1.0, 1.0)


def gelu(input: jax.Array, *, approximate: str = "none") -> jax.Array:
    """`input` times the normal distribution function of it, exact or by a tanh.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gelu.html

    Args:
      input: floating array of any shape.
      approximate: `"none"`, or `"tanh"`.

    Raises:
      ValueError: for another word.
    """
    exact = as_word("approximate", approximate, ("none", "tanh")) == "none"
    return (_gelu if exact else _gelu_tanh)(floating(input))


def glu(input: jax.Array, dim: int = -1) -> jax.Array:
    """The first half of `input` along `dim`, times the sigmoid of the second.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.glu.html

    Raises:
      ValueError: where that axis is not there, or its length is odd.
    """
    input = floating(input)
    if not -input.ndim <= dim < input.ndim:
        raise ValueError(f"dim is {dim!r}, and input has shape {tuple(input.shape)}; name one of its axes")
    if input.shape[dim] % 2:
        raise ValueError(
            f"input has shape {tuple(input.shape)}, and axis {dim} is to be halved; give it an even length"
        )
    return _glu(input, dim)


def silu(input: jax.Array, inplace: bool = False) -> jax.Array:
    """`input * sigmoid(input)`, also called swish. Complex numbers too.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.silu.html
    """
    return _silu(input)


def mish(input: jax.Array, inplace: bool = False) -> jax.Array:
    """`input * tanh(softplus(input))`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.mish.html
    """
    return _mish(floating(input))


@autocasts
def softplus(input: jax.Array, beta: float = 1.0, threshold: float = 20.0) -> jax.Array:
    """`log(1 + exp(beta * input)) / beta`, and `input` itself where `beta * input > threshold`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softplus.html
    """
    return _softplus(floating(input), beta, threshold)


def logsigmoid(input: jax.Array) -> jax.Array:
    """`log(sigmoid(input))`, without overflow.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.logsigmoid.html
    """
    return _logsigmoid(floating(input))


def sigmoid(input: jax.Array) -> jax.Array:
    """`1 / (1 + exp(-input))`. Complex numbers too; integers give float32.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.sigmoid.html
    """
    return _sigmoid(input)


def tanh(input: jax.Array) -> jax.Array:
    """Hyperbolic tangent. Complex numbers too; integers give float32.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.tanh.html
    """
    return _tanh(input)


def tanhshrink(input: jax.Array) -> jax.Array:
    """`input - tanh(input)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.tanhshrink.html
    """
    return _tanhshrink(input)


def softsign(input: jax.Array) -> jax.Array:
    """`input / (1 + abs(input))`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softsign.html
    """
    return _softsign(input)


def _elu_value(x: jax.Array, alpha: float, scale: float, steepness: float, backward: float) -> jax.Array:
    negative = jnp.where(x < 0, x, 0)
    bend = _expm1_below_0(negative * steepness) if steepness > 0 else jnp.expm1(negative * steepness)
    return jnp.where(x < 0, bend * (alpha * scale), x * scale)


def _expm1_below_0(x: jax.Array) -> jax.Array:
    """`exp(x) - 1` for x up to 0, as exact as `jnp.expm1`, which evaluates this and `exp` and chooses."""
    t = lax.tanh(x * 0.5)
    return 2 * t / (1 - t)


def _elu_tangent(
    t: jax.Array, x: jax.Array, alpha: float, scale: float, steepness: float, backward: float
) -> jax.Array:
    negative = jnp.where(x < 0, x, 0)  # PyTorch's second derivative is 0 at 0
    return jnp.where(x <= 0, t * (alpha * scale * backward) * jnp.exp(negative * backward), t * scale)


def _softplus_value(x: jax.Array, beta: float, threshold: float) -> jax.Array:
    scaled = x * beta
    if threshold < math.log(float(jnp.finfo(x.dtype).max)):
        curved = jnp.maximum(scaled, 0) + _log1p_to_1(jnp.exp(-jnp.abs(scaled)))
    else:  # PyTorch's exponential overflows, and so does this
        curved = jnp.log1p(jnp.exp(jnp.where(scaled > threshold, 0, scaled)))
    return jnp.where(scaled > threshold, x, curved / beta if beta else curved / jnp.zeros_like(x))


def _log1p_to_1(x: jax.Array) -> jax.Array:
    """`log(1 + x)` for x from 0 to 1, in float32 as exact as `jnp.log1p`, and after an `exp` three times as fast.

    It is 2 atanh(x / (2 + x)), by a polynomial in the square.
    """
    if x.dtype != np.float32:
        return jnp.log1p(x)
    s = x / (2 + x)
    return 2 * s * jnp.polyval(np.array(_ATANH, np.float32), s * s, unroll=len(_ATANH))


def _softplus_tangent(t: jax.Array, x: jax.Array, beta: float, threshold: float) -> jax.Array:
    scaled = x * beta
    # PyTorch's second derivative is 0 at the threshold itself.
    z = jnp.exp(jnp.where(scaled >= threshold, jnp.where(scaled > threshold, 0.0, threshold), scaled))
    return jnp.where(scaled > threshold, t, t * (z / (z + 1)))


def _logsigmoid_tangent(t: jax.Array, x: jax.Array) -> jax.Array:
    z = _decay(x)
    return t * (jnp.where(x < 0, 1, z) / (1 + z))


def _mish_value(x: jax.Array) -> jax.Array:
    numerator, denominator = _tanh_softplus(x, _decay(x))
    return x * (numerator / denominator)


def _mish_tangent(t: jax.Array, x: jax.Array) -> jax.Array:
    z = _decay(x)
    numerator, denominator = _tanh_softplus(x, z)
    # sigmoid(x) * (1 - tanh(softplus(x))^2), which loses its digits if subtracted.
    bend = 4 * z * (1 + z) * jnp.where(x < 0, 1, z) / (denominator * denominator)
    return t * (numerator / denominator + x * bend)


def _tanh_softplus(x: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Numerator and denominator of `tanh(log(1 + exp(x)))`, a quotient of polynomials in `z = exp(-abs(x))`."""
    numerator = jnp.where(x < 0, z * (z + 2), 1 + 2 * z)
    return numerator, numerator + jnp.where(x < 0, 2, 2 * z * z)


def _decay(x: jax.Array) -> jax.Array:
    """`exp(-abs(x))`, with derivative -1 at 0: `abs` has 0 there, and second derivatives would be wrong."""
    return jnp.exp(jnp.where(x < 0, x, -x))


_magnitude = kinked(lambda x: jnp.abs(x), lambda t, x: t * lax.sign(x))  # the derivative of `jnp.abs` at 0 is 1
_elu = kinked(_elu_value, _elu_tangent)
_mish = kinked(_mish_value, _mish_tangent)
_softplus = kinked(_softplus_value, _softplus_tangent)
_logsigmoid = kinked(lambda x: jnp.minimum(x, 0) - _log1p_to_1(jnp.exp(-jnp.abs(x))), _logsigmoid_tangent)
# The same for losses: XLA's CPU backend takes `log1p` into a sum.
logsigmoid_summed = kinked(lambda x: jnp.minimum(x, 0) - jnp.log1p(jnp.exp(-jnp.abs(x))), _logsigmoid_tangent)


@smooth
def _gelu(x: jax.Array) -> jax.Array:
    return x * 0.5 * (1 + lax.erf(x * math.sqrt(0.5)))


@smooth
def _gelu_tanh(x: jax.Array) -> jax.Array:
    return 0.5 * x * (1 + lax.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


@smooth
def _glu(x: jax.Array, dim: int) -> jax.Array:
    kept, gate = jnp.split(x, 2, dim)
    return kept * lax.logistic(gate)


@smooth
def _silu(x: jax.Array) -> jax.Array:
    return x * lax.logistic(x)


@smooth
def _sigmoid(x: jax.Array) -> jax.Array:
    return lax.logistic(x)


@smooth
def _tanh(x: jax.Array) -> jax.Array:
    return lax.tanh(x)


@smooth
def _tanhshrink(x: jax.Array) -> jax.Array:
    return x - lax.tanh(x)


@smooth
def _softsign(x: jax.Array) -> jax.Array:
    return x / (1 + (jnp.abs(x) if jnp.iscomplexobj(x) else _magnitude(x)))
