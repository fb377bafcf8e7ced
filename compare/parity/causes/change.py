"""What is different in a replay of a module of the reference, and the function calls that it can be at."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

WRITES = re.compile(r"[a-z]\w*_|__setitem__|__i(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor)__")
"""The names of functions that write into their first argument."""
VIEWS = (
    *("__getitem__", "select", "narrow", "chunk", "split", "tensor_split", "unbind", "diagonal"),
    *("view", "view_as", "reshape", "flatten", "squeeze", "unsqueeze", "expand"),
    *("transpose", "permute", "t", "T", "mT", "swapaxes", "movedim"),
)
"""Those of functions that mostly give a view of their first argument."""

Apply = Callable[..., Any]  # of a function, its arguments, and those by keyword


class Site(NamedTuple):
    """A call of a function of PyTorch in the module's own code: which, with what, and from where.

    Attributes:
      place: the instructions that lead to it, and the modules that they belong to: the same in each turn of a loop.
      backward: the `autograd.Function` in whose backward it is; empty in the forward pass.
    """

    number: int
    name: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    place: tuple[Any, ...] = ()
    backward: str = ""


class Moved(NamedTuple):
    """A module inside, by its path, that is called on what a function call gives, by its number, or on the first tensor
    that another one is given, by its path; where the reference calls it, its input is handed on.

    Attributes:
      turned: the order of axes in which the module takes what it is called on, and gives it back in its own.
    """

    path: str
    to: int | str
    turned: tuple[int, ...] | None = None


class Replaced(NamedTuple):
    """A tensor that is taken for another, both by their numbers, by the calls of these numbers and those between."""

    tensor: int
    instead: int
    first: float
    last: float


@dataclass
class Change:
    """What is different in a replay.

    Attributes:
      apply: takes a function and its arguments, gives what the changed call gives; None changes no call.
      sites: the numbers of the calls that are changed.
      parameters: by name below the module, functions that make another tensor of a parameter, of a buffer, or of one
        that is a plain attribute.
      stays: whether buffers that are made others stay so, where the call does not write them.
      exchanged: two tensors, by their numbers, each of which is taken for the other.
      later: what the two are, for a call that comes before one of them is made; no gradient flows through that.
      input, output: functions of each floating input that has a gradient, and of each floating output.
      given: a module inside, by its path in the model, and a function of each floating tensor that it gives.
      rewired: the argument of a call, and the earlier tensor that takes its place, by its number.
      called: a module inside, and the one that is called in its place, by their paths in the model.
      called_in: the number of the call in which that is so; all where None.
      moved: modules inside that are called elsewhere.
      replaced: tensors that are taken for others, by some calls.
      cut: the path of a module inside, whose output of this name hands no gradient on; all where it is empty.
      cut_before: a module inside, by its path and the number of its call (all where None), whose inputs get no gradient
        from it.
      unwritten: the module's buffers, by their names below it, that are afterwards as they were before.
      unwritten_in: the numbers of the calls, of several, in which that is so; all where empty.
      held: by identity, what these calls take for buffers that they read, found for each replay; the calls are `sites`.
      other_mode: whether the module itself, and none inside, is in evaluation where it is in training, or reversed.
    """

    apply: Apply | None = None
    sites: frozenset[int] = frozenset()
    parameters: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = field(default_factory=dict)
    given: tuple[str, Callable[[torch.Tensor], torch.Tensor]] | None = None
    rewired: tuple[int, int, int] | None = None
    called: tuple[str, str] | None = None
    called_in: int | None = None
    moved: tuple[Moved, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    cut: tuple[str, str] | None = None
    cut_before: tuple[str, int | None] | None = None
    unwritten: frozenset[str] = frozenset()
    unwritten_in: frozenset[int] = frozenset()
    held: Callable[[Any], Mapping[int, torch.Tensor]] | None = None
    other_mode: bool = False
    stays: bool = False
    exchanged: tuple[int, int] | None = None
    later: tuple[torch.Tensor, torch.Tensor] | None = None
    input: Callable[[torch.Tensor], torch.Tensor] | None = None
    output: Callable[[torch.Tensor], torch.Tensor] | None = None

    @property
    def is_of_sites_alone(self) -> bool:
        """Whether nothing but `sites` names calls and tensors by the order in which they come."""
        by_number = (self.rewired, self.replaced, self.held, self.exchanged, self.moved, self.cut_before)
        return not any(by_number)

    def nudged(self, names: Iterable[str], factor: float) -> Change:
        """The same, with the parameters of these names multiplied by a number."""

        def nudge(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
            make = self.parameters.get(name, lambda parameter: parameter)
            return lambda parameter: make(parameter) * factor

        return replace(self, parameters={**self.parameters, **{name: nudge(name) for name in names}})
