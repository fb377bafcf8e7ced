"""`torch.nn.utils.parametrize`: a parameter that modules compute, from tensors under `parametrizations`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from graphmode.weights import carries
from graphmode.weights.conventions import TRANSFORM

from ..container import ModuleDict, ModuleList
from .computed import axes_of, compute, how_of, restore, variable_named

Module = TypeVar("Module", bound=nnx.Module)
Array = jax.Array


class ParametrizationList(ModuleList):
    """The modules that compute a tensor, one after the other, and what the first is given.

    Attributes:
      original: what that is; `original0`, `original1` and so on where its `right_inverse` gives several.
    """

    def __init__(self, modules: Sequence[nnx.Module], variable: nnx.Variable):
        super().__init__(modules)
        self._order = axes_of(variable)
        self._transform = variable.get_metadata(TRANSFORM) if variable.has_metadata(TRANSFORM) else None
        originals = _inverse(modules[0], self._turned(variable[...]))
        self._several = isinstance(originals, tuple)
        names = [f"original{i}" for i in range(len(originals))] if self._several else ["original"]
        for name, value in zip(names, originals if self._several else [originals], strict=True):
            setattr(self, name, type(variable)(self._turned_back(value), **self._layout(value.ndim)))
        self._originals = tuple(names)

    def __call__(self) -> Array:
        """The tensor, laid out as the layers here hold it."""
        value = self[0](*(self._turned(getattr(self, name)[...]) for name in self._originals))
        for module in list(self)[1:]:
            value = module(value)
        return self._turned_back(value)

    def _layout(self, ndim: int) -> dict[str, Any]:
        """The metadata of a tensor of so many axes."""
        return carries(self._transform) if self._transform is not None and ndim == len(self._order) else {}

    def _turned(self, value: Array) -> Array:
        """In PyTorch's layout."""
        return jnp.transpose(value, self._order) if value.ndim == len(self._order) else value

    def _turned_back(self, value: Array) -> Array:
        inverse = tuple(int(axis) for axis in np.argsort(self._order))
        return jnp.transpose(value, inverse) if value.ndim == len(self._order) else value


def _inverse(module: nnx.Module, value: Array) -> Array | tuple[Array, ...]:
    inverse = getattr(module, "right_inverse", None)
    if inverse is None:
        return value
    made = inverse(value)
    return tuple(made) if isinstance(made, tuple | list) else made


@dataclass(frozen=True)
class _FromParametrizations:
    name: str
    has_mode: ClassVar[bool] = False

    def value(self, module: Any) -> Array:
        return module.parametrizations[self.name]()

    read = value  # PyTorch computes it anew at each reading, too


def register_parametrization(
    module: Module, tensor_name: str, parametrization: nnx.Module, *, unsafe: bool = False
) -> Module:
    """Lets a module compute a parameter of another, from a tensor that takes the parameter's place.

    That is `module.parametrizations.{tensor_name}.original`, or `original0`, `original1` and so on where
    `parametrization.right_inverse` gives several. Arrays are handed to `parametrization` in PyTorch's layout, and what
    it gives is taken to be in that, so that its code is PyTorch's; it runs once in each call of `module`, within the
    graph. A second parametrization of the same tensor is given what the first gives.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.register_parametrization.html

    Args:
      module: a layer of `graphmode.nn`, or an `nnx.Module` with a parameter of PyTorch's layout.
      tensor_name: of the parameter.
      parametrization: computes it; it may have a `right_inverse`, which gives what it begins with.
      unsafe: whether the result may have another shape or dtype than the parameter.

    Returns:
      The module itself, of a class derived from its own.

    Raises:
      TypeError: where `module` is no `nnx.Module` or one of Flax's layers, or `parametrization` is none.
      ValueError: where `module` has no such parameter, or the result has another shape or dtype.
    """
    if not isinstance(parametrization, nnx.Module):
        raise TypeError(f"parametrization is {type(parametrization).__name__}; give an nnx.Module")
    target: Any = module
    if isinstance(how_of(module, tensor_name), _FromParametrizations):
        was = getattr(module, tensor_name)
        held = target.parametrizations[tensor_name]
        if hasattr(parametrization, "right_inverse") and not held._several:
            turned = _inverse(parametrization, held._turned(was))
            if not isinstance(turned, tuple) and not any(hasattr(each, "right_inverse") for each in held):
                held.original[...] = held._turned_back(turned)
        held.append(parametrization)
    else:
        variable = variable_named(module, tensor_name)
        was = variable[...]
        held = ParametrizationList([parametrization], variable)
        if not hasattr(module, "parametrizations"):
            target.parametrizations = ModuleDict()
        compute(module, tensor_name, _FromParametrizations(tensor_name))
        target.parametrizations[tensor_name] = held
    if not unsafe:
        _check_result(tensor_name, nnx.eval_shape(ParametrizationList.__call__, held), was)
    return module


def _check_result(name: str, made: Any, was: Array) -> None:
    if (made.shape, made.dtype) != (was.shape, was.dtype):
        raise ValueError(
            f"parametrization gives {made.dtype}{list(made.shape)} for {name}, which is {was.dtype}{list(was.shape)} "
            "as it is laid out here; give the same, or unsafe=True"
        )


def is_parametrized(module: nnx.Module, tensor_name: str | None = None) -> bool:
    """Whether a parametrization computes this tensor of a module; any tensor, where none is named.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.is_parametrized.html
    """
    held = getattr(module, "parametrizations", None)
    return isinstance(held, ModuleDict) and (len(held) > 0 if tensor_name is None else tensor_name in held)


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Puts a parameter in place of the parametrization that computes it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.remove_parametrizations.html

    Args:
      module: whose it is.
      tensor_name: of the parameter.
      leave_parametrized: whether it is what the parametrization gives, or what that is given.

    Raises:
      ValueError: where no parametrization computes it, or what that is given is several tensors.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"tensor_name is {tensor_name!r}, and {type(module).__name__} has no parametrization of it")
    target: Any = module
    held = target.parametrizations[tensor_name]
    original = getattr(held, held._originals[0])
    if leave_parametrized:
        value = getattr(module, tensor_name)
    elif held._several:
        raise ValueError(f"leave_parametrized is False, and {tensor_name} is computed from {len(held._originals)}")
    else:
        value = original[...]
    variable = type(original)(value, **held._layout(value.ndim))
    del target.parametrizations[tensor_name]
    if not len(target.parametrizations):
        del target.parametrizations
    restore(module, tensor_name, variable)
    return module
