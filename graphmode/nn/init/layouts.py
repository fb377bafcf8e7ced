"""A parameter's shape as PyTorch holds it, and values given in that layout."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from graphmode.weights import IDENTITY, TRANSFORM


def torch_shape(variable: nnx.Variable) -> tuple[int, ...]:
    """The parameter's shape in PyTorch's layout."""
    shape = tuple(checked(variable).get_value().shape)
    return _transform(variable).to_reference(np.broadcast_to(np.int8(0), shape))[0].shape


def set_from_torch(variable: nnx.Variable, value: jax.Array | np.ndarray) -> nnx.Variable:
    """Writes a value that is in PyTorch's layout."""
    places = np.arange(value.size).reshape(value.shape)
    (moved,) = _transform(variable).to_model(places)
    return set_value(variable, jnp.asarray(value).reshape(-1)[moved])


def set_value(variable: nnx.Variable, value: Any) -> nnx.Variable:
    """Writes a value that is in the parameter's own layout, or a number, in its dtype."""
    old = checked(variable).get_value()
    variable.set_value(jnp.broadcast_to(jnp.asarray(value, old.dtype), old.shape))
    return variable


def fans(variable: nnx.Variable) -> tuple[int, int]:
    """How many entries of the input make an entry of the output, and how many of the output one of the input makes.

    As PyTorch counts them from the shape: transposed and grouped convolutions have other true ones.
    """
    shape = torch_shape(variable)
    if len(shape) < 2:
        raise ValueError(f"variable has shape {shape} in PyTorch's layout, and fans want 2 axes or more")
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def checked(variable: Any) -> nnx.Variable:
    if not isinstance(variable, nnx.Variable):
        raise TypeError(f"variable is {type(variable).__name__}; give an nnx.Param, such as layer.weight")
    return variable


def _transform(variable: nnx.Variable) -> Any:
    return variable.get_metadata(TRANSFORM) if variable.has_metadata(TRANSFORM) else IDENTITY
