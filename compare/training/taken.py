"""What the optimizers of both scripts are given in a step: gradients after all that is done to them, and rates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from graphmode.optim import Optimizer

from ..trees import to_arrays

Settings = dict[str, frozenset[Any]]


class TorchGradients:
    """Notes what PyTorch's optimizers take of a module's parameters.

    Attributes:
      named: of the last step of the script; None where an optimizer stepped twice on one parameter.
      rates: of its groups.
      settings: of all groups, as `settings_of` gives them.
    """

    def __init__(self, module: torch.nn.Module):
        self.settings: Settings = {}
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        self.named: dict[str, np.ndarray] | None = None
        self.rates: tuple[float, ...] = ()

    @contextmanager
    def noted(self) -> Iterator[None]:
        self.named, self.rates, self.settings = {}, (), {}
        handle = register_optimizer_step_pre_hook(self._note)
        try:
            yield
        finally:
            handle.remove()

    def _note(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.rates += tuple(float(group["lr"]) for group in optimizer.param_groups if "lr" in group)
        for name, values in settings_of(optimizer.param_groups).items():
            self.settings[name] = self.settings.get(name, frozenset()) | values
        self.settings["optimizer"] = self.settings.get("optimizer", frozenset()) | {_kind(optimizer)}
        given = [p for group in optimizer.param_groups for p in group["params"]]
        found = {
            self._names[id(p)]: p.grad.detach().clone() for p in given if id(p) in self._names and p.grad is not None
        }
        if self.named is None or found.keys() & self.named.keys():
            self.named = None
        else:
            self.named |= to_arrays(found)


def settings_of(groups: Iterable[Mapping[str, Any]]) -> Settings:
    """The values that each number, flag or pair of numbers has in these groups; learning rates are told apart."""
    found: Settings = {}
    for group in groups:
        for name, value in group.items():
            value = tuple(value) if isinstance(value, list) else value
            parts = value if isinstance(value, tuple) else (value,)
            if name != "lr" and all(isinstance(part, bool | int | float) for part in parts):
                found[name] = found.get(name, frozenset()) | {value}
    return found


def settings_of_port(optimizer: Optimizer) -> Settings:
    """Of an optimizer of `gm.optim`; what a schedule gives is left out, and AdamW told as PyTorch's Adam."""
    groups = ({}, *(group.arguments for group in optimizer.groups))
    found = settings_of({**optimizer.arguments, **own} for own in groups)
    name = optimizer.rule.name
    if name == "AdamW":
        name, found["decoupled_weight_decay"] = "Adam", frozenset({True})
    return {"optimizer": frozenset({name}), **found}


def _kind(optimizer: torch.optim.Optimizer) -> str:
    """The class of `torch.optim` that it is or is derived from; AdamW is an Adam of another setting."""
    names = [each.__name__ for each in type(optimizer).__mro__ if each.__module__.startswith("torch.optim.")]
    return "Adam" if "Adam" in names else next(iter(names), type(optimizer).__name__)


class Kept(NamedTuple):
    """An optimizer's state, and the gradients that it was given last."""

    inner: Any
    gradients: Any


class KeepsGradients:
    """A transformation that does what another does, and keeps what it is given.

    Args:
      inner: the other.
    """

    def __init__(self, inner: Any):
        self.inner = inner

    def init(self, params: Any) -> Kept:
        return Kept(self.inner.init(params), jax.tree.map(jnp.zeros_like, params))

    def update(self, gradients: Any, state: Kept, params: Any = None, **extra: Any) -> tuple[Any, Kept]:
        updates, inner = self.inner.update(gradients, state.inner, params, **extra)
        return updates, Kept(inner, gradients)
