"""`torch.nn.ModuleList` and `ModuleDict`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flax import nnx

from .named import Keyed, Numbered, as_module


class ModuleList(Numbered):
    """Modules in a list, named "0", "1" and so on; `nnx.List` with PyTorch's methods, and modules only.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ModuleList.html

    Args:
      modules: to begin with.

    Raises:
      TypeError: where a member is no `nnx.Module`.

    Example:
      >>> layers = ModuleList([Linear(3, 3, rngs=nnx.Rngs(i)) for i in range(4)])
      >>> len(layers[1:]), layers[-1] is layers[3]
      (3, True)
    """

    def __init__(self, modules: Iterable[nnx.Module] | None = None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __delitem__(self, index: int | slice) -> None:
        gone = self._names[index] if isinstance(index, slice) else (self._at(index),)
        self._fill(getattr(self, name) for name in self._names if name not in gone)

    def __add__(self, other: Iterable[nnx.Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def insert(self, index: int, module: nnx.Module) -> None:
        """Puts a module before that of this number; as a list does, beyond the end it comes last."""
        modules = self._members()
        modules.insert(index, as_module(str(index), module))
        self._fill(modules)

    def pop(self, key: int | slice) -> Any:
        """Removes a module, or those of a slice, and gives what was there."""
        found = self[key]
        del self[key]
        return found

    def _as_member(self, name: str, member: Any) -> nnx.Module:
        return as_module(name, member)


class ModuleDict(Keyed):
    """Modules by key, in the order they came in; `nnx.Dict` with PyTorch's methods, and modules only.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ModuleDict.html

    Args:
      modules: a mapping, or pairs of key and module.

    Raises:
      TypeError: where a member is no `nnx.Module`, or a key no string.
      ValueError: where a key is empty, has a dot or is an attribute's.

    Example:
      >>> heads = ModuleDict({"boxes": Linear(3, 4, rngs=nnx.Rngs(0)), "scores": Linear(3, 1, rngs=nnx.Rngs(1))})
      >>> list(heads), heads["boxes"](jnp.ones((2, 3))).shape
      (['boxes', 'scores'], (2, 4))
    """

    def __init__(self, modules: Mapping[str, nnx.Module] | Iterable[tuple[str, nnx.Module]] | None = None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def _as_member(self, name: str, member: Any) -> nnx.Module:
        return as_module(name, member)
