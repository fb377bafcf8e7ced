"""`torch.nn.utils.spectral_norm`: a weight divided by its largest singular value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from ..arguments import as_integer
from ..conv.transposed import ConvTransposeNd
from .computed import axes_of, axis_of, compute, how_made, layout_of, restore, variable_named

Module = TypeVar("Module", bound=nnx.Module)
Array = jax.Array


def unit(x: Array, eps: float) -> Array:
    """`x / max(|x|, eps)`."""
    return x / jnp.maximum(jnp.linalg.norm(x), eps)


def as_matrix(weight: Array, order: tuple[int, ...]) -> Array:
    """`[height, width]` of a weight, its axes taken in this order, the first of which is the height."""
    turned = jnp.transpose(weight, order)
    return turned.reshape(turned.shape[0], -1)


def order_here(variable: nnx.Variable, dim: int) -> tuple[int, ...]:
    """The axes as they lie here, PyTorch's `dim` first and the others in PyTorch's order."""
    axes = axes_of(variable)
    first = axis_of("dim", dim, len(axes))
    return (axes[first], *(axis for i, axis in enumerate(axes) if i != first))


def default_dim(module: nnx.Module) -> int:
    """The axis of a weight that its outputs lie on, in PyTorch's layout."""
    return 1 if isinstance(module, ConvTransposeNd) else 0


@dataclass(frozen=True)
class _SpectralNorm:
    name: str
    order: tuple[int, ...]
    n_power_iterations: int
    eps: float
    has_mode: ClassVar[bool] = True

    def value(self, module: Any) -> Array:
        return self.divided(module, iterates=not module.use_running_average)

    def read(self, module: Any) -> Array:
        return self.divided(module, iterates=False)

    def divided(self, module: Any, *, iterates: bool) -> Array:
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = as_matrix(weight[...], self.order)
        if iterates:
            u[...], v[...] = iterated(matrix, u[...], self.n_power_iterations, self.eps)
        along, across = jax.lax.stop_gradient((u[...], v[...]))
        return weight[...] / jnp.dot(along, matrix @ across)


def iterated(matrix: Array, u: Array, times: int, eps: float) -> tuple[Array, Array]:
    """The singular vectors that so many turns of the power iteration give, as the older form goes: `v` before `u`."""
    fixed = jax.lax.stop_gradient(matrix)
    v = u
    for _ in range(times):
        v = unit(fixed.T @ u, eps)
        u = unit(fixed @ v, eps)
    return u, v


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
    *,
    rngs: nnx.Rngs,
) -> Module:
    """Divides a parameter by its largest singular value, as a power iteration finds it.

    `{name}_orig` takes the parameter's place; the buffers `{name}_u` and `{name}_v` are the vectors of the iteration,
    which goes on in each call of the module in training, and stands still where `use_running_average` is True, as after
    `model.eval()`. PyTorch's form with `parametrizations` in its `state_dict` is
    `nn.utils.parametrizations.spectral_norm`, whose iteration begins with the other vector.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.spectral_norm.html

    Args:
      module: a layer of `graphmode.nn`, or an `nnx.Module` with a parameter of PyTorch's layout.
      name: of the parameter.
      n_power_iterations: turns in each call.
      eps: the least norm that is divided by.
      dim: the axis of the outputs, counted as PyTorch counts the parameter's; None for 1 of transposed convolutions and
        0 of all others.
      rngs: `params` is drawn from for the vectors to begin with.

    Returns:
      The module itself, of a class derived from its own.

    Raises:
      TypeError: where `module` is no `nnx.Module`, or one of Flax's layers.
      ValueError: where it has no such parameter, computes it already, or the parameter no such axis.

    Example:
      >>> conv = spectral_norm(nn.Conv2d(3, 8, 3, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1))
      >>> conv.weight_u.shape, conv.weight_v.shape
      ((8,), (27,))
    """
    as_integer("n_power_iterations", n_power_iterations, least=1)
    variable = variable_named(module, name)
    order = order_here(variable, default_dim(module) if dim is None else dim)
    matrix = as_matrix(variable[...], order)
    u, v = drawn(matrix, eps, rngs)
    compute(module, name, _SpectralNorm(name, order, n_power_iterations, eps))
    setattr(module, f"{name}_orig", variable)
    setattr(module, f"{name}_u", nnx.BatchStat(u))
    setattr(module, f"{name}_v", nnx.BatchStat(v))
    return module


def drawn(matrix: Array, eps: float, rngs: nnx.Rngs) -> tuple[Array, Array]:
    """The vectors of an iteration before its first turn."""
    height, width = matrix.shape
    u, v = (jax.random.normal(rngs.params(), (length,), matrix.dtype) for length in (height, width))
    return unit(u, eps), unit(v, eps)


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Puts the parameter that `spectral_norm` computes in place of its parts, without another turn of the iteration.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.remove_spectral_norm.html

    Raises:
      ValueError: where the module computes no such parameter.
    """
    how = how_made(module, name, _SpectralNorm, "spectral_norm")
    original = getattr(module, f"{name}_orig")
    whole = type(original)(how.divided(module, iterates=False), **layout_of(original))
    for part in ("orig", "u", "v"):
        delattr(module, f"{name}_{part}")
    restore(module, name, whole)
    return module
