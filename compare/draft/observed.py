"""What the original did as it ran: what it wrote in place, where it asked for values, and what its names stood for."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

from ..dispatch_mode import DispatchMode
from ..errors import describe, describe_with_line
from .recording import Place

BUDGET_S = 10.0  # of all that is run
_MANY = 200  # elements of a container, or steps into one, that are looked at
_LARGE = 1 << 26  # elements of a memory beyond which its parts are not told apart
_TORCH = os.path.dirname(torch.__file__) + os.sep
_MODULES = tuple(os.path.join(_TORCH, *each) for each in (("nn", "modules"), ("nn", "utils"), ("optim",)))
_ASKING = ("aten::_local_scalar_dense", "aten::is_nonzero")
_PLAIN = (int, float, bool, str, type(None))
_INNER = ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>", "<lambda>")


class Alias(NamedTuple):
    """What stands for memory that is written to, where code stands.

    Attributes:
      text: `y`, `rows[0]`, `self.store.kept`.
      state: the name that the model has for it; empty of what it does not keep.
    """

    text: str
    state: str = ""

    @property
    def root(self) -> str:
        return self.text.partition(".")[0].partition("[")[0]


class Standing(NamedTuple):
    """A function of the user's as it stood when memory was written to, and all in it that stands for that."""

    place: Place
    aliases: frozenset[Alias]


class Write(NamedTuple):
    """One write: the functions of the user's that ran, the innermost first, and what of the model's it changed."""

    standing: tuple[Standing, ...]
    states: frozenset[str]


@dataclass
class Observed:
    """What was seen of a run.

    Attributes:
      writes: in place, into what something else than a passing value stands for.
      asked: where code itself asked for a value of a tensor.
      modules: by file, line and name of a function, and by a name in it, the modules that it stood for.
      kinds: likewise, the name of the one type that all it stood for were of; empty of several.
      containers: by function, the names of lists and dicts that held tensors alone, and of those that did not.
      plain: by function, the names of those that held numbers and texts alone, and of those that did not.
      records: by file, line and name of a function, whether gradients may have been recorded there.
      trouble: why there is nothing, or not all; empty where there is.
    """

    writes: set[Write] = field(default_factory=set)
    asked: set[Place] = field(default_factory=set)
    modules: dict[tuple[str, int, str], dict[str, list[torch.nn.Module]]] = field(default_factory=dict)
    kinds: dict[tuple[str, int, str], dict[str, str]] = field(default_factory=dict)
    containers: dict[tuple[str, int, str], dict[str, bool]] = field(default_factory=dict)
    plain: dict[tuple[str, int, str], dict[str, bool]] = field(default_factory=dict)
    records: dict[tuple[str, int, str], bool] = field(default_factory=dict)
    trouble: str = ""


def observe(build: Callable[[], torch.nn.Module], files: Collection[str], inputs: Sequence[np.ndarray]) -> Observed:
    """Runs a model in training, twice, since the first call may set what the second takes, and in evaluation.

    Args:
      build: gives the original.
      files: that hold the user's code.
      inputs: what it is called with.
    """
    observed = Observed()
    try:
        with _quiet():
            model = build()
    except Exception as error:
        observed.trouble = describe(error)
        return observed
    until = time.monotonic() + BUDGET_S
    for training in (True, True, False):
        model.train(training)
        for records in (True, False):  # PyTorch refuses some writes where a gradient is asked for
            try:
                with _quiet(), torch.set_grad_enabled(records), _Watch(model, files, observed, until, records):
                    model(*(torch.from_numpy(each.copy()) for each in inputs))
                break
            except _TimeOver:
                break
            except Exception as error:
                if not records:
                    observed.trouble = describe_with_line(error)
        if time.monotonic() > until:
            observed.trouble = observed.trouble or f"it runs for more than {BUDGET_S:.0f} s"
            break
    return observed


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng(devices=[]):
        yield


class _TimeOver(Exception):
    pass


