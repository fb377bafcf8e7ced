"""PyTorch's checkpointing: gradients through its reentrant form, and how to do without it where modules are watched."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import checkpoint

REENTRANT, NOT_REENTRANT = "CheckpointFunction", "_checkpoint_without_reentrant_generator"


def gradients_of(
    heads: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], starts: Sequence[Any], *, allow_unused: bool = False
) -> Sequence[torch.Tensor | None]:
    """`torch.autograd.grad`, also through reentrant checkpoints, which refuse that.

    Args:
      heads, wanted, starts, allow_unused: as PyTorch's; of `wanted` all are leaves.
    """
    if not any(map(_is_reentrant, _nodes(heads))):
        return torch.autograd.grad(heads, wanted, starts, allow_unused=allow_unused)
    held = [x.grad for x in wanted]
    try:
        for x in wanted:
            x.grad = None
        torch.autograd.backward(heads, starts)
        return [x.grad for x in wanted]
    finally:
        for x, gradient in zip(wanted, held, strict=True):
            x.grad = gradient


def _nodes(heads: Sequence[torch.Tensor]) -> Iterator[Any]:
    """What the gradient goes through."""
    waiting = [x.grad_fn for x in heads if x.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        yield node
        new = {each for each, _ in node.next_functions if each is not None} - seen
        seen |= new
        waiting += new


def _is_reentrant(node: Any) -> bool:
    return node.name() == f"{REENTRANT}Backward"


@contextlib.contextmanager
def no_checkpoints() -> Iterator[list[str]]:
    """Within it `torch.utils.checkpoint.checkpoint` calls its function once, and keeps what it needs: the same values
    and gradients, in more memory. In the backward pass it would call modules again, which counts twice what they write
    into buffers. The reentrant form has no gradient where none of its arguments has one, and so it stays.

    Yields:
      The names of the forms that are called, as they are.
    """
    # whoever imported `checkpoint` by name has it still: these two are what it calls
    usual = {name: getattr(checkpoint, name) for name in (REENTRANT, NOT_REENTRANT) if hasattr(checkpoint, name)}
    met: list[str] = []

    def once(*args: Any, **kwargs: Any) -> Iterator[None]:
        """Does nothing before the function, and nothing after it."""
        met.append(NOT_REENTRANT)
        yield

    instead = {REENTRANT: _Reentrant(met), NOT_REENTRANT: once}
    for name in usual:
        setattr(checkpoint, name, instead[name])
    try:
        yield met
    finally:
        for name, value in usual.items():
            setattr(checkpoint, name, value)


class _Reentrant:
    def __init__(self, met: list[str]):
        self.met = met

    def apply(self, function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        del preserve
        self.met.append(REENTRANT)
        has_gradient = any(isinstance(x, torch.Tensor) and x.requires_grad for x in args)
        with torch.set_grad_enabled(torch.is_grad_enabled() and has_gradient):
            return function(*args)
