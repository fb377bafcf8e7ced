"""What the optimizers of both scripts are given in a step: gradients after all that is done to them, and rates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from torch.optim.optimizer import register_optimizer_step_pre_hook

from graphmode.optim import Optimizer
from graphmode.weights import WeightRule

from ..trees import to_arrays
from .left import as_gradients, without_parameters

Named = Mapping[str, np.ndarray]
Settings = dict[str, frozenset[Any]]


@dataclass(frozen=True)
class Gradients:
    """Those that the optimizers of one side took in a step, by PyTorch's names.

    Attributes:
      taken: None where they are not known, as where an optimizer steps twice in one step of the script.
      accumulated: as the backward passes left them, before clipping or what else a script does to them; None where
        that is not known.
      further: whether what takes them may clip them itself, as a chain of optax's does.
      order: which parameters each optimizer moved, in the order of their steps; empty where that is not known.
    """

    taken: Named | None = None
    accumulated: Named | None = None
    further: bool = False
    order: tuple[frozenset[str], ...] = ()

    def of(self, names: Collection[str]) -> Gradients:
        """Those of these parameters."""

        def part(named: Named | None) -> Named | None:
            return None if named is None else {name: array for name, array in named.items() if name in names}

        return replace(self, taken=part(self.taken), accumulated=part(self.accumulated))


class TorchGradients:
    """Notes what PyTorch's optimizers take of a module's parameters.

    Attributes:
      rates: of its groups.
      settings: of all groups, as `settings_of` gives them.
    """

    def __init__(self, module: torch.nn.Module):
        self.settings: Settings = {}
        self.rates: tuple[float, ...] = ()
        self._parameters = dict(module.named_parameters())
        self._names = {id(parameter): name for name, parameter in self._parameters.items()}
        self._taken: dict[str, np.ndarray] | None = None
        self._order: list[frozenset[str]] = []
        self._accumulated: dict[str, np.ndarray] = {}
        self._newest: dict[str, torch.Tensor] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        self._taken, self._accumulated, self.rates, self.settings = {}, {}, (), {}
        self._newest.clear()
        self._order.clear()
        handles: list[Any] = [register_optimizer_step_pre_hook(self._note)]
        for name, parameter in self._parameters.items():
            if parameter.requires_grad:
                handles.append(parameter.register_post_accumulate_grad_hook(partial(self._accumulate, name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def last(self) -> Gradients:
        """Of the last step of the script."""
        whole = self._taken is not None and self._taken.keys() == self._accumulated.keys()
        return Gradients(self._taken, self._accumulated if whole else None, order=tuple(self._order))

    def _accumulate(self, name: str, parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        self._newest[name] = parameter.grad.detach().clone()

    def _note(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.rates += tuple(float(group["lr"]) for group in optimizer.param_groups if "lr" in group)
        for name, values in settings_of(optimizer.param_groups).items():
            self.settings[name] = self.settings.get(name, frozenset()) | values
        self.settings["optimizer"] = self.settings.get("optimizer", frozenset()) | {_kind(optimizer)}
        given = [p for group in optimizer.param_groups for p in group["params"]]
        found = {
            self._names[id(p)]: p.grad.detach().clone() for p in given if id(p) in self._names and p.grad is not None
        }
        self._order.append(frozenset(found))
        if self._taken is None or found.keys() & self._taken.keys():
            self._taken = None
        else:
            self._taken |= to_arrays(found)
            self._accumulated |= to_arrays({name: self._newest[name] for name in found if name in self._newest})


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


class NnxGradients:
    """Notes what the `nnx.Optimizer`s take that a script makes for a module, or for modules inside of it.

    Args:
      model: the module that the script trains.
    """

    def __init__(self, model: nnx.Module):
        self._model = model
        self._made: list[tuple[nnx.Optimizer[Any], tuple[Any, ...] | None]] = []
        self._stepped: list[int] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Optimizers that are made in this block keep the gradients that they are given."""
        original = nnx.Optimizer.__init__

        def init(optimizer: Any, model: Any, tx: Any, **kwargs: Any) -> None:
            original(optimizer, model, KeepsGradients(tx), **kwargs)
            places = (path for path, node in nnx.iter_graph(self._model) if node is model)
            self._made.append((optimizer, next(places, None)))

        nnx.Optimizer.__init__ = init  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            nnx.Optimizer.__init__ = original  # type: ignore[method-assign]

    def stepped(self, step: Callable[[Any], Any], batch: Any) -> Any:
        """What the script's step gives; how often each optimizer steps in it is noted."""
        before = self._counts()
        loss = step(batch)
        self._stepped = [now - was for now, was in zip(self._counts(), before, strict=True)]
        return loss

    def last(self, rules: Sequence[WeightRule]) -> Gradients:
        """Of the last step; not known where no `nnx.Optimizer` was made, or one stepped more than once."""
        stepped = [pair for pair, count in zip(self._made, self._stepped, strict=True) if count]
        if not self._made or max(self._stepped) > 1 or any(path is None for _, path in stepped):
            return Gradients()
        graphdef, state = nnx.split(self._model)
        state = without_parameters(state)
        places = dict(nnx.to_flat_state(state))
        for optimizer, path in stepped:
            for own, gradient in nnx.to_flat_state(optimizer.opt_state.gradients):
                places[*(path or ()), *own].set_value(gradient.get_raw_value())
        named = as_gradients(nnx.merge(graphdef, state), rules)
        return Gradients(named, further=any(not isinstance(each.tx.inner, Optimizer) for each, _ in stepped))

    def settings(self) -> Settings:
        """Of the one optimizer, where it is of `gm.optim`."""
        inner = [optimizer.tx.inner for optimizer, _ in self._made]
        return settings_of_port(inner[0]) if len(inner) == 1 and isinstance(inner[0], Optimizer) else {}

    def _counts(self) -> list[int]:
        return [int(optimizer.step[...]) for optimizer, _ in self._made]
