"""The layers over `smooth`."""

from __future__ import annotations

import jax

from ..arguments import as_word
from ..layer import Layer
from .smooth import (
    celu,
    elu,
    gelu,
    glu,
    logsigmoid,
    mish,
    selu,
    sigmoid,
    silu,
    softplus,
    softsign,
    tanh,
    tanhshrink,
)


class ELU(Layer):
    """`input` above 0, elsewhere `alpha * (exp(input) - 1)`; derivative `alpha` at 0.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ELU.html
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        self.alpha = alpha
        self.inplace = inplace

    def __call__(self, input: jax.Array) -> jax.Array:
        return elu(input, self.alpha)


class CELU(Layer):
    """`input` above 0, elsewhere `alpha * (exp(input / alpha) - 1)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CELU.html

    Raises:
      ValueError: for an `alpha` of 0.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        if alpha == 0:
            raise ValueError("alpha is 0, and CELU divides by it; give another number, or take ReLU")
        self.alpha = alpha
        self.inplace = inplace

    def __call__(self, input: jax.Array) -> jax.Array:
        return celu(input, self.alpha)


class SELU(Layer):
    """`ELU` scaled so that mean 0 and variance 1 are a fixed point.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SELU.html
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def __call__(self, input: jax.Array) -> jax.Array:
        return selu(input)


class GELU(Layer):
    """`input` times the normal distribution function of it, exact or by a tanh.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GELU.html

    Args:
      approximate: `"none"`, or `"tanh"`.

    Raises:
      ValueError: for another word.

    Example:
      >>> GELU()(jnp.array([0.0, 20.0])).tolist()
      [0.0, 20.0]
    """

    def __init__(self, approximate: str = "none"):
        self.approximate = as_word("approximate", approximate, ("none", "tanh"))

    def __call__(self, input: jax.Array) -> jax.Array:
        return gelu(input, approximate=self.approximate)


class GLU(Layer):
    """The first half of `input` along `dim`, times the sigmoid of the second.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GLU.html

    Args:
      dim: axis of the array as it is given.

    Example:
      >>> GLU()(jnp.array([6.0, 0.0])).tolist()
      [3.0]
    """

    def __init__(self, dim: int = -1):
        self.dim = dim

    def __call__(self, input: jax.Array) -> jax.Array:
        return glu(input, self.dim)


class SiLU(Layer):
    """`input * sigmoid(input)`, also called swish.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SiLU.html
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def __call__(self, input: jax.Array) -> jax.Array:
        return silu(input)


class Mish(Layer):
    """`input * tanh(softplus(input))`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Mish.html
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def __call__(self, input: jax.Array) -> jax.Array:
        return mish(input)


class Softplus(Layer):
    """`log(1 + exp(beta * input)) / beta`, and `input` itself where `beta * input > threshold`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softplus.html
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        self.beta = beta
        self.threshold = threshold

    def __call__(self, input: jax.Array) -> jax.Array:
        return softplus(input, self.beta, self.threshold)


class LogSigmoid(Layer):
    """`log(sigmoid(input))`, without overflow.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LogSigmoid.html
    """

    def __call__(self, input: jax.Array) -> jax.Array:
        return logsigmoid(input)


class Sigmoid(Layer):
    """`1 / (1 + exp(-input))`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Sigmoid.html
    """

    def __call__(self, input: jax.Array) -> jax.Array:
        return sigmoid(input)


class Tanh(Layer):
    """Hyperbolic tangent.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Tanh.html
    """

    def __call__(self, input: jax.Array) -> jax.Array:
        return tanh(input)


class Tanhshrink(Layer):
    """`input - tanh(input)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Tanhshrink.html
    """

    def __call__(self, input: jax.Array) -> jax.Array:
        return tanhshrink(input)


class Softsign(Layer):
    """`input / (1 + abs(input))`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softsign.html
    """

    def __call__(self, input: jax.Array) -> jax.Array:
        return softsign(input)
