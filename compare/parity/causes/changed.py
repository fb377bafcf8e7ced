"""The function calls of a module as it runs: numbered, told, and some of them changed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ..call_limit import NeverEnds
from ..inside.calls import CallId
from .autograd_functions import intercepted
from .change import Change, Site
from .sites import spelled

Key = tuple[str, str]  # what it is, and the name of the tensor
Evidence = dict[Key, np.ndarray]
SILENT = {"__get__", "__set__", "dim", "size", "numel", "stride", "is_floating_point", "is_complex", "__len__"}
MANY_INTEGERS = 16


unseen = torch._C.DisableTorchFunction
"""Within it no mode is asked, as each is for every attribute of a tensor: a run notes hundreds."""


def kept(x: torch.Tensor) -> np.ndarray:
    """A copy of what a tensor holds now."""
    with unseen():
        return as_numpy(x.detach().clone())


class Inside(NamedTuple):
    """A call of a module inside that hands on what was recorded: of which, and after how many calls of functions."""

    path: str
    after: int
    given: list[torch.Tensor]
    results: list[torch.Tensor]


class Changed(TorchFunctionMode):
    """Numbers the module's function calls, and changes some.

    Args:
      change: which, and how.
      note: is told of each call; None for nobody.
      until: the code that the module is called from: frames below it are the module's own.
      most: calls that may be made; None for any number.

    Raises:
      NeverEnds: where there are more.

    Attributes:
      paused: whether calls are none of the module's.
      backward: the function in whose own backward they are; empty in the forward pass.
      moved: by the number of a call, the module that is called on what it gives.
      held: by identity, what the changed calls take for buffers that they read.
      owners: paths of modules by identity, where words are to name them.
      tensors: what was made: in words, made before which call, and itself.
      inside_calls: what modules inside that hand on what was recorded were given, and gave.
      of_other_length: those of these calls that were given other numbers of rows, and have run themselves.
    """

    def __init__(self, change: Change, note: Callable[[Site], None] | None, until: CodeType, most: int | None = None):
        self.change, self.note, self.until, self.most = change, note, until, most
        self.paused, self.backward = False, ""
        self.moved: dict[int, Callable[..., Any]] = {}
        self.held: Mapping[int, torch.Tensor] = {}
        self.owners: dict[int, str] = {}
        self.count = 0
        self.tensors: list[tuple[str, int, torch.Tensor]] = []
        self.inside_calls: list[Inside] = []
        self.of_other_length: set[CallId] = set()

    def keep(self, value: Any, words: str) -> None:
        """Notes a tensor that another may be taken for; of integers many, since a few are alike by chance."""
        if not isinstance(value, torch.Tensor):
            return
        with unseen():
            dtype = value.dtype
            if dtype.is_floating_point or (dtype != torch.bool and value.numel() >= MANY_INTEGERS):
                self.tensors.append((words, self.count, value))

    def begin_anew(self) -> None:
        """Calls are numbered from 0: the module runs on another line, and tells nothing that the first one told."""
        if self.count:
            self.note = None
            self.tensors, self.inside_calls = [], []
        self.count = 0

    def taken(self, given: Any, at: float) -> Any:
        """What a call of this number takes where it is given this: tensors may be replaced by others."""
        if not self.change.replaced:
            return given
        others = {
            id(self.tensors[each.tensor][2]): self.tensors[each.instead][2]
            for each in self.change.replaced
            if each.first <= at <= each.last and max(each.tensor, each.instead) < len(self.tensors)
        }
        return pytree.tree_map(lambda x: others.get(id(x), x), given)

    def _other(self, value: Any) -> Any:
        assert self.change.exchanged is not None
        later = self.change.later or (None, None)
        made = [self.tensors[i][2] if i < len(self.tensors) else None for i in self.change.exchanged]
        a, b = (each if each is not None else known for each, known in zip(made, later, strict=True))
        if a is None or b is None:
            return value
        return b if value is a else a if value is b else value

    def _owner(self) -> str:
        """Of a call in a module inside, which one."""
        frame: FrameType | None = sys._getframe(3) if self.owners else None
        while frame is not None and frame.f_code is not self.until:
            path = self.owners.get(id(frame.f_locals.get("self")))
            if path is not None:
                return f" of {path}" if path else ""
            frame = frame.f_back
        return ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in SILENT:
            with unseen():
                return func(*args, **(kwargs or {}))
        if self.paused:
            return func(*args, **(kwargs or {}))
        if name == "einsum" and isinstance(args[-1], list | tuple):  # its operands in one
            args = (args[0], *args[-1])
        return self._call(name, func, args, kwargs or {})

    def own_functions(self) -> contextlib.AbstractContextManager[None]:
        """Within it, calls of an `autograd.Function` are told, too, and what is called in their backward."""
        return intercepted(self._own_forward, self._own_backward)

    def _own_forward(self, apply: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if self.paused:
            return apply(*args)
        name = f"{apply.__self__.__name__}.apply"  # type: ignore[attr-defined]
        if self.change.apply is None or self.count not in self.change.sites:
            return self._call(name, apply, args, {})
        with self._paused(True):
            result = self._call(name, apply, args, {})
            detached = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
        apply(*detached)  # so that what comes after it keeps its numbers
        return result

    def _own_backward(self, backward: Callable[..., Any], ctx: Any, gradients: tuple[Any, ...]) -> Any:
        self.backward = backward.__qualname__.removesuffix(".backward").rpartition(".")[2]
        try:
            with self._paused(False), self:  # `torch.autograd.grad` is a function itself, in which the mode is off
                return backward(ctx, *gradients)
        finally:
            self.backward = ""

    @contextlib.contextmanager
    def _paused(self, paused: bool) -> Iterator[None]:
        before, self.paused = self.paused, paused
        try:
            yield
        finally:
            self.paused = before

    def _call(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        number, self.count = self.count, self.count + 1
        if self.most is not None and self.count > self.most:
            raise NeverEnds(f"with a change it made {self.most} calls and did not end")
        if self.change.apply is not None and number in self.change.sites:
            return _named(name, self.change.apply(func, args, kwargs))
        if self.change.rewired is not None and self.change.rewired[0] == number:
            _, place, source = self.change.rewired
            other, usual = self.tensors[source][2], args[place]
            args = (*args[:place], other if other.shape == usual.shape else other.expand_as(usual), *args[place + 1 :])
        if self.held and number in self.change.sites:
            args, kwargs = pytree.tree_map(lambda x: self.held.get(id(x), x), (args, kwargs))
        if self.change.exchanged is not None:
            args, kwargs = pytree.tree_map(self._other, (args, kwargs))
        args, kwargs = self.taken((args, kwargs), number)
        result = _called(func, args, kwargs)
        if number in self.moved:
            result = self.moved[number](result)
        self.keep(result, f"what {spelled(name)}{self._owner()} gives")
        if self.note is not None:
            self.note(Site(number, name, func, args, kwargs, result, _place(self.until), self.backward))
        return result


def _called(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call gives; where it writes by `out=` and gradients flow that do not in the reference, it copies."""
    out = kwargs.get("out")
    if not isinstance(out, torch.Tensor):
        return func(*args, **kwargs)
    given = (x for x in pytree.tree_leaves(args) if isinstance(x, torch.Tensor))
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in given)):
        return func(*args, **kwargs)
    return out.copy_(func(*args, **{name: value for name, value in kwargs.items() if name != "out"}))


def _named(name: str, result: Any) -> Any:
    """A plain tuple as what the function gives, whose fields have names."""
    kind = getattr(torch.return_types, name, None)
    return kind(result) if kind is not None and type(result) is tuple else result


def _place(until: CodeType) -> tuple[Any, ...]:
    """The instructions from the replay's own down to the call of a function, with the modules that they belong to."""
    instructions = []
    frame: FrameType | None = sys._getframe(3)
    while frame is not None and frame.f_code is not until:
        owner = frame.f_locals.get("self")
        instructions.append((frame.f_code, frame.f_lasti, id(owner) if isinstance(owner, torch.nn.Module) else None))
        frame = frame.f_back
    return tuple(instructions)
