"""`torch.nn.ParameterList` and `ParameterDict`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .named import Keyed, Numbered, as_parameter


class ParameterList(Numbered):
    """Parameters in a list, named "0", "1" and so on.

    Arrays become `nnx.Param`; variables and other values stay as they are.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ParameterList.html

    Args:
      values: to begin with.

    Example:
      >>> scales = ParameterList([jnp.ones(3), jnp.zeros((2, 3))])
      >>> scales[1].shape
      (2, 3)
    """

    def __init__(self, values: Iterable[Any] | None = None):
        super().__init__()
        if values is not None:
            self.extend(values)

    def _as_member(self, name: str, member: Any) -> Any:
        return as_parameter(member)


class ParameterDict(Keyed):
    """Parameters by key. A plain mapping is taken in the order of its keys, an `OrderedDict` or pairs in their own.

    Arrays become `nnx.Param`; variables and other values stay as they are.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ParameterDict.html

    Args:
      parameters: a mapping, or pairs of key and value.

    Raises:
      TypeError: where a key is no string.
      ValueError: where a key is empty, has a dot or is an attribute's.

    Example:
      >>> sides = ParameterDict({"left": jnp.ones((5, 3)), "right": jnp.ones((5, 3))})
      >>> sides["left"].shape
      (5, 3)
    """

    def __init__(self, parameters: Any = None):
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def update(self, members: Any) -> None:
        """Adds or replaces values: a mapping, another container, or pairs of key and value."""
        if isinstance(members, Mapping) and not isinstance(members, OrderedDict):
            members = sorted(members.items())
        super().update(members)

    def copy(self) -> ParameterDict:
        """Another dictionary with the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key) if key in self._names else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of this key, which is `default` from now on where there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self) -> tuple[str, Any]:
        """Removes the last key and gives it with its value."""
        if not self._names:
            raise KeyError("the dictionary is empty")
        key = self._names[-1]
        return key, self.pop(key)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dictionary with these keys, all of the same value."""
        return ParameterDict((key, default) for key in keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._names)

    def __or__(self, other: ParameterDict) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        joined = other.copy()
        joined.update(self)
        return joined

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    def _as_member(self, name: str, member: Any) -> Any:
        return as_parameter(member)
