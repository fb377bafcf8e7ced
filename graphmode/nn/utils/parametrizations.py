"""`torch.nn.utils.parametrizations`: weight and spectral norm with their tensors under `parametrizations`."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from ..arguments import as_integer
from .computed import axes_of, axis_of, variable_named
from .parametrize import register_parametrization
from .spectral_norm import as_matrix, default_dim, drawn, unit
from .weight_norm import norm_except, normalised

Module = TypeVar("Module", bound=nnx.Module)
Array = jax.Array


class WeightNorm(nnx.Module):
    """`g * v / |v|`; `dim` is the axis along which each slice has a length of its own, None for one of the whole."""

    def __init__(self, dim: int | None):
        self.dim = None if dim == -1 else dim

    def __call__(self, g: Array, v: Array) -> Array:
        return normalised(g, v, self.dim)

    def right_inverse(self, weight: Array) -> tuple[Array, Array]:
        return norm_except(weight, self.dim).astype(weight.dtype), weight


class SpectralNorm(nnx.Module):
    """A tensor divided by its largest singular value; in training the iteration that finds it goes on.

    Attributes:
      _u: `[height]`, and `_v` `[width]`: its vectors; a tensor of one axis has none, and is divided by its norm.
    """

    def __init__(self, weight: Array, n_power_iterations: int, dim: int, eps: float, *, rngs: nnx.Rngs):
        self.n_power_iterations, self.eps = n_power_iterations, eps
        self.use_running_average = False
        dim = axis_of("dim", dim, weight.ndim)
        self.order = (dim, *(axis for axis in range(weight.ndim) if axis != dim))
        if weight.ndim > 1:
            matrix = as_matrix(weight, self.order)
            u, v = self._iterated(matrix, *drawn(matrix, eps, rngs), 15)
            self._u, self._v = nnx.BatchStat(u), nnx.BatchStat(v)

    def __call__(self, weight: Array) -> Array:
        if weight.ndim == 1:
            return unit(weight, self.eps)
        matrix = as_matrix(weight, self.order)
        if not self.use_running_average:
            self._u[...], self._v[...] = self._iterated(matrix, self._u[...], self._v[...], self.n_power_iterations)
        u, v = jax.lax.stop_gradient((self._u[...], self._v[...]))
        return weight / jnp.dot(u, matrix @ v)

    def right_inverse(self, weight: Array) -> Array:
        return weight

    def set_view(self, use_running_average: bool | None = None) -> None:
        """Called by `nnx.view`.

        Args:
          use_running_average: True for no further turn of the iteration.
        """
        if use_running_average is not None:
            self.use_running_average = use_running_average

    def _iterated(self, matrix: Array, u: Array, v: Array, times: int) -> tuple[Array, Array]:
        fixed = jax.lax.stop_gradient(matrix)
        for _ in range(times):
            u = unit(fixed @ v, self.eps)
            v = unit(fixed.T @ u, self.eps)
        return u, v


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Makes a parameter `g * v / |v|`, of `parametrizations.{name}.original0`, which is `g`, and `original1`, `v`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.weight_norm.html

    Arguments, result and raised errors are those of `nn.utils.weight_norm`.

    Example:
      >>> conv = weight_norm(nn.Conv1d(3, 8, 5, rngs=nnx.Rngs(0)))
      >>> conv.parametrizations.weight.original0.shape, conv.weight.shape
      ((1, 1, 8), (5, 3, 8))
    """
    ndim = variable_named(module, name)[...].ndim
    dim = None if dim is None or dim == -1 else axis_of("dim", dim, ndim)
    return register_parametrization(module, name, WeightNorm(dim), unsafe=True)


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
    *,
    rngs: nnx.Rngs,
) -> Module:
    """Divides a parameter, `parametrizations.{name}.original`, by its largest singular value.

    The vectors of the power iteration are `parametrizations.{name}.0._u` and `._v`; it begins with 15 turns.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.spectral_norm.html

    Arguments, result and raised errors are those of `nn.utils.spectral_norm`.
    """
    as_integer("n_power_iterations", n_power_iterations, least=1)
    variable = variable_named(module, name)
    dim = default_dim(module) if dim is None else dim
    made = SpectralNorm(jnp.transpose(variable[...], axes_of(variable)), n_power_iterations, dim, eps, rngs=rngs)
    return register_parametrization(module, name, made)
