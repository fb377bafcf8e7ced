"""`torch.nn.utils.weight_norm`: a weight as a length and a direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from .computed import axes_of, axis_of, compute, how_made, layout_of, restore, variable_named

Module = TypeVar("Module", bound=nnx.Module)


def norm_except(v: jax.Array, axis: int | None) -> jax.Array:
    """The norms of an array's slices along one axis, which keep all axes; of the whole, `[]`, where it is None.

    Of float16 and bfloat16 they are float32, as PyTorch's.
    """
    squares = jnp.square(v.astype(jnp.promote_types(v.dtype, jnp.float32)))
    if axis is None:
        return jnp.sqrt(jnp.sum(squares))
    return jnp.sqrt(jnp.sum(squares, axis=tuple(i for i in range(v.ndim) if i != axis), keepdims=True))


def normalised(g: jax.Array, v: jax.Array, axis: int | None) -> jax.Array:
    """`g * v / |v|`, in the dtype of `v`."""
    return (v * (g / norm_except(v, axis))).astype(v.dtype)


@dataclass(frozen=True)
class _WeightNorm:
    name: str
    axis: int | None
    has_mode: ClassVar[bool] = False

    def value(self, module: Any) -> jax.Array:
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return normalised(g[...], v[...], self.axis)

    read = value


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Makes a parameter `g * v / |v|`, of the parameters `{name}_g` and `{name}_v` that take its place.

    It is computed in each call of the module, within the graph; `remove_weight_norm` puts the result in its place,
    which is what a model that is not trained any more should do. PyTorch's form with `parametrizations` in its
    `state_dict` is `nn.utils.parametrizations.weight_norm`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.weight_norm.html

    Args:
      module: a layer of `graphmode.nn`, or an `nnx.Module` with a parameter of PyTorch's layout.
      name: of the parameter.
      dim: the axis, counted as PyTorch counts the parameter's, along which each slice has a length of its own; None
        for one length of the whole.

    Returns:
      The module itself, of a class derived from its own.

    Raises:
      TypeError: where `module` is no `nnx.Module`, or one of Flax's layers.
      ValueError: where it has no such parameter, computes it already, or the parameter no such axis.

    Example:
      >>> linear = weight_norm(nn.Linear(3, 2, rngs=nnx.Rngs(0)))
      >>> linear.weight_g.shape, linear.weight_v.shape, linear.weight.shape
      ((1, 2), (3, 2), (3, 2))
    """
    variable = variable_named(module, name)
    axis = axis_here(variable, dim)
    g, v = parts(variable, axis)
    compute(module, name, _WeightNorm(name, axis))
    setattr(module, f"{name}_g", g)
    setattr(module, f"{name}_v", v)
    return module


def axis_here(variable: nnx.Variable, dim: int | None) -> int | None:
    """PyTorch's axis `dim` of a parameter as it is laid out here; -1 is all of it, as in PyTorch."""
    if dim is None or dim == -1:
        return None
    axes = axes_of(variable)
    return axes[axis_of("dim", dim, len(axes))]


def parts(variable: nnx.Variable, axis: int | None) -> tuple[nnx.Variable, nnx.Variable]:
    """The length and the direction of a parameter."""
    value, kind = variable[...], type(variable)
    lengths = norm_except(value, axis).astype(value.dtype)
    return kind(lengths, **(layout_of(variable) if axis is not None else {})), kind(value, **layout_of(variable))


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Puts the parameter that `weight_norm` computes in place of its parts.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.remove_weight_norm.html

    Raises:
      ValueError: where the module computes no such parameter.
    """
    how = how_made(module, name, _WeightNorm, "weight_norm")
    v = getattr(module, f"{name}_v")
    whole = type(v)(how.value(module), **layout_of(v))
    delattr(module, f"{name}_g")
    delattr(module, f"{name}_v")
    restore(module, name, whole)
    return module
