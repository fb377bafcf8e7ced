"""The layers over `piecewise`, and `LeakyReLU`."""

from __future__ import annotations

import jax

from ..arguments import warn
from ..layer import Layer
from .piecewise import hardshrink, hardsigmoid, hardswish, hardtanh, relu, relu6, softshrink, threshold
from .slopes import leaky_relu


class ReLU(Layer):
    """`max(input, 0)`; derivative 0 at 0.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU.html

    Args:
      inplace: means nothing, here and in every layer.

    Example:
      >>> ReLU()(jnp.array([-1.0, 2.0])).tolist()
      [0.0, 2.0]
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def __call__(self, input: jax.Array) -> jax.Array:
        return relu(input)


class ReLU6(Layer):
    """`min(max(input, 0), 6)`; derivative 0 at 0 and at 6.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU6.html
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def __call__(self, input: jax.Array) -> jax.Array:
        return relu6(input)


class Hardtanh(Layer):
    """`input` clipped to `[min_val, max_val]`; derivative 0 at both.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardtanh.html

    Args:
      min_val, max_val: the ends.
      inplace: means nothing.
      min_value, max_value: their former names, which PyTorch has deprecated.

    Raises:
      ValueError: unless `min_val < max_val`.

    Example:
      >>> Hardtanh(-2.0, 2.0)(jnp.array([-3.0, 1.0])).tolist()
      [-2.0, 1.0]
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ):
        if min_value is not None or max_value is not None:
            warn("min_value and max_value are deprecated; name them min_val and max_val")
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if not self.min_val < self.max_val:
            raise ValueError(f"min_val is {self.min_val!r}, and max_val {self.max_val!r}; give a larger max_val")

    def __call__(self, input: jax.Array) -> jax.Array:
        return hardtanh(input, self.min_val, self.max_val)


class Threshold(Layer):
    """`input` where it is above `threshold`, elsewhere `value`; derivative 0 at `threshold`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Threshold.html

    Example:
      >>> Threshold(0.5, 20.0)(jnp.array([0.5, 1.0])).tolist()
      [20.0, 1.0]
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def __call__(self, input: jax.Array) -> jax.Array:
        return threshold(input, self.threshold, self.value)


class Hardshrink(Layer):
    """0 on `[-lambd, lambd]`, elsewhere `input`; derivative 0 at both ends.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardshrink.html
    """

    def __init__(self, lambd: float = 0.5):
        self.lambd = lambd

    def __call__(self, input: jax.Array) -> jax.Array:
        return hardshrink(input, self.lambd)


class Softshrink(Layer):
    """`input` moved by `lambd` towards 0, and 0 on `[-lambd, lambd]`; derivative 0 at both ends.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softshrink.html

    Raises:
      ValueError: for a `lambd` below 0.
    """

    def __init__(self, lambd: float = 0.5):
        if not lambd >= 0:
            raise ValueError(f"lambd is {lambd!r}; give 0 or more")
        self.lambd = lambd

    def __call__(self, input: jax.Array) -> jax.Array:
        return softshrink(input, self.lambd)


class Hardsigmoid(Layer):
    """`min(max(input + 3, 0), 6) / 6`; derivative 0 at -3 and at 3.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardsigmoid.html
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def __call__(self, input: jax.Array) -> jax.Array:
        return hardsigmoid(input)


class Hardswish(Layer):
    """`input * hardsigmoid(input)`; derivative 0 at -3, 1 at 3.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardswish.html
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def __call__(self, input: jax.Array) -> jax.Array:
        return hardswish(input)


class LeakyReLU(Layer):
    """`input` above 0, elsewhere `negative_slope * input`; derivative `negative_slope` at 0.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LeakyReLU.html

    Example:
      >>> LeakyReLU(0.5)(jnp.array([-2.0, 2.0])).tolist()
      [-1.0, 2.0]
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False):
        self.negative_slope = negative_slope
        self.inplace = inplace

    def __call__(self, input: jax.Array) -> jax.Array:
        return leaky_relu(input, self.negative_slope)
