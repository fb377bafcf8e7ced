"""Modules inside of a replayed one: they hand on what was recorded of them, forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import as_numpy

from ...torch_side import Snapshot
from ...trees import named_leaves
from ..inside.calls import Call
from ..inside.packed import PackedLayout, unpacked
from .change import Change
from .changed import Changed, Evidence, Inside, kept, unseen

END: Any = object()  # of a queue


def stub(
    module: torch.nn.Module,
    queue: Iterator[Call | None],
    evidence: Evidence,
    outputs: list[torch.Tensor],
    mode: Changed,
    anchor: torch.Tensor,
    *,
    writes: bool = False,
) -> Callable[..., Any]:
    """A forward that gives what was recorded of the next call in the queue, and notes what it receives.

    Where that is of another length, as where other rows are chosen, and where the module is called once more than it
    was, as where a loop goes on, it is what the module itself makes of it.

    Args:
      module: of which the calls are.
      queue: records of the calls of one module, in order; None of one that is a part of what is around it.
      evidence: where it is noted.
      outputs: to which what is given is added.
      mode: in which the replay runs; nothing of what happens here is a call of the module's.
      anchor: a tensor that gradients are taken by: what is given hangs on it, so that its cotangent is seen, too, where
        the module takes no tensor that has a gradient, as an embedding.
      writes: whether it runs, too, for what it leaves in its buffers.
    """

    def handed_on(call: Call, tensors: list[torch.Tensor]) -> Any:
        if mode.change.cut_before in ((call.id.path, None), call.id):
            tensors = [x.detach() for x in tensors]
        flat, structure = pytree.tree_flatten(call.result)
        places = [i for i, x in enumerate(flat) if isinstance(x, torch.Tensor)]
        own = functools.partial(_own_gradient, module, call)
        given = _Recorded.apply(call, evidence, own, len(tensors), anchor, *tensors, *(flat[i] for i in places))
        outputs.extend(given)
        by_name = dict(zip(call.outputs, given, strict=True))
        named = {name: by_name[call.merged_outputs.get(name, name)] for name in by_name}
        given = tuple(_cut(x, name, call, mode.change) for name, x in named.items())
        for tensor in given:
            mode.keep(tensor, f"what {call.id} gives")
        for i, tensor in zip(places, given, strict=True):
            flat[i] = _changed(tensor, call, mode.change)
        mode.inside_calls.append(Inside(call.id.path, mode.count, tensors, [flat[i] for i in places]))
        return pytree.tree_unflatten(flat, structure)

    def forward(*args: Any, **kwargs: Any) -> Any:
        before, mode.paused = mode.paused, True
        try:
            call = next(queue, END)
            if call is END:
                return type(module).forward(module, *args, **kwargs)
            if call is None:
                mode.paused = before
                return type(module).forward(module, *args, **kwargs)
            with unseen():
                args, kwargs = mode.taken((args, kwargs), mode.count - 0.5)  # after the function call before it
                tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
                is_of_another_length = _is_of_another_length(tensors, call)
            if is_of_another_length:
                mode.of_other_length.add(call.id)
                evidence.update({("received", f"{name} of {call.id}"): array for name, array in call.inputs.items()})
                return type(module).forward(module, *args, **kwargs)
            given_to_it = {n: kept(x) for n, x in zip(call.inputs, tensors, strict=False)}
            for name, array in _unpacked(given_to_it, call).items():
                evidence["received", f"{name} of {call.id}"] = array
            if writes:
                _write(module, args, kwargs)
            with unseen():
                return handed_on(call, tensors)
        finally:
            mode.paused = before

    return forward


def _write(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
    """Runs a module for what it leaves in its buffers."""
    copies = pytree.tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, (args, kwargs))
    with torch.no_grad(), torch.random.fork_rng():
        type(module).forward(module, *copies[0], **copies[1])


def _is_of_another_length(tensors: list[torch.Tensor], call: Call) -> bool:
    """Whether a module is given as much as it was of each row, and other numbers of rows."""
    if unpacked(call.inputs)[1]:
        return False
    pairs = list(zip(tensors, call.inputs.values(), strict=False))
    alike = all(x.ndim == known.ndim and x.shape[1:] == known.shape[1:] for x, known in pairs)
    return alike and any(x.ndim and len(x) != len(known) for x, known in pairs)


def _unpacked(given: dict[str, np.ndarray], call: Call) -> dict[str, np.ndarray]:
    """What a module is given, its packed sequences with lengths, and their data where the recorded ones have it: of
    what has other lengths, what they leave out is as it was recorded, since a port's padded array still has it."""
    found, packings = unpacked(given)
    for name, packing in packings.items():
        recorded, usual = call.inputs[name], unpacked(call.inputs)[1][name]
        if np.array_equal(packing.order, usual.order) and np.array_equal(packing.sizes, usual.sizes):
            continue
        layout = PackedLayout(usual, (len(usual.order), len(usual.sizes), *recorded.shape[1:]), time_first=False)
        padded = layout.to_port(recorded)
        sequences, steps = packing.places
        there = steps < padded.shape[1]
        padded[sequences[there], steps[there]] = found[name][there]
        found[name] = layout.to_reference(padded)
    return found


