"""One step after the other of a script, and what it is left with: PyTorch's here, the port's in `port_runners`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.modules.module import register_module_module_registration_hook
from torch.optim.swa_utils import AveragedModel

from .clipping import SeenNorms
from .draws import torch_sources, torch_streams
from .left import Left, of_reference
from .narrow import SeenDtypes
from .record import Training
from .taken import Gradients, Settings, TorchGradients
from .torch_steps import Kind


class Runner:
    def __call__(self, batch: Any) -> float:
        raise NotImplementedError

    def evaluated(self) -> Any:
        """The module after the last step, in evaluation mode."""
        raise NotImplementedError

    def left(self) -> Left:
        """Without scores."""
        raise NotImplementedError

    def gradients(self) -> Gradients:
        """That the optimizers took in the last step."""
        raise NotImplementedError

    def rates(self) -> tuple[float, ...]:
        """Learning rates of the last step, by group; empty where they are not known."""
        raise NotImplementedError

    def settings(self) -> Settings:
        """Of the optimizer of the last step, by name; empty where they are not known."""
        return {}

    def draws(self) -> str:
        """What drew random numbers in the steps so far; empty where nothing did."""
        raise NotImplementedError

    def warning(self) -> str:
        """What a reader should know of the steps, where the scripts agree; empty where nothing."""
        raise NotImplementedError

    def narrow_dtypes(self) -> set[str]:
        """Narrower ones than float32 in which the first step ran, where that is known."""
        return set()


class TorchRunner(Runner):
    """Of PyTorch's script.

    Args:
      training: whose script it is.
      module: that it trains.
      kind: of its step.
      watched: whether it is looked whether steps draw random numbers, and whether they clip.
      seen: whether it is looked which dtypes the first step computes in.
      noted: whether the gradients that its optimizers take are kept.
    """

    def __init__(
        self,
        training: Training,
        module: torch.nn.Module,
        kind: Kind,
        *,
        watched: bool,
        seen: bool = False,
        noted: bool = False,
    ):
        self._taken = TorchGradients(module) if noted else None
        self._module, self._watched, self._drew = module, watched, False
        self._seen, self._dtypes = seen, SeenDtypes()
        self._norms = SeenNorms()
        self._averages: list[AveragedModel] = []
        hook = register_module_module_registration_hook(self._note_average)
        try:
            self._step = training.reference_step(module, kind)
        finally:
            hook.remove()

    def __call__(self, batch: Any) -> float:
        with nullcontext() if self._taken is None else self._taken.noted():
            return self._stepped(batch)

    def _stepped(self, batch: Any) -> float:
        if self._seen:
            self._seen = False
            with self._dtypes:
                return float(self._step(batch))
        if not self._watched:
            return float(self._step(batch))
        before = () if self._drew else torch_streams()
        with self._norms:
            loss = float(self._step(batch))
        self._drew = self._drew or torch_streams() != before
        return loss

    def warning(self) -> str:
        return self._norms.warning

    def evaluated(self) -> torch.nn.Module:
        return self._module.eval()

    def left(self) -> Left:
        return of_reference(self._module, self._averages)

    def gradients(self) -> Gradients:
        return Gradients() if self._taken is None else self._taken.last()

    def rates(self) -> tuple[float, ...]:
        return () if self._taken is None else self._taken.rates

    def settings(self) -> Settings:
        return {} if self._taken is None else self._taken.settings

    def draws(self) -> str:
        return torch_sources(self._module) if self._drew else ""

    def narrow_dtypes(self) -> set[str]:
        return self._dtypes.narrow

    def _note_average(self, parent: torch.nn.Module, name: str, inner: torch.nn.Module | None) -> None:
        """An average is a module that holds a copy of the model; the script keeps it to itself."""
        if isinstance(parent, AveragedModel) and name == "module":
            self._averages.append(parent)
