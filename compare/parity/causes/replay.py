"""A module of the reference by itself, once more, under a changed function call or parameter.

The module runs on the inputs that were recorded; the modules inside that have a counterpart in the port hand on what
was recorded of them, forward and backward, just as the port's do when it is forced. So what a replay shows can be laid
beside what the port's module showed.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ...torch_side import Snapshot
from ...widened import in_float64
from ..inside.calls import Call, CallId, Calls

Key = tuple[str, str]  # what it is, and the name of the tensor
Evidence = dict[Key, np.ndarray]
Apply = Callable[..., Any]  # of a function, its arguments, and those by keyword
SILENT = {"__get__", "__set__", "dim", "size", "numel", "stride", "is_floating_point", "is_complex", "item", "__len__"}


class Site(NamedTuple):
    """A call of a function of PyTorch in the module's own code: which, with what, and from where.

    Attributes:
      place: the instructions that lead to it, and the modules that they belong to: the same in each turn of a loop.
    """

    number: int
    name: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    place: tuple[Any, ...] = ()


@dataclass
class Change:
    """What is different in a replay.

    Attributes:
      apply: takes a function and its arguments, gives what the changed call gives; None changes no call.
      sites: the numbers of the calls that are changed.
      parameters: by name below the module, functions that make another tensor of a parameter.
      exchanged: two tensors, by their numbers, each of which is taken for the other.
      later: what the two are, for a call that comes before one of them is made; no gradient flows through that.
      input, output: functions of each floating input that has a gradient, and of each floating output.
      given: a module inside, by its path in the model, and a function of each floating tensor that it gives.
      rewired: the argument of a call, and the earlier tensor that takes its place, by its number.
      called: a module inside, and the one that is called in its place, by their paths in the model.
      cut: the path of a module inside, whose outputs hand no gradient on.
      other_mode: whether the module itself, and none inside, is in evaluation where it is in training, or reversed.
    """

    apply: Apply | None = None
    sites: frozenset[int] = frozenset()
    parameters: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = field(default_factory=dict)
    given: tuple[str, Callable[[torch.Tensor], torch.Tensor]] | None = None
    rewired: tuple[int, int, int] | None = None
    called: tuple[str, str] | None = None
    cut: str | None = None
    other_mode: bool = False
    exchanged: tuple[int, int] | None = None
    later: tuple[torch.Tensor, torch.Tensor] | None = None
    input: Callable[[torch.Tensor], torch.Tensor] | None = None
    output: Callable[[torch.Tensor], torch.Tensor] | None = None

    def nudged(self, names: Iterable[str], factor: float) -> Change:
        """The same, with the parameters of these names multiplied by a number."""

        def nudge(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
            make = self.parameters.get(name, lambda parameter: parameter)
            return lambda parameter: make(parameter) * factor

        return replace(self, parameters={**self.parameters, **{name: nudge(name) for name in names}})


class Replay:
    """One recorded call of one module of the reference.

    Args:
      model: the reference in the mode of the record.
      calls: its record.
      at: the call.
      forced: the calls that hand on what was recorded.
      backward: whether gradients are found, too.
    """

    def __init__(self, model: torch.nn.Module, calls: Calls, at: CallId, forced: set[CallId], backward: bool):
        self.model, self.calls, self.call, self.backward = model, calls, calls[at], backward
        self.path = at.path
        self.module = model.get_submodule(at.path)
        self.parameters = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        floating = [x for x in pytree.tree_leaves(self.call.arguments) if isinstance(x, torch.Tensor)]
        floating += model.parameters()
        self.in_float64 = any(x.dtype == torch.float64 for x in floating)
        inside = [call for call in calls if call != at and self._around(call, forced) == at]
        self.children: dict[str, list[CallId]] = {}
        for call in filter(forced.__contains__, inside):
            self.children.setdefault(call.path, []).append(call)

    def _around(self, call: CallId, forced: set[CallId]) -> CallId | None:
        """The nearest call around that is forced, or this one."""
        parent = self.calls[call].parent
        while parent is not None and parent not in forced and parent != self.call.id:
            parent = self.calls[parent].parent
        return parent

    @property
    def inside(self) -> list[str]:
        """The modules that run where it does: not those inside of one that hands on what was recorded."""
        paths = [self.full(path) for path, _ in self.module.named_modules() if path]
        return [path for path in paths if not any(path.startswith(f"{child}.") for child in self.children)]

    def are_alike(self, one: str, other: str) -> bool:
        """Whether two modules are of one kind, with parameters of the same names and shapes, and have some."""
        forms = []
        for module in map(self.model.get_submodule, (one, other)):
            forms.append((type(module), [(name, p.shape) for name, p in module.named_parameters()]))
        return forms[0] == forms[1] and bool(forms[0][1])

    def sites(self) -> list[Site]:
        """The function calls of an unchanged run, in order."""
        seen: list[Site] = []
        self.run(Change(), note=seen.append, forward_only=True)
        return seen

    def described(self) -> list[tuple[str, int, torch.Tensor]]:
        """The tensors of an unchanged run: in words, made before which call, and itself."""
        self.run(Change(), forward_only=True, describe=True)
        return list(self.tensors)

    def run(
        self,
        change: Change,
        *,
        note: Callable[[Site], None] | None = None,
        forward_only: bool = False,
        describe: bool = False,
    ) -> Evidence:
        """What the module gives, takes and hands to those inside, with this change."""
        evidence: Evidence = {}
        given: list[torch.Tensor] = []
        mode = _Changed(change, note)
        if describe:
            mode.owners = {id(module): path for path, module in self.module.named_modules()}
        args, kwargs, leaves = self._inputs(change.input)
        taken = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        for name, tensor in zip(self.call.inputs, taken, strict=False):
            mode.keep(tensor, f"its input {name}" if len(taken) > 1 else "its input")
        self.tensors = mode.tensors
        with contextlib.ExitStack() as stack:
            stack.enter_context(Snapshot(list(self.module.buffers())).restored())
            stack.enter_context(self._stubs(evidence, given, mode))
            if change.other_mode:
                stack.enter_context(_in_other_mode(self.module))
            for name, make in change.parameters.items():
                stack.enter_context(_another(self.module, name, make))
            stack.enter_context(torch.enable_grad() if self.backward else torch.no_grad())
            if self.in_float64:
                stack.enter_context(in_float64())
            stack.enter_context(mode)
            outputs = self.module(*args, **kwargs)
            mode.paused = True
            if (at_output := change.output) is not None:
                outputs = pytree.tree_map(
                    lambda x: at_output(x) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, outputs
                )
            tensors = [x for x in pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor)]
            named = dict(zip(self.call.outputs, tensors, strict=False))
            evidence.update({("output", name): as_numpy(x.detach()) for name, x in named.items()})
            for name, buffer in self.module.named_buffers():
                evidence["buffer", self.full(name)] = as_numpy(buffer.detach().clone())
            if self.backward and not forward_only:
                self._gradients(named, given, leaves, evidence)
        return evidence

    def _gradients(
        self,
        named: Mapping[str, torch.Tensor],
        given: list[torch.Tensor],
        leaves: dict[str, torch.Tensor],
        into: Evidence,
    ) -> None:
        heads = [(x, self.call.cotangents.get(name)) for name, x in named.items() if x.requires_grad]
        heads = [(x, g) for x, g in heads if g is not None and g.shape == tuple(x.shape)]
        wanted = [*leaves.values(), *self.parameters.values()]
        # a module inside hands on its recorded gradient also where none reaches it, as the port's does
        heads += [(x, np.zeros(x.shape)) for x in given if x.requires_grad]
        if not wanted:
            return
        found: Sequence[torch.Tensor | None] = [None] * len(wanted)
        if heads:
            starts = [torch.tensor(g).to(x) for x, g in heads]
            found = torch.autograd.grad([x for x, _ in heads], wanted, starts, allow_unused=True)
        names = [("input_gradient", n) for n in leaves] + [
            ("parameter_gradient", self.full(n)) for n in self.parameters
        ]
        for key, tensor, gradient in zip(names, wanted, found, strict=True):
            into[key] = as_numpy((torch.zeros_like(tensor) if gradient is None else gradient).detach())

    def full(self, name: str) -> str:
        """The name in the model of what has this name in the module."""
        return f"{self.path}.{name}" if self.path else name

    def _inputs(
        self, change: Callable[[torch.Tensor], torch.Tensor] | None
    ) -> tuple[Any, Any, dict[str, torch.Tensor]]:
        """The recorded arguments, and of these the tensors that gradients are taken by."""
        flat, structure = pytree.tree_flatten(self.call.arguments)
        names = iter(self.call.inputs)
        leaves: dict[str, torch.Tensor] = {}
        for i, value in enumerate(flat):
            if not isinstance(value, torch.Tensor):
                continue
            flat[i] = value.clone()
            name = next(names)
            if self.backward and name in self.call.input_gradients:
                leaves[name] = flat[i].requires_grad_()
                flat[i] = flat[i].clone() if change is None else change(flat[i])  # in-place functions take no leaf
        args, kwargs = pytree.tree_unflatten(flat, structure)
        return args, kwargs, leaves

    @contextlib.contextmanager
    def _stubs(self, evidence: Evidence, outputs: list[torch.Tensor], mode: _Changed) -> Iterator[None]:
        patched = {}
        for path, ids in self.children.items():
            queue = iter([self.calls[call] for call in ids])
            patched[self.model.get_submodule(path)] = _stub(queue, evidence, outputs, mode)
        if mode.change.called is not None:
            left_out, instead = map(self.model.get_submodule, mode.change.called)
            patched[left_out] = functools.partial(type(instead).forward, instead)  # itself, and no record of it
        for module, forward in patched.items():
            module.forward = forward
        try:
            yield
        finally:
            for module in patched:
                del module.forward


def _stub(queue: Iterator[Call], evidence: Evidence, outputs: list[torch.Tensor], mode: _Changed) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        before, mode.paused = mode.paused, True
        try:
            call = next(queue)
            tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            for name, tensor in zip(call.inputs, tensors, strict=False):
                evidence["received", f"{name} of {call.id}"] = as_numpy(tensor.detach().clone())
            flat, structure = pytree.tree_flatten(call.result)
            places = [i for i, x in enumerate(flat) if isinstance(x, torch.Tensor)]
            given = _Recorded.apply(call, evidence, len(tensors), *tensors, *(flat[i] for i in places))
            outputs.extend(given)
            if mode.change.cut == call.id.path:
                given = tuple(x.detach() for x in given)
            for tensor in given:
                mode.keep(tensor, f"what {call.id} gives")
            for i, tensor in zip(places, given, strict=True):
                flat[i] = _changed(tensor, call, mode.change)
            return pytree.tree_unflatten(flat, structure)
        finally:
            mode.paused = before

    return forward


def _changed(tensor: torch.Tensor, call: Call, change: Change) -> torch.Tensor:
    path, make = change.given or (None, None)
    return make(tensor) if make is not None and path == call.id.path and tensor.is_floating_point() else tensor


class _Recorded(torch.autograd.Function):
    """Gives recorded outputs; backward, notes the cotangents and gives recorded input gradients."""

    @staticmethod
    def forward(ctx: Any, call: Call, evidence: Evidence, count: int, *tensors: torch.Tensor) -> Any:
        ctx.call, ctx.evidence = call, evidence
        ctx.inputs = [(x.shape, x.dtype, x.device) for x in tensors[:count]]
        outputs = tuple(x.clone() for x in tensors[count:])
        ctx.mark_non_differentiable(*(x for x in outputs if not x.is_floating_point()))
        ctx.count = count
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        call = ctx.call
        for name, gradient in zip(call.outputs, cotangents, strict=True):
            if name in call.cotangents and gradient is not None:
                ctx.evidence["received_cotangent", f"{name} of {call.id}"] = as_numpy(gradient.detach().clone())
        names = [*call.inputs, *[None] * ctx.count][: ctx.count]
        back = []
        for name, (shape, dtype, device) in zip(names, ctx.inputs, strict=True):
            known = call.input_gradients.get(name)
            if known is None or known.shape != tuple(shape):
                back.append(torch.zeros(shape, dtype=dtype, device=device) if dtype.is_floating_point else None)
            else:  # of its own: autograd adds into what it is given
                back.append(torch.tensor(known, dtype=dtype, device=device))
        return None, None, None, *back, *[None] * len(cotangents)


class _Changed(TorchFunctionMode):
    """Numbers the module's function calls, and changes some."""

    def __init__(self, change: Change, note: Callable[[Site], None] | None):
        self.change, self.note = change, note
        self.paused = False
        self.owners: dict[int, str] = {}  # paths of modules, where words are to name them
        self.count = 0
        self.tensors: list[tuple[str, int, torch.Tensor]] = []  # in words, made before which call, and itself

    def keep(self, value: Any, words: str) -> None:
        """Notes a tensor that another may be taken for."""
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            self.tensors.append((words, self.count, value))

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
        frame: FrameType | None = sys._getframe(2) if self.owners else None
        while frame is not None and frame.f_code is not Replay.run.__code__:
            path = self.owners.get(id(frame.f_locals.get("self")))
            if path is not None:
                return f" of {path}" if path else ""
            frame = frame.f_back
        return ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if self.paused or name in SILENT:
            return func(*args, **kwargs)
        number, self.count = self.count, self.count + 1
        if self.change.apply is not None and number in self.change.sites:
            return self.change.apply(func, args, kwargs)
        if self.change.rewired is not None and self.change.rewired[0] == number:
            _, place, source = self.change.rewired
            args = (*args[:place], self.tensors[source][2], *args[place + 1 :])
        if self.change.exchanged is not None:
            args, kwargs = pytree.tree_map(self._other, (args, kwargs))
        result = func(*args, **kwargs)
        self.keep(result, f"what {name}{self._owner()} gives")
        if self.note is not None:
            self.note(Site(number, name, func, args, kwargs, result, _place()))
        return result