def _cut(tensor: torch.Tensor, name: str, call: Call, change: Change) -> torch.Tensor:
    return tensor.detach() if change.cut in ((call.id.path, ""), (call.id.path, name)) else tensor


def _changed(tensor: torch.Tensor, call: Call, change: Change) -> torch.Tensor:
    path, make = change.given or (None, None)
    return make(tensor) if make is not None and path == call.id.path and tensor.is_floating_point() else tensor


def _own_gradient(module: torch.nn.Module, call: Call, place: int) -> torch.Tensor | None:
    """The gradient by an input of a call that the module itself gives back for the cotangents that were recorded."""
    leaves, structure = pytree.tree_flatten(call.arguments)
    at = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)][place]
    with torch.enable_grad(), Snapshot.of_buffers(module).restored():
        leaves[at] = wanted = leaves[at].detach().clone().requires_grad_()
        args, kwargs = pytree.tree_unflatten(leaves, structure)
        outputs = named_leaves(type(module).forward(module, *args, **kwargs))
        reached = {name: x for name, x in outputs.items() if call.cotangents.get(name) is not None and x.requires_grad}
        if not reached:
            return None
        heads = [torch.as_tensor(call.cotangents[name], dtype=x.dtype) for name, x in reached.items()]
        return torch.autograd.grad(list(reached.values()), wanted, heads, allow_unused=True)[0]


FIRST_INPUT = 5  # of what a recorded call is given, after what it is of


class _Recorded(torch.autograd.Function):
    """Gives recorded outputs; backward, notes the cotangents and gives recorded input gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        call: Call,
        evidence: Evidence,
        own: Callable[[int], torch.Tensor | None],
        count: int,
        _: torch.Tensor,
        *tensors: torch.Tensor,
    ) -> Any:
        ctx.call, ctx.evidence, ctx.own = call, evidence, own
        ctx.inputs = [(x.shape, x.dtype, x.device) for x in tensors[:count]]
        outputs = tuple(x.clone() for x in tensors[count:])
        ctx.mark_non_differentiable(*(x for x in outputs if not x.is_floating_point()))
        ctx.count = count
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        call = ctx.call
        for name, gradient in zip(call.outputs, cotangents, strict=True):
            if (name in call.cotangents or name in call.without_gradient) and gradient is not None:
                ctx.evidence["received_cotangent", f"{name} of {call.id}"] = as_numpy(gradient.detach().clone())
        names = [*call.inputs, *[None] * ctx.count][: ctx.count]
        back = []
        for place, (name, (shape, dtype, device)) in enumerate(zip(names, ctx.inputs, strict=True)):
            known = call.input_gradients.get(name)
            if name is not None and name not in call.input_gradients and ctx.needs_input_grad[FIRST_INPUT + place]:
                back.append(ctx.own(place))  # nothing was recorded of what the reference detaches
            elif known is None or known.shape != tuple(shape):
                back.append(torch.zeros(shape, dtype=dtype, device=device) if dtype.is_floating_point else None)
            else:  # of its own: autograd adds into what it is given
                back.append(torch.tensor(known, dtype=dtype, device=device))
        return *[None] * FIRST_INPUT, *back, *[None] * len(cotangents)
