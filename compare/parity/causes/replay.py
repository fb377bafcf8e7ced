"""A module of the reference by itself, once more, under a changed function call or parameter.

The module runs on the inputs that were recorded; the modules inside that have a counterpart in the port hand on what
was recorded of them, forward and backward, just as the port's do when it is forced. So what a replay shows can be laid
beside what the port's module showed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ...checkpoints import no_checkpoints
from ...torch_side import Snapshot
from ...widened import in_float64
from ..inside.calls import CallId, Calls
from ..inside.steps import Regrouped
from .change import Change, Moved, Site
from .changed import Changed, Evidence, kept, unseen
from .input_names import input_words
from .known.gradient import left_on
from .recorded import stub
from .stand_ins import another, in_call, in_order, in_other_mode

LEAST, TIMES = (
    1000,
    10,
)  # calls that every run may make, and times as many as an unchanged one: a change may turn a loop

MOST_MADE, KEPT = 12, 100_000  # tensors of what comes of a change, and numbers in each
WRITTEN_IN_PLACE = "modified by an inplace operation"  # what autograd says


class Replay:
    """One recorded call of one module of the reference.

    Args:
      model: the reference in the mode of the record.
      calls: its record.
      at: the call.
      forced: the calls that hand on what was recorded.
      backward: whether gradients are found, too.

    Attributes:
      count: how many calls it is of.
      hidden: the numbers of those of which nothing is shown but what they leave in buffers.
      goes_on: whether the module's buffers stay as a run leaves them.
      before_the_step: what buffers and parameters held before the model began, of those that it wrote before the call.
      most: calls that a run may make, once the calls of an unchanged one are known.
      of_other_length: calls of modules inside that were given other numbers of rows in the last run, of whose gradients
        nothing was recorded.
    """

    goes_on = False
    count = 1
    hidden: frozenset[int] = frozenset()
    _keeps_saved = False  # whether what is saved for the backward pass is kept where it is written to
    of_other_length: frozenset[CallId] = frozenset()

    def __init__(self, model: torch.nn.Module, calls: Calls, at: CallId, forced: set[CallId], backward: bool):
        self.model, self.calls, self.call, self.backward = model, calls, calls[at], backward
        self.path = at.path
        self.most: int | None = None
        self.module = model.get_submodule(at.path)
        # found once: a search runs the module by the thousand
        self._modules = {f"{path}." if path else "": module for path, module in self.module.named_modules()}
        self.parameters = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        floating = [x for x in pytree.tree_leaves(self.call.arguments) if isinstance(x, torch.Tensor)]
        floating += model.parameters()
        named = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        self.before_the_step = {name: named[name].detach().clone() for name in self.call.held if name in named}
        self.in_float64 = any(x.dtype == torch.float64 for x in floating)
        self.anchor = torch.zeros((), requires_grad=True)
        if backward:  # of the gradients by their parameters only the sum is known, as of what runs and what does not
            forced = forced - _with_hidden_calls(calls, at, forced)
        inside = [call for call in calls if call != at and self._around(call, forced) == at]
        self.children: dict[str, list[CallId]] = {}
        for call in filter(forced.__contains__, inside):
            self.children.setdefault(call.path, []).append(call)
        self._made = {path: [call for call in inside if call.path == path] for path in self.children}  # forced or not

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

    def held(self) -> dict[str, torch.Tensor]:
        """The tensors that the module holds, by name below it: parameters, buffers, and plain attributes."""
        plain = {
            f"{path}.{name}".lstrip("."): value
            for path, module in self.module.named_modules()
            for name, value in vars(module).items()
            if isinstance(value, torch.Tensor)
        }
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers()), **plain}

    def _buffers(self) -> dict[str, torch.Tensor]:
        """As `named_buffers()` has them now."""
        found: dict[int, tuple[str, torch.Tensor]] = {}
        for prefix, module in self._modules.items():
            for name, x in module._buffers.items() if module._buffers else ():
                if x is not None and id(x) not in found:
                    found[id(x)] = prefix + name, x
        return dict(found.values())

    def sites(self) -> list[Site]:
        """The function calls of an unchanged run, in order."""
        seen: list[Site] = []
        self.run(Change(), note=seen.append, forward_only=True)
        return seen

    def run(
        self,
        change: Change,
        *,
        note: Callable[[Site], None] | None = None,
        forward_only: bool = False,
        describe: bool = False,
    ) -> Evidence:
        """What the module gives, takes and hands to those inside, with this change."""
        writes_on = self.goes_on and self.backward and not forward_only
        before = Snapshot.of_buffers(self.module) if writes_on else None
        try:
            return self._run(change, note=note, forward_only=forward_only, describe=describe)
        except RuntimeError as error:  # what is written in place there was made for no gradient
            if WRITTEN_IN_PLACE not in str(error) or self._keeps_saved:
                raise
            if before is not None:
                before.restore()
            self._keeps_saved = True
            try:
                return self._run(change, note=note, forward_only=forward_only, describe=describe)
            finally:
                self._keeps_saved = False

    def _run(
        self, change: Change, *, note: Callable[[Site], None] | None, forward_only: bool, describe: bool
    ) -> Evidence:
        evidence: Evidence = {}
        given: list[torch.Tensor] = []
        mode = Changed(change, note, Replay._run.__code__, self.most)
        if change.held is not None:
            mode.held = change.held(self)
        if describe:
            mode.owners = {id(module): path for path, module in self.module.named_modules()}
        args, kwargs, leaves = self._inputs(change.input)
        taken = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        words = input_words(self.module, self.call.inputs)
        for name, tensor in zip(self.call.inputs, taken, strict=False):
            mode.keep(tensor, words[name])
        self.tensors, self.inside_calls = mode.tensors, mode.inside_calls
        buffers = self._buffers()
        before = {name: x.clone() for name, x in buffers.items() if name in change.unwritten}
        replaced = {name: x for name, x in buffers.items() if name in change.parameters}
        with contextlib.ExitStack() as stack:
            if not self.goes_on:
                stack.enter_context(Snapshot(list(buffers.values()), self._modules.values()).restored())
                stack.enter_context(self._as_it_began())
            stack.callback(self._without_history)
            stack.enter_context(self._stubs(evidence, given, mode))
            if change.other_mode:
                stack.enter_context(in_other_mode(self.module))
            for name, make in change.parameters.items():
                stack.enter_context(another(self.module, name, make))
            if before:
                stack.callback(self._unwrite, before)
            versions = {name: (x, x._version) for name, x in self._buffers().items() if name in replaced}
            stack.enter_context(torch.enable_grad() if self.backward else torch.no_grad())
            if self._keeps_saved or change.apply is left_on:
                stack.enter_context(torch.autograd.graph.allow_mutation_on_saved_tensors())
            if self.in_float64:
                stack.enter_context(in_float64())
            stack.enter_context(no_checkpoints())
            # or a sparse tensor of changed indices is written outside of its memory
            stack.enter_context(torch.sparse.check_sparse_tensor_invariants())
            stack.enter_context(mode)
            stack.enter_context(mode.own_functions())
            outputs = self._called(mode, args, kwargs)
            mode.paused = True
            self.of_other_length = frozenset(mode.of_other_length)
            if change == Change():
                self.most = LEAST + TIMES * mode.count
            self._regroup("received", evidence)
            if (at_output := change.output) is not None:
                outputs = pytree.tree_map(
                    lambda x: at_output(x) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, outputs
                )
            with unseen():
                tensors = [x for x in pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor)]
                named = dict(zip(self.call.outputs, tensors, strict=False))
                evidence.update({("output", name): as_numpy(x.detach()) for name, x in named.items()})
                for name, buffer in self._buffers().items():
                    is_written = name not in replaced or versions[name] != (buffer, buffer._version)
                    left = before.get(name, buffer if is_written or change.stays else replaced[name])
                    evidence["buffer", self.full(name)] = kept(left)
            if self.backward and not forward_only:
                self._gradients(named, given, leaves, evidence)
        return evidence

    def changed(self, change: Change) -> list[np.ndarray]:
        """What the calls that a change is at give with it, or write into; nothing where it is at none."""
        found: list[np.ndarray] = []
        apply = change.apply
        if apply is None or apply is left_on:
            return found

        def noted(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            result = apply(func, args, kwargs)
            tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
            found.extend(as_numpy(x.detach().clone()) for x in tensors or args[:1] if isinstance(x, torch.Tensor))
            return result

        with contextlib.suppress(Exception):  # of a change that asks which function it is
            self.run(dataclasses.replace(change, apply=noted), forward_only=True)
        return found

    def made_of(self, change: Change) -> list[np.ndarray]:
        """What the first of the calls after those that a change is at give otherwise with it."""
        with contextlib.suppress(Exception):
            usual, others = self._results(Change()), self._results(change)
            both = ((usual[key], other) for key, other in others.items() if key in usual)
            apart = (other for value, other in both if not np.array_equal(value, other, equal_nan=True))
            return list(itertools.islice(apart, MOST_MADE))
        return []

    def _results(self, change: Change) -> dict[tuple[int, str], np.ndarray]:
        """What each call gives with this change, by its number and name, but what is large."""
        found: dict[tuple[int, str], np.ndarray] = {}

        def note(site: Site) -> None:
            result = site.result
            if isinstance(result, torch.Tensor) and result.layout is torch.strided and result.numel() <= KEPT:
                found[site.number, site.name] = kept(result)

        self.run(change, note=note, forward_only=True)
        return found

    def _without_history(self) -> None:
        """Buffers are of no graph, whatever was written into them."""
        for buffer in self._buffers().values():
            if not buffer.is_leaf:
                buffer.detach_()

    @contextlib.contextmanager
    def _as_it_began(self) -> Iterator[None]:
        """With what buffers and parameters held when the call began: the model may have written them before."""
        if not self.call.held:
            yield
            return
        named = {**dict(self.module.named_parameters()), **self._buffers()}
        with Snapshot([named[name] for name in self.call.held if name in named]).restored():
            with torch.no_grad():
                for name, held in self.call.held.items():
                    if name in named and named[name].shape == held.shape:
                        named[name].copy_(held)
            yield

    def _called(self, mode: Changed, args: Any, kwargs: Any) -> Any:
        again = self.calls.regrouped.get(self.path)
        if again is None or not again.has_lines:
            return self.module(*args, **kwargs)

        def line(*args: Any, **kwargs: Any) -> Any:
            mode.begin_anew()
            mode.paused = False  # what cuts and joins the lines is no call of the module's
            try:
                return self.module(*args, **kwargs)
            finally:
                mode.paused = True

        mode.paused = True
        return again.line_by_line(line, (args, kwargs))

    def _gradients(
        self,
        named: Mapping[str, torch.Tensor],
        given: list[torch.Tensor],
        leaves: dict[str, torch.Tensor],
        into: Evidence,
    ) -> None:
        heads = [(x, self.call.cotangents.get(name)) for name, x in named.items() if x.requires_grad]
        heads = [(x, g) for x, g in heads if g is not None and g.shape == tuple(x.shape)]
        wanted = [*leaves.values(), *self.parameters.values(), self.anchor]
        # a module inside hands on its recorded gradient also where none reaches it, as the port's does
        heads += [(x, np.zeros(x.shape)) for x in given if x.requires_grad]
        found: Sequence[torch.Tensor | None] = [None] * len(wanted)
        if heads:
            # in the order in memory in which it came back
            starts = [torch.from_numpy(np.array(g, order="K")).to(x) for x, g in heads]
            found = torch.autograd.grad([x for x, _ in heads], wanted, starts, allow_unused=True)
        names = [("input_gradient", n) for n in leaves] + [
            ("parameter_gradient", self.full(n)) for n in self.parameters
        ]
        for key, tensor, gradient in zip(names, wanted, found, strict=False):  # but the anchor
            into[key] = as_numpy((torch.zeros_like(tensor) if gradient is None else gradient).detach())
        self._regroup("received_cotangent", into)
        for call in (self.calls[id] for ids in self.children.values() for id in ids if id not in self.of_other_length):
            # of one that nothing reaches, as the port's receives it
            for name in (*call.cotangents, *call.without_gradient):
                into.setdefault(("received_cotangent", f"{name} of {call.id}"), np.zeros_like(call.outputs[name]))

    @torch.no_grad()
    def _unwrite(self, before: Mapping[str, torch.Tensor]) -> None:
        for name, x in self.module.named_buffers():
            if name in before:
                x.copy_(before[name])

    def keeps(self) -> bool:
        """Whether the module has buffers that no module inside with a counterpart has, which hands on what it gave."""
        inside = tuple(f"{path}." for path in self.children)
        return not all(self.full(name).startswith(inside) for name, _ in self.module.named_buffers())

    def written(self) -> list[str]:
        """The names, below the module, of the buffers that a call changes."""
        before = {
            name: as_numpy(self.call.held.get(name, x).detach().clone()) for name, x in self.module.named_buffers()
        }
        after = self.run(Change(), forward_only=True)
        pairs = ((name, after["buffer", self.full(name)], x) for name, x in before.items())
        return [name for name, now, then in pairs if not np.array_equal(now, then, equal_nan=now.dtype.kind == "f")]

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
            leaf = leaves.get(self.call.merged.get(name, name))
            if leaf is not None:
                flat[i] = leaf.clone() if change is None else change(leaf)  # in-place functions take no leaf
        args, kwargs = pytree.tree_unflatten(flat, structure)
        return args, kwargs, leaves

    def _regrouped(self, path: str) -> Regrouped | None:
        """How the calls of a module inside were regrouped, if they were, and this one still makes those that were."""
        own = self.calls.regrouped.get(self.path)
        return self.calls.regrouped.get(path) if own is None or own.has_lines else None

    def _regroup(self, what: str, evidence: Evidence) -> None:
        for path, ids in self.children.items():
            if (again := self._regrouped(path)) is not None:
                call = again.originals[0]
                again.again(evidence, what, list(call.inputs if what == "received" else call.outputs), ids)

    @contextlib.contextmanager
    def _stubs(self, evidence: Evidence, outputs: list[torch.Tensor], mode: Changed) -> Iterator[None]:
        patched = {}
        for path, ids in self.children.items():
            again = self._regrouped(path)
            made = [self.calls[call] if call in ids else None for call in self._made[path]]
            queue = iter(made if again is None else again.originals)
            module = self.model.get_submodule(path)
            patched[module] = stub(
                module, queue, evidence, outputs, mode, self.anchor, writes=path in self._looked_into
            )
        if mode.change.called is not None:
            left_out, instead = map(self.model.get_submodule, mode.change.called)
            other = functools.partial(type(instead).forward, instead)  # itself, and no record of it
            patched[left_out] = in_call(left_out.forward, patched.get(left_out), other, mode.change.called_in)
        for moved in mode.change.moved:
            self._move(patched, mode, moved)
        for module, forward in patched.items():
            module.forward = forward
        try:
            yield
        finally:
            for module in patched:
                del module.forward

    @functools.cached_property
    def _looked_into(self) -> set[str]:
        """The modules inside whose buffers calls of this one take, as where it normalises by what another one keeps."""
        modules = {path: self.model.get_submodule(path) for path in self.children}
        owners = {id(x): path for path, module in modules.items() if module.training for x in module.buffers()}
        if not owners:
            return set()
        self._looked_into = set()  # while it is found
        given = (x for site in self.sites() for x in pytree.tree_leaves((site.args, site.kwargs)))
        return {owners[id(x)] for x in given if id(x) in owners}

    def _move(self, patched: dict[torch.nn.Module, Callable[..., Any]], mode: Changed, each: Moved) -> None:
        module = self.model.get_submodule(each.path)
        moved = in_order(patched[module], each.turned)
        patched[module] = lambda x, *_, **__: x
        if isinstance(each.to, int):
            mode.moved[each.to] = moved
        else:
            other = self.model.get_submodule(each.to)
            usual = patched[other]
            patched[other] = lambda x, *args, **kwargs: usual(moved(x), *args, **kwargs)


def _with_hidden_calls(calls: Calls, at: CallId, forced: set[CallId]) -> set[CallId]:
    """The forced calls of modules of which others, in the same call of a module around, are not."""
    hidden = {call.path for call in calls if call not in forced and _is_within(calls, call, at)} - {at.path}
    return {call for call in forced if call.path in hidden and call != at}


def _is_within(calls: Calls, call: CallId, at: CallId) -> bool:
    """Whether a call is made in another."""
    parent = calls[call].parent
    while parent is not None and parent != at:
        parent = calls[parent].parent
    return parent == at
