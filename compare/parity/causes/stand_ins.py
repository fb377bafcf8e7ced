"""What stands in for a part of a module while it runs: a call of another one, the other mode, another tensor."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch


def in_call(
    own: Callable[..., Any], recorded: Callable[..., Any] | None, other: Callable[..., Any], number: int | None
) -> Callable[..., Any]:
    """A module's forward that is another one's in the call of this number, in all where it is None; what was recorded
    of the module, if anything, is handed on call by call."""
    if number is None:
        return other
    count = itertools.count()

    def forward(*args: Any, **kwargs: Any) -> Any:
        is_other = next(count) == number
        given = None if is_other and recorded is None else (recorded or own)(*args, **kwargs)
        return other(*args, **kwargs) if is_other else given

    return forward


def in_order(forward: Callable[..., Any], order: tuple[int, ...] | None) -> Callable[..., Any]:
    """It on axes in this order, and what it gives with its axes as they were."""
    if order is None:
        return forward
    back = [order.index(axis) for axis in range(len(order))]
    return lambda x: forward(x.permute(order)).permute(back)


@contextlib.contextmanager
def in_other_mode(module: torch.nn.Module) -> Iterator[None]:
    """Training for evaluation, or the other way round; of the module alone, not of those inside."""
    module.training = not module.training
    try:
        yield
    finally:
        module.training = not module.training


@contextlib.contextmanager
def another(module: torch.nn.Module, name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """A tensor that the module holds, another for a while: a parameter, a buffer, or a plain attribute."""
    path, _, attribute = name.rpartition(".")
    holder = module.get_submodule(path)
    usual = getattr(holder, attribute)
    _put(holder, attribute, make(usual))
    try:
        yield
    finally:
        _put(holder, attribute, usual)


def _put(holder: torch.nn.Module, attribute: str, tensor: torch.Tensor) -> None:
    places: tuple[dict[str, Any], ...] = (holder._parameters, holder._buffers, vars(holder))
    next(place for place in places if attribute in place)[attribute] = tensor
    if isinstance(holder, torch.nn.RNNBase):  # it keeps a list of them, too
        holder._flat_weights = [holder._parameters.get(name) for name in holder._flat_weights_names]
