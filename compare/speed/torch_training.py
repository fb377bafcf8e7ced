"""PyTorch's steps of training: a module that a row has prepared, a backward pass, and an optimizer that goes on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from ..observation import Observation
from ..torch_side import TorchBatch, TorchSide, train_step
from .capture import captured
from .rows import TrainStep


class EagerUpdate:
    """The module as the row prepared it, the optimizer as PyTorch runs it."""

    def __init__(self, side: TorchSide, module: Any):
        self._side, self._module = side, module
        self._start = side.start
        self._optimizer = side.new_optimizer()
        self._first = copy.deepcopy(self._optimizer.state_dict())
        self.reset()  # tracing and scripting may have moved the buffers

    def __call__(self, batch: TorchBatch) -> Any:
        return train_step(self._module, self._optimizer, batch, self._side.loss)

    def reset(self) -> None:
        self._start.restore()
        self._optimizer.load_state_dict(copy.deepcopy(self._first))

    def observe(self, result: Any) -> Observation:
        return self._side.observe_steps(result)


class CompiledUpdate:
    """The module as the row prepared it, and `optimizer.step` compiled too, as PyTorch's tutorial does: its loop over
    parameters becomes a few kernels.

    Source: https://docs.pytorch.org/tutorials/recipes/compiling_optimizer.html
    """

    def __init__(self, side: TorchSide, module: Any, sample: TorchBatch):
        self._side, self._module = side, module
        self._optimizer = _capturable(side.new_optimizer(), side)
        self._update = _compiled_update(self._optimizer)
        self._state = OptimizerState(side, self._optimizer)
        self.reset()
        for _ in range(2):  # the update is not compiled before the second
            self(sample)
        self.reset()

    def __call__(self, batch: TorchBatch) -> Any:
        if self._state.is_first:
            return self._state.first_step(self._module, batch)
        return train_step(self._module, self._optimizer, batch, self._side.loss, self._update)

    def reset(self) -> None:
        self._state.reset()

    def observe(self, result: Any) -> Observation:
        return self._side.observe_steps(result)


class OptimizerState:
    """Takes an optimizer back to its first state where its tensors must stay where they are: a captured graph writes
    to their addresses, and a compiled update looks for other ones again.

    PyTorch makes most of that state in the first step, whatever it starts from (SGD's momentum is the first gradient).
    So after `reset` one step is made by a new optimizer, and its state copied over.
    """

    def __init__(self, side: TorchSide, optimizer: torch.optim.Optimizer):
        self._side, self._optimizer = side, optimizer
        self._start = side.start
        self.is_first = False

    def reset(self) -> None:
        self._start.restore()
        self.is_first = True

    def first_step(self, module: Any, batch: TorchBatch) -> Any:
        """The step after `reset`."""
        fresh = _capturable(self._side.new_optimizer(), self._side)
        outputs = train_step(module, fresh, batch, self._side.loss)
        for parameter, values in fresh.state.items():
            held = self._optimizer.state[parameter]
            for name, value in values.items():
                if name in held and isinstance(value, torch.Tensor):
                    held[name].copy_(value)
                else:
                    held[name] = value
        self.is_first = False
        return outputs


class CapturedStep:
    """The whole step in one CUDA graph.

    Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
    """

    def __init__(self, side: TorchSide, module: Any, sample: TorchBatch, *, compile_update: bool = False):
        self._side, self._module = side, module
        self._optimizer = _capturable(side.new_optimizer(), side)
        update = _compiled_update(self._optimizer) if compile_update else None
        self._state = OptimizerState(side, self._optimizer)
        self._replay = captured(
            lambda batch: train_step(module, self._optimizer, batch, side.loss, update),
            sample,
            self._optimizer.zero_grad,  # gradients are then allocated from the graph's own pool
        )
        self.reset()

    def __call__(self, batch: TorchBatch) -> Any:
        if self._state.is_first:
            return self._state.first_step(self._module, batch)
        return self._replay(batch)

    def reset(self) -> None:
        self._state.reset()

    def observe(self, result: Any) -> Observation:
        return self._side.observe_steps(result)


class MarkedStep:
    """A step whose compiled graphs keep CUDA graphs of their own, which have to hear where a step begins."""

    def __init__(self, step: TrainStep):
        self._step = step
        self.reset, self.observe = step.reset, step.observe

    def __call__(self, batch: TorchBatch) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return self._step(batch)


def _capturable(optimizer: torch.optim.Optimizer, side: TorchSide) -> torch.optim.Optimizer:
    """With its counts on the GPU, where a captured graph can go on counting."""
    if side.device != "cpu":
        for group in optimizer.param_groups:
            if "capturable" in group:
                group["capturable"] = True
    return optimizer


def _compiled_update(optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    def update() -> None:
        optimizer.step()

    return torch.compile(update)
