"""Initial values that are not drawn, and the gains of activations."""

from __future__ import annotations

import math

import numpy as np
from flax import nnx

from ..arguments import as_integer, as_word
from .layouts import set_from_torch, set_value, torch_shape

_GAINS = {
    **dict.fromkeys([f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)], 1.0),
    "linear": 1.0,
    "sigmoid": 1.0,
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "selu": 3 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor of a standard deviation that keeps the variance through an activation.

    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.calculate_gain

    Args:
      nonlinearity: `"linear"`, `"conv1d"` and its like, `"sigmoid"`, `"tanh"`, `"relu"`, `"leaky_relu"` or `"selu"`.
      param: the negative slope of `"leaky_relu"`, 0.01 unless given.

    Raises:
      ValueError: for another name, or a slope that is no number.
    """
    as_word("nonlinearity", nonlinearity, [*_GAINS, "leaky_relu"])
    if nonlinearity != "leaky_relu":
        return _GAINS[nonlinearity]
    slope = 0.01 if param is None else param
    if isinstance(slope, bool) or not isinstance(slope, int | float):
        raise ValueError(f"param is {param!r}; give the negative slope, a number")
    return math.sqrt(2 / (1 + slope**2))


def constant_(variable: nnx.Variable, val: float) -> nnx.Variable:
    """`val` everywhere."""
    return set_value(variable, val)


def ones_(variable: nnx.Variable) -> nnx.Variable:
    """1 everywhere."""
    return set_value(variable, 1)


def zeros_(variable: nnx.Variable) -> nnx.Variable:
    """0 everywhere."""
    return set_value(variable, 0)


def eye_(variable: nnx.Variable) -> nnx.Variable:
    """The identity, as much of it as the shape holds: a linear layer then hands its input on.

    Raises:
      ValueError: where `variable` has not 2 axes.
    """
    shape = torch_shape(variable)
    if len(shape) != 2:
        raise ValueError(f"variable has shape {shape}, and 2 axes were wanted")
    return set_from_torch(variable, np.eye(*shape))


def dirac_(variable: nnx.Variable, groups: int = 1) -> nnx.Variable:
    """1 in the middle of each window that goes from a channel to the same one: a convolution hands its input on.

    Args:
      variable: of a convolution over 1, 2 or 3 axes.
      groups: of that convolution.

    Raises:
      ValueError: where `variable` has another number of axes, or `groups` does not divide its outputs.
    """
    shape = torch_shape(variable)
    groups = as_integer("groups", groups, least=1)
    if len(shape) not in (3, 4, 5):
        raise ValueError(f"variable has shape {shape} in PyTorch's layout, and 3, 4 or 5 axes were wanted")
    if shape[0] % groups:
        raise ValueError(f"groups is {groups}, and the first axis of {shape} in PyTorch's layout is no multiple of it")
    value = np.zeros(shape)
    middle = tuple(length // 2 for length in shape[2:])
    outputs = shape[0] // groups
    for group in range(groups):
        for channel in range(min(outputs, shape[1])):
            value[(group * outputs + channel, channel, *middle)] = 1
    return set_from_torch(variable, value)
