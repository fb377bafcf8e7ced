"""What the tensors of a module's unchanged run are: made by which call, of which others, taken by which, and called
what."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, TypeGuard

import torch
from torch.utils import _pytree as pytree

from .autograd_functions import own_function
from .change import Change, Site
from .replay import Replay
from .sites import instruction

HANDS_ON = {"contiguous", "clone", "to", "dropout", "float", "double", "type"}  # the same values
CUTS_OUT = HANDS_ON | {"__getitem__", "select", "narrow", "squeeze", "unsqueeze", "expand", "expand_as", "detach"}
BLANK = {"zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty"}
CUTS_OUT |= {"view", "reshape", "flatten", "repeat", "broadcast_to"}


class Ancestry:
    """The calls of a run, in which each tensor is known by its identity.

    Args:
      replay: that is run, unchanged.

    Attributes:
      sites: the function calls, in order; those in the backward of a function of the reference's own among them.
      tensors: what was made, as `Replay.run` keeps it.
      inside: the calls of modules inside that hand on what was recorded.
    """

    def __init__(self, replay: Replay):
        self.sites: list[Site] = []
        replay.run(Change(), note=self.sites.append, forward_only=True, describe=True)
        if replay.backward and any(own_function(site.func) for site in self.sites):
            self.sites.clear()
            replay.run(Change(), note=self.sites.append, describe=True)
        self.tensors = list(replay.tensors)
        self.inside = list(replay.inside_calls)
        self._numbers = {id(x): number for number, (_, _, x) in reversed(list(enumerate(self.tensors)))}
        self._inputs = {id(x): words for words, made, x in self.tensors if made == 0 and words.startswith("its input")}
        self._names = {id(x): name for name, x in replay.held().items()}
        self._made: dict[int, list[Site]] = {}
        self._taken: dict[int, list[Site]] = {}
        for site in self.sites:
            for tensor in tensors_of(site.result):
                self._made.setdefault(id(tensor), []).append(site)
            for tensor in tensors_of((site.args, site.kwargs)):
                self._taken.setdefault(id(tensor), []).append(site)
        self._of_inside = {id(x): given for _, _, given, results in self.inside for x in results}

    def turns(self, site: Site) -> list[Site]:
        """All calls that the same instruction makes, as in the turns of a loop."""
        return self._turns.get(instruction(site), [site])

    @functools.cached_property
    def _turns(self) -> dict[Any, list[Site]]:
        found: dict[Any, list[Site]] = {}
        for site in self.sites:
            found.setdefault(instruction(site), []).append(site)
        return found

    def number(self, tensor: Any) -> int | None:
        """Its place among the tensors that were made."""
        return self._numbers.get(id(tensor))

    def maker(self, tensor: Any) -> Site | None:
        """The call that gives it first."""
        return self._made[id(tensor)][0] if id(tensor) in self._made else None

    def takers(self, tensor: Any) -> list[Site]:
        """The calls that take it, in order."""
        return self._taken.get(id(tensor), [])

    def name(self, tensor: Any) -> str:
        """Of the parameter, the buffer or the input that it is, or is cut out of; empty where it is computed."""
        tensor = self._origin(tensor, CUTS_OUT)
        return self._names.get(id(tensor), self._inputs.get(id(tensor), ""))

    def words(self, tensor: torch.Tensor) -> str:
        """`"what linear of head gives"`: of what it is itself, or has the values of."""
        if id(tensor) in self._names:
            return self._names[id(tensor)]
        same = [words for words, _, x in self.tensors if x is tensor]
        alike = (words for words, _, x in self.tensors if x.shape == tensor.shape and are_equal(x, tensor))
        return same[0] if same else next(alike, "its usual one")

    def as_filled(self, words: str, tensor: torch.Tensor) -> str:
        """The words for a tensor; for what is made blank and then filled by one call, as zeros are to be one-hot, by
        that one."""
        makers = [site.name for site in self._made.get(id(tensor), ())]
        if len(makers) != 2 or makers[0] not in BLANK:
            return words
        return words.replace(makers[0], makers[1], 1)

    def is_residual(self, tensor: Any, other: Any) -> bool:
        """Whether the one is an input or an earlier tensor, handed on, of which the other is computed; or an input, and
        the other computed of one, as where a module takes both what a block was given and what came of it."""
        origin = self._origin(tensor, HANDS_ON)
        if origin is other or id(origin) in self._names:
            return False
        both = id(origin) in self._inputs and origin.shape == other.shape and self.maker(other) is not None
        return both or self._is_made_of(other, origin)

    def _origin(self, tensor: Any, by: set[str]) -> Any:
        """What it was before calls that hand on what they take."""
        seen: set[int] = set()
        while id(tensor) not in seen and (site := self.maker(tensor)) is not None and site.name in by and site.args:
            seen.add(id(tensor))
            tensor = site.args[0]
        return tensor

    def _is_made_of(self, tensor: Any, other: Any) -> bool:
        waiting, seen = list(self._given(tensor)), {id(tensor)}
        while waiting:
            each = waiting.pop()
            if each is other:
                return True
            if id(each) not in seen:
                seen.add(id(each))
                waiting.extend(self._given(each))
        return False

    def _given(self, tensor: Any) -> Iterator[torch.Tensor]:
        for site in self._made.get(id(tensor), ()):
            yield from tensors_of((site.args, site.kwargs))
        yield from self._of_inside.get(id(tensor), ())


def is_dense(x: Any) -> TypeGuard[torch.Tensor]:
    """Whether it is a tensor that holds all its elements."""
    return isinstance(x, torch.Tensor) and x.layout == torch.strided


def are_equal(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether both are dense, and of the same elements."""
    return is_dense(x) and is_dense(y) and torch.equal(x, y)


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """Those among its leaves."""
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]
