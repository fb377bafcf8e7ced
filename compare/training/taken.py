"""What the optimizers of both scripts are given in a step: gradients after all that is done to them, and rates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..trees import to_arrays


class TorchGradients:
    """Notes what PyTorch's optimizers take of a module's parameters.

    Attributes:
      named: of the last step of the script; None where an optimizer stepped twice on one parameter.
      rates: of its groups.
    """

    def __init__(self, module: torch.nn.Module):
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        self.named: dict[str, np.ndarray] | None = None
        self.rates: tuple[float, ...] = ()

    @contextmanager
    def noted(self) -> Iterator[None]:
        self.named, self.rates = {}, ()
        handle = register_optimizer_step_pre_hook(self._note)
        try:
            yield
        finally:
            handle.remove()

    def _note(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.rates += tuple(float(group["lr"]) for group in optimizer.param_groups if "lr" in group)
        given = [p for group in optimizer.param_groups for p in group["params"]]
        found = {
            self._names[id(p)]: p.grad.detach().clone() for p in given if id(p) in self._names and p.grad is not None
        }
        if self.named is None or found.keys() & self.named.keys():
            self.named = None
        else:
            self.named |= to_arrays(found)


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