def _place() -> tuple[Any, ...]:
    """The instructions from the replay's own down to the call of a function, with the modules that they belong to."""
    instructions = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not Replay.run.__code__:
        owner = frame.f_locals.get("self")
        instructions.append((frame.f_code, frame.f_lasti, id(owner) if isinstance(owner, torch.nn.Module) else None))
        frame = frame.f_back
    return tuple(instructions)


@contextlib.contextmanager
def _in_other_mode(module: torch.nn.Module) -> Iterator[None]:
    module.training = not module.training
    try:
        yield
    finally:
        module.training = not module.training


@contextlib.contextmanager
def _another(module: torch.nn.Module, name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    path, _, attribute = name.rpartition(".")
    holder = module.get_submodule(path)
    parameter = holder._parameters[attribute]
    assert parameter is not None
    made = make(parameter)
    _put(holder, attribute, made)
    try:
        yield
    finally:
        _put(holder, attribute, parameter)


def _put(holder: torch.nn.Module, attribute: str, tensor: torch.Tensor) -> None:
    holder._parameters[attribute] = tensor  # type: ignore[assignment]
    if isinstance(holder, torch.nn.RNNBase):  # it keeps a list of them, too
        holder._flat_weights = [holder._parameters.get(name) for name in holder._flat_weights_names]
