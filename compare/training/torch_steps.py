"""A PyTorch training step as it stands, compiled, or captured in a CUDA graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

from ..speed.capture import recording

Kind = Literal["eager", "compile", "cudagraph"]
TorchStep = Callable[[Any], torch.Tensor]
KINDS: tuple[Kind, ...] = ("eager", "compile", "cudagraph")
WARM_UP = 3


def as_kind(step: TorchStep, kind: Kind, module: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> TorchStep:
    """The step in one of the ways in which PyTorch runs it.

    Args:
      step: trains on a batch, a pytree of tensors, and gives the loss before it, detached.
      kind: `"eager"`, `"compile"` (`torch.compile` of all of it), or `"cudagraph"`: captured at the first call, where
        warming up leaves no trace, and replayed with each batch copied into the captured one.
      module, optimizers: what it changes.

    Raises:
      ValueError: for another kind.

    Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
    """
    kind = as_kind_name(kind)
    if kind == "compile":
        return torch.compile(step)
    return CapturedStep(step, module, *optimizers) if kind == "cudagraph" else step


def as_kind_name(text: str = "eager") -> Kind:
    """A word of the command line as a kind.

    Raises:
      ValueError: for another word.
    """
    for kind in KINDS:
        if text == kind:
            return kind
    raise ValueError(f"kind is {text!r}; choose {' or '.join(map(repr, KINDS))}")


class CapturedStep:
    """One CUDA graph of a step, made at the first call."""

    def __init__(self, step: TorchStep, module: torch.nn.Module, *optimizers: torch.optim.Optimizer):
        self._step, self._module, self._optimizers = step, module, optimizers
        self._graph: torch.cuda.CUDAGraph | None = None
        for group in self._groups():
            if "capturable" in group:
                group["capturable"] = True

    def __call__(self, batch: Any) -> torch.Tensor:
        if self._graph is None:
            self._capture(batch)
        assert self._graph is not None
        with torch.no_grad():
            for held, given in zip(self._held, pytree.tree_leaves(batch), strict=True):
                held.copy_(given)
        self._graph.replay()
        return self._loss

    def _capture(self, batch: Any) -> None:
        """Warms up on a stream beside, as capturing asks for, and takes module and optimizer back to where they were.

        The optimizer's state is made by its first step. It cannot be emptied again, since a captured graph writes to
        its addresses, so it is set to what a new optimizer would start from: zero in all of PyTorch's optimizers that
        can be captured but ASGD, NAdam and Rprop, which are refused.
        """
        for optimizer in self._optimizers:
            name = type(optimizer).__name__
            if name not in ("SGD", "Adam", "AdamW", "Adamax", "Adadelta", "Adagrad", "RMSprop", "RAdam"):
                raise ValueError(f"the optimizer is {name}, whose state does not start from zero; use kind='eager'")
        if any(group.get("dampening") for group in self._groups()):
            raise ValueError("dampening leaves the first gradient whole, which zero does not; use kind='eager'")
        before = copy.deepcopy(self._module.state_dict())
        held = pytree.tree_map(torch.clone, batch)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._step(held)
        torch.cuda.current_stream().wait_stream(stream)
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        with recording(self._graph):
            self._loss = self._step(held)
        self._held = pytree.tree_leaves(held)
        self._module.load_state_dict(before)
        with torch.no_grad():
            for state in (state for optimizer in self._optimizers for state in optimizer.state.values()):
                for value in state.values():
                    if isinstance(value, torch.Tensor):
                        value.zero_()

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]
