"""What all containers are: members that are attributes under PyTorch's names, in the order they came in."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from ..layer import Layer


class Named(Layer):
    """Members as attributes, so that a `state_dict` names them as PyTorch does."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()  # NNX sorts attributes; the order counts here

    def _put(self, name: str, member: Any) -> None:
        """Adds a member at the end, or in place of the one of this name."""
        if not isinstance(name, str):
            raise TypeError(f"the name {name!r} is {type(name).__name__}; give a string")
        if not name or "." in name:
            raise ValueError(f"the name {name!r} is empty or has a dot; give one that a state_dict can hold")
        if name in self._names:
            delattr(self, name)  # NNX fixes at the first assignment whether an attribute holds data
        elif hasattr(self, name):
            raise ValueError(f"the name {name!r} is an attribute of {type(self).__name__}; choose another")
        else:
            self._names = (*self._names, name)
        setattr(self, name, self._as_member(name, member))

    def add_module(self, name: str, module: nnx.Module) -> None:
        """Adds a module at the end, under a name of its own, as `torch.nn.Module.add_module` does."""
        self._put(name, as_module(name, module))

    def _drop(self, *names: str) -> None:
        for name in names:
            delattr(self, name)
        self._names = tuple(name for name in self._names if name not in names)

    def _as_member(self, name: str, member: Any) -> Any:
        raise NotImplementedError

    def _members(self) -> list[Any]:
        return [getattr(self, name) for name in self._names]

    def __len__(self) -> int:
        return len(self._names)


class Numbered(Named):
    """Members by number, as in a list."""

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            like: Any = type(self)
            return like(self._members()[index])
        return getattr(self, self._at(index))

    def __setitem__(self, index: int, member: Any) -> None:
        self._put(self._at(index), member)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members())

    def append(self, member: Any) -> Any:
        """Adds a member at the end."""
        self._put(str(len(self)), member)
        return self

    def extend(self, members: Iterable[Any]) -> Any:
        """Adds members at the end."""
        if not isinstance(members, Iterable) or isinstance(members, jax.Array | np.ndarray | nnx.Variable):
            raise TypeError(f"members is {type(members).__name__}; give a list, or another iterable")
        for member in list(members):
            self.append(member)
        return self

    def __iadd__(self, members: Iterable[Any]) -> Any:
        return self.extend(members)

    def _at(self, index: int) -> str:
        """The name of this number, negative ones counted from the end."""
        number = operator.index(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"index {number} is out of range: {type(self).__name__} has {len(self)} members")
        return self._names[number]

    def _fill(self, members: Iterable[Any]) -> None:
        """These members in place of all, numbered anew."""
        members = list(members)
        self._drop(*self._names)
        for number, member in enumerate(members):
            self._put(str(number), member)


class Keyed(Named):
    """Members by key, as in a dictionary that keeps its order."""

    def __getitem__(self, key: str) -> Any:
        if key not in self._names:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, member: Any) -> None:
        self._put(key, member)

    def __delitem__(self, key: str) -> None:
        if key not in self._names:
            raise KeyError(key)
        self._drop(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def clear(self) -> None:
        self._drop(*self._names)

    def pop(self, key: str) -> Any:
        """Removes a member and gives it."""
        member = self[key]
        del self[key]
        return member

    def keys(self) -> Iterable[str]:
        return dict.fromkeys(self._names).keys()

    def values(self) -> Iterable[Any]:
        return dict(self.items()).values()

    def items(self) -> Iterable[tuple[str, Any]]:
        return {name: getattr(self, name) for name in self._names}.items()

    def update(self, members: Any) -> None:
        """Adds or replaces members: a mapping, another container, or pairs of key and member."""
        if isinstance(members, Mapping | Keyed):
            pairs: list[Any] = list(members.items())
        elif isinstance(members, Iterable) and not isinstance(members, str):
            pairs = list(members)
        else:
            raise TypeError(f"members is {type(members).__name__}; give a mapping, or pairs of key and member")
        for i, pair in enumerate(pairs):
            if not isinstance(pair, Iterable):
                raise TypeError(f"entry {i} is {type(pair).__name__}; give pairs of key and member")
            pair = tuple(pair)
            if len(pair) != 2:
                raise ValueError(f"entry {i} has length {len(pair)}; give pairs of key and member")
            self[pair[0]] = pair[1]


def as_module(name: str, member: Any) -> nnx.Module:
    if not isinstance(member, nnx.Module):
        told = member.__name__ if callable(member) and hasattr(member, "__name__") else type(member).__name__
        raise TypeError(f"member {name!r} is {told}; give an nnx.Module, such as gm.nn.ReLU() for a function")
    return member


def as_parameter(member: Any) -> Any:
    """An array as an `nnx.Param`; variables and whatever else as they are."""
    return nnx.Param(member) if isinstance(member, jax.Array | np.ndarray) else member