class _Watch(DispatchMode):
    """Sees each operation, and the code that asks for it."""

    def __init__(self, model: torch.nn.Module, files: Collection[str], observed: Observed, until: float, records: bool):
        super().__init__()
        self._records = records
        self._model, self._files, self._observed, self._until = model, files, observed, until
        self._positions: dict[CodeType, list[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if time.monotonic() > self._until:
            raise _TimeOver
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        schema = func._schema
        stack = [*_stack(sys._getframe(1))]
        own = [frame for frame in stack if frame.f_code.co_filename in self._files]
        if own:
            self._note_names(own)
        if schema.name in _ASKING and stack and stack[0] in own:
            self._observed.asked.add(self._place(stack[0]))
        for said, value in zip(schema.arguments, args, strict=False):
            if said.alias_info is not None and said.alias_info.is_write:
                self._note_write(value, stack, own)
        for said in schema.arguments:
            if said.name in kwargs and said.alias_info is not None and said.alias_info.is_write:
                self._note_write(kwargs[said.name], stack, own)
        return made

    def _note_names(self, own: list[FrameType]) -> None:
        """What the names of the innermost function stand for, and those of comprehensions in it."""
        count = next((i for i, each in enumerate(own) if each.f_code.co_name not in _INNER), len(own) - 1)
        code = own[count].f_code
        key = code.co_filename, code.co_firstlineno, code.co_name
        seen = self._observed
        modules, kinds = seen.modules.setdefault(key, {}), seen.kinds.setdefault(key, {})
        containers, plain = seen.containers.setdefault(key, {}), seen.plain.setdefault(key, {})
        seen.records[key] = seen.records.get(key, False) or torch.is_grad_enabled() or not self._records
        for name, value in (item for frame in own[: count + 1] for item in frame.f_locals.items()):
            if isinstance(value, torch.nn.Module):
                held = modules.setdefault(name, [])
                if len(held) < _MANY and all(each is not value for each in held):
                    held.append(value)
            kind = "Tensor" if isinstance(value, torch.Tensor) else type(value).__name__
            kinds[name] = kind if kinds.get(name, kind) == kind else ""
            if type(value) in (list, tuple, dict) and value:
                inside = [*(value.values() if isinstance(value, dict) else value)][:_MANY]
                are_tensors = [isinstance(each, torch.Tensor) for each in inside]
                containers[name] = containers.get(name, True) and all(are_tensors)
                plain[name] = plain.get(name, True) and all(type(each) in _PLAIN for each in inside)

    def _note_write(self, value: Any, stack: list[FrameType], own: list[FrameType]) -> None:
        for written in value if isinstance(value, list | tuple) else [value]:
            if isinstance(written, torch.Tensor) and written.layout is torch.strided and written.numel() and own:
                self._note_one(written, stack, own)

    def _note_one(self, written: torch.Tensor, stack: list[FrameType], own: list[FrameType]) -> None:
        memory = _Memory(written)
        states: dict[str, torch.Tensor] = {}
        if stack[0] is own[0]:  # what layers of PyTorch's do to what they keep, those of the port do, too
            states = {name: each for name, each in _held_by_modules(self._model) if memory.overlaps(each)}
        prefixes: dict[int, list[str]] = {}
        for name, inside in self._model.named_modules(remove_duplicate=False) if states else ():
            prefixes.setdefault(id(inside), []).append(name)
        standing = []
        for frame in own:
            if frame.f_code.co_name in _INNER:
                continue
            aliases = set()
            for name, held in frame.f_locals.items():
                for prefix in prefixes.get(id(held), ()) if isinstance(held, torch.nn.Module) else ():
                    begin = f"{prefix}." if prefix else ""
                    inside = (each for each in states if each.startswith(begin))
                    aliases |= {Alias(f"{name}.{each[len(begin) :]}", each) for each in inside}
                for text, each in _held(name, held):
                    if memory.overlaps(each):
                        aliases.add(Alias(text, next((key for key, one in states.items() if one is each), "")))
            standing.append(Standing(self._place(frame), frozenset(aliases)))
        if states or any(each.aliases for each in standing):
            self._observed.writes.add(Write(tuple(standing), frozenset(states)))

    def _place(self, frame: FrameType) -> Place:
        code = frame.f_code
        if code not in self._positions:
            self._positions[code] = list(code.co_positions())
        line, last, column, end = self._positions[code][frame.f_lasti // 2]
        return code.co_filename, line or 0, column or 0, last or 0, end or 0


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """The functions that run, without what PyTorch has between a call and what it does."""
    is_begin = True
    while frame is not None:
        file = frame.f_code.co_filename
        if not (is_begin and file.startswith(_TORCH) and not file.startswith(_MODULES)):
            is_begin = False
            yield frame
        frame = frame.f_back


class _Memory:
    """The elements that a tensor is of."""

    def __init__(self, tensor: torch.Tensor):
        self._tensor = tensor
        storage = tensor.untyped_storage()
        self._at, self._length = storage.data_ptr(), storage.nbytes() // tensor.element_size()
        self._mask: torch.Tensor | None = None

    def overlaps(self, other: torch.Tensor) -> bool:
        if other is self._tensor:
            return True
        if other.layout is not torch.strided or not other.numel() or not self._at:
            return False
        if other.untyped_storage().data_ptr() != self._at:
            return False
        if other.element_size() != self._tensor.element_size() or self._length > _LARGE:
            return True
        if self._mask is None:
            self._mask = torch.zeros(self._length, dtype=torch.bool)
            self._mask[self._places(self._tensor)] = True
        return bool(self._mask[self._places(other)].any())

    def _places(self, tensor: torch.Tensor) -> torch.Tensor:
        every = torch.arange(self._length)
        return every.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset()).reshape(-1)


def _held_by_modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a model keeps: parameters, buffers, and attributes besides."""
    for prefix, module in model.named_modules():
        begin = f"{prefix}." if prefix else ""
        held = {**module._parameters, **module._buffers}
        held |= {name: value for name, value in vars(module).items() if not name.startswith("_")}
        for name, value in held.items():
            yield from ((begin + text, each) for text, each in _held(name, value))


def _held(text: str, value: Any, depth: int = 3) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that something is, or holds, and how code names them."""
    if isinstance(value, torch.Tensor):
        yield text, value
    elif not depth or isinstance(value, torch.nn.Module | type):
        return
    elif isinstance(value, list | tuple):
        for i, each in enumerate(value[:_MANY]):
            yield from _held(f"{text}[{i}]", each, depth - 1)
    elif isinstance(value, dict):
        for key, each in [*value.items()][:_MANY]:
            yield from _held(f"{text}[{key!r}]", each, depth - 1)
    elif isinstance(inside := getattr(value, "__dict__", None), dict) and not callable(value):
        for name, each in [*inside.items()][:_MANY]:
            yield from _held(f"{text}.{name}", each, depth - 1)
