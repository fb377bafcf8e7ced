"""Calls of the `torch.autograd.Function`s that a reference has of its own, which no mode of PyTorch's sees."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.autograd.function

from ...errors import is_of_a_library

Forward = Callable[[Callable[..., Any], tuple[Any, ...]], Any]  # of `apply`, and its arguments
Backward = Callable[[Callable[..., Any], Any, tuple[Any, ...]], Any]  # of `backward`, its ctx, and the gradients

# What `Function.apply` hands its call on to; it has no public name, and where it has another, no call is seen.
_BASE: Any = getattr(torch.autograd.function, "_SingleLevelFunction", None)


def own_function(func: Callable[..., Any]) -> type[torch.autograd.Function] | None:
    """The class, where this is the `apply` of one."""
    kind = getattr(func, "__self__", None)
    return kind if isinstance(kind, type) and issubclass(kind, torch.autograd.Function) else None


@contextlib.contextmanager
def intercepted(forward: Forward, backward: Backward) -> Iterator[None]:
    """Within it, such calls go through these two; what is already bound, as in `spike = Spike.apply`, does too."""
    if _BASE is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        known: set[type] = set()

        def apply(kind: Any, *args: Any) -> Any:
            usual = super(_BASE, kind).apply
            if _is_of_a_library(kind):
                return usual(*args)
            if kind not in known:
                known.add(kind)
                stack.enter_context(_through(kind, backward))
            return forward(usual, args)

        _BASE.apply = classmethod(apply)
        stack.callback(delattr, _BASE, "apply")
        yield


@contextlib.contextmanager
def _through(kind: Any, backward: Backward) -> Iterator[None]:
    usual, own = kind.backward, vars(kind).get("backward")
    kind.backward = staticmethod(lambda ctx, *gradients: backward(usual, ctx, gradients))
    try:
        yield
    finally:
        if own is None:
            del kind.backward
        else:
            kind.backward = own


def _is_of_a_library(kind: Any) -> bool:
    return is_of_a_library(kind.forward.__code__.co_filename) if hasattr(kind.forward, "__code__") else True
