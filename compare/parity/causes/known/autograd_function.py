"""An `autograd.Function` of the reference's: its backward left out, or its gradient handed on; another number."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from ..autograd_functions import own_function
from ..variants import Called, Fit, Variant, of
from .gradient import handed_on

FIX = "write it as a jax.custom_vjp with the backward of the reference"


@of("*")
def own_backward(call: Called) -> Iterator[Variant | Fit]:
    """For any call of one."""
    kind = own_function(call.site.func)
    if kind is None:
        return
    says = f"differentiates what {kind.__name__} computes, and has no backward of its own"
    yield Variant("backward-missing", says, FIX, lambda func, args, kwargs: _differentiated(kind, args))
    says = f"hands the gradient by what {kind.__name__} gives on as it is"
    yield Variant("straight-through", says, FIX, handed_on)
    for place, value in enumerate(call.args):
        if isinstance(value, int | float) and not isinstance(value, bool):
            says = f"gives {kind.__name__} {{value}} where the reference gives {{known}}"
            yield Fit("function-argument", says, "give it {known}", float(value), lambda v, p=place: _with(p, v))


class _Context(SimpleNamespace):
    def save_for_backward(self, *_: Any) -> None: ...

    def mark_non_differentiable(self, *_: Any) -> None: ...

    def set_materialize_grads(self, _: bool) -> None: ...


def _differentiated(kind: Any, args: tuple[Any, ...]) -> Any:
    takes_context = kind.setup_context is torch.autograd.Function.setup_context
    needed = tuple(isinstance(x, torch.Tensor) and x.requires_grad for x in args)
    return kind.forward(*[_Context(needs_input_grad=needed)][:takes_context], *args)


def _with(place: int, value: float) -> Any:
    return lambda func, args, kwargs: func(*args[:place], value, *args[place + 1 :], **kwargs)
