"""`torch.nn.Sequential`."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from flax import nnx

from .named import Numbered, as_module


class Sequential(Numbered):
    """Modules that are called one after the other, each with the result of the one before.

    Unlike `nnx.Sequential` it hands on one value, a tuple too, as it is, and takes modules only.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Sequential.html

    Args:
      *args: modules, which are named "0", "1" and so on, or one `OrderedDict` of modules by name.

    Raises:
      TypeError: where a member is no `nnx.Module`.
      ValueError: where a name is empty, has a dot or is an attribute's.

    Example:
      >>> model = Sequential(Linear(3, 4, rngs=nnx.Rngs(0)), ReLU(), Linear(4, 2, rngs=nnx.Rngs(1)))
      >>> model(jnp.ones((5, 3))).shape, len(model[:2])
      ((5, 2), 2)
    """

    def __init__(self, *args: Any):
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in named:
            self._put(str(name), module)

    def __call__(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict((name, getattr(self, name)) for name in self._names[index]))
        return super().__getitem__(index)

    def __delitem__(self, index: int | slice) -> None:
        gone = self._names[index] if isinstance(index, slice) else (self._at(index),)
        self._fill(getattr(self, name) for name in self._names if name not in gone)

    def __add__(self, other: Any) -> Sequential:
        return Sequential(*self, *_sequential(other))

    def __iadd__(self, other: Any) -> Sequential:
        return self.extend(_sequential(other))

    def __mul__(self, times: int) -> Sequential:
        return Sequential(*(module for _ in range(_times(times)) for module in self))

    def __rmul__(self, times: int) -> Sequential:
        return self * times

    def __imul__(self, times: int) -> Sequential:
        return self.extend([module for _ in range(_times(times) - 1) for module in self])

    def insert(self, index: int, module: nnx.Module) -> Sequential:
        """Puts a module before that of this number; for modules that are numbered."""
        if self._names != tuple(map(str, range(len(self)))):
            raise ValueError(f"the modules are named {', '.join(self._names)}; insert wants them numbered")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"index {index} is out of range: Sequential has {len(self)} members")
        place = index + len(self) if index < 0 else index
        modules = self._members()
        self._fill([*modules[:place], as_module(str(place), module), *modules[place:]])
        return self

    def pop(self, key: int | slice) -> Any:
        """Removes a module, or those of a slice, and gives what was there."""
        found = self[key]
        del self[key]
        return found

    def _as_member(self, name: str, member: Any) -> nnx.Module:
        return as_module(name, member)


def _sequential(other: Any) -> Sequential:
    if not isinstance(other, Sequential):
        raise ValueError(f"a Sequential and {type(other).__name__} do not add; extend takes a list of modules")
    return other


def _times(times: Any) -> int:
    if not isinstance(times, int):
        raise TypeError(f"a Sequential times {times!r}; give an integer")
    if times <= 0:
        raise ValueError(f"a Sequential times {times}; give 1 or more")
    return times
