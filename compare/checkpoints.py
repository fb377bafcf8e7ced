"""PyTorch's checkpointing, left out: it calls modules again in the backward pass, on values that nobody notes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import checkpoint

REENTRANT, NOT_REENTRANT = "CheckpointFunction", "_checkpoint_without_reentrant_generator"


@contextlib.contextmanager
def no_checkpoints() -> Iterator[None]:
    """Within it `torch.utils.checkpoint.checkpoint` calls its function and keeps what it needs: the same values and
    gradients, in more memory, also by `torch.autograd.grad`, which the reentrant form refuses. That one has no gradient
    where none of its arguments has one, and so it stays."""
    # whoever imported `checkpoint` by name has it still: these two are what it calls
    usual = {name: getattr(checkpoint, name) for name in (REENTRANT, NOT_REENTRANT) if hasattr(checkpoint, name)}
    instead = {REENTRANT: _Reentrant, NOT_REENTRANT: _twice}
    for name in usual:
        setattr(checkpoint, name, instead[name])
    try:
        yield
    finally:
        for name, value in usual.items():
            setattr(checkpoint, name, value)


class _Reentrant:
    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        del preserve
        has_gradient = any(isinstance(x, torch.Tensor) and x.requires_grad for x in args)
        with torch.set_grad_enabled(torch.is_grad_enabled() and has_gradient):
            return function(*args)


def _twice(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Does nothing before the function, and nothing after it."""
    del args, kwargs
    yield
