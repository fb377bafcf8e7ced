"""PyTorch's ways of running: eager, channels_last, TorchScript, compile, and CUDA graphs."""

from __future__ import annotations

from typing import Any

import jax.tree_util as jtu
import torch
from torch.utils import _pytree as pytree

from ..case import Mode
from ..torch_side import TorchBatch, TorchSide, forward_backward
from .capture import captured
from .rows import Row, Step, Unavailable
from .torch_training import CapturedStep, CompiledUpdate, EagerUpdate, MarkedStep


def _step(side: TorchSide, mode: Mode, module: Any) -> Step:
    """Runs `module`, which has the side's parameters, in this mode; in training, with the optimizer as it is."""
    if mode == "train_step":
        return EagerUpdate(side, module)
    parameters: list[torch.Tensor] = list(side.parameters.values())
    loss = side.loss

    def inference(batch: TorchBatch) -> Any:
        with torch.no_grad():
            return module(*batch.args, **batch.kwargs)

    def training(batch: TorchBatch) -> Any:
        return forward_backward(module, parameters, batch, loss)

    return inference if mode == "inference" else training


def eager(side: TorchSide, mode: Mode, sample: TorchBatch) -> Step:
    return _step(side, mode, side.set_mode(mode))


def channels_last(side: TorchSide, mode: Mode, sample: TorchBatch) -> Step:
    """Weights and rank-4 inputs in NHWC memory; the copy into it is a batch's own and not timed."""
    if not any(isinstance(x, torch.Tensor) and x.ndim == 4 for x in jtu.tree_leaves((sample.args, sample.kwargs))):
        raise Unavailable("no input of rank 4, so there is no channel axis to lay out")
    side.memory_format = torch.channels_last
    side.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return _step(side, mode, side.set_mode(mode))


def trace(side: TorchSide, mode: Mode, sample: TorchBatch) -> Step:
    """The operations of one call, recorded. Named tuples, which a trace gives as plain ones, get their names back."""
    module = side.set_mode(mode)
    structures = []
    noted = module.register_forward_hook(lambda _, args, given: structures.append(pytree.tree_structure(given)))
    try:
        with torch.set_grad_enabled(mode != "inference"):
            traced = torch.jit.trace(
                module,
                None if sample.kwargs else sample.args,
                example_kwarg_inputs=sample.kwargs or None,
                check_trace=False,
            )
    finally:
        noted.remove()
    recorded = torch.jit.freeze(traced) if mode == "inference" else traced
    if structures[0].is_leaf():
        return _step(side, mode, recorded)

    def named(*args: Any, **kwargs: Any) -> Any:
        return pytree.tree_unflatten(pytree.tree_leaves(recorded(*args, **kwargs)), structures[0])

    return _step(side, mode, named)


def script(side: TorchSide, mode: Mode, sample: TorchBatch) -> Step:
    scripted = torch.jit.script(side.set_mode(mode))
    return _step(side, mode, torch.jit.freeze(scripted) if mode == "inference" else scripted)


def compiled(side: TorchSide, mode: Mode, sample: TorchBatch) -> Step:
    """As users call it: static, and dynamic from the first size that changes, such as a count of elements."""
    module = torch.compile(side.set_mode(mode))
    return CompiledUpdate(side, module, sample) if mode == "train_step" else _step(side, mode, module)


def reduce_overhead(side: TorchSide, mode: Mode, sample: TorchBatch) -> Step:
    """Compiled, and replayed from CUDA graphs that it keeps itself; a call may overwrite what the one before gave."""
    module = torch.compile(side.set_mode(mode), mode="reduce-overhead")
    if mode == "train_step":
        return MarkedStep(CompiledUpdate(side, module, sample))
    run = _step(side, mode, module)

    def step(batch: TorchBatch) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return run(batch)

    return step


def cudagraph(side: TorchSide, mode: Mode, sample: TorchBatch) -> Step:
    """Captured once on static inputs; a replay pays for copying its inputs into them."""
    module = side.set_mode(mode)
    return CapturedStep(side, module, sample) if mode == "train_step" else captured(_step(side, mode, module), sample)


def compiled_cudagraph(side: TorchSide, mode: Mode, sample: TorchBatch) -> Step:
    """Inductor's kernels inside one captured graph: what PyTorch itself calls its fastest."""
    module = torch.compile(side.set_mode(mode))
    if mode == "train_step":
        return CapturedStep(side, module, sample, compile_update=True)
    return captured(_step(side, mode, module), sample)


def graphed_callables(side: TorchSide, mode: Mode, sample: TorchBatch) -> Step:
    if sample.kwargs:
        raise TypeError("make_graphed_callables takes positional tensors alone, and the inputs come by name")
    with torch.set_grad_enabled(mode != "inference"):  # or it captures a backward pass, too
        graphed = torch.cuda.make_graphed_callables(side.set_mode(mode), sample.args, allow_unused_input=True)
    return _step(side, mode, graphed)


ROWS = (
    Row("torch.eager", "torch", eager),
    Row("torch.channels_last", "torch", channels_last),
    Row("torch.trace", "torch", trace),
    Row("torch.script", "torch", script),
    Row("torch.compile", "torch", compiled, is_slow_to_compile=True, fills_processors=True),
    Row("torch.compile.reduce_overhead", "torch", reduce_overhead, needs_cuda=True, is_slow_to_compile=True),
    Row("torch.cudagraph", "torch", cudagraph, needs_cuda=True),
    Row("torch.graphed_callables", "torch", graphed_callables, needs_cuda=True),
    Row("torch.compile.cudagraph", "torch", compiled_cudagraph, needs_cuda=True, is_slow_to_compile=True),
)
