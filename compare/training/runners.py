"""One step after the other of either script, and what it is left with."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
import torch
from flax import nnx
from torch.nn.modules.module import register_module_module_registration_hook
from torch.optim.swa_utils import AveragedModel

import graphmode as gm

from ..case import CaseError
from ..endless import broken_off, no_endless_loop
from .draws import jax_sources, jax_streams, torch_sources, torch_streams
from .left import Left, gradients_of_port, of_port, of_reference
from .narrow import SeenDtypes
from .record import Training
from .taken import KeepsGradients, Settings, TorchGradients, settings_of_port
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

    def gradients(self) -> Mapping[str, np.ndarray] | None:
        """That the optimizer took in the last step, by PyTorch's names; None where they are not known."""
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

    def narrow_dtypes(self) -> set[str]:
        """Narrower ones than float32 in which the first step ran, where that is known."""
        return set()


class TorchRunner(Runner):
    """Of PyTorch's script.

    Args:
      training: whose script it is.
      module: that it trains.
      kind: of its step.
      watched: whether it is looked whether steps draw random numbers.
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
        if not self._watched or self._drew:
            return float(self._step(batch))
        before = torch_streams()
        loss = float(self._step(batch))
        self._drew = torch_streams() != before
        return loss

    def evaluated(self) -> torch.nn.Module:
        return self._module.eval()

    def left(self) -> Left:
        return of_reference(self._module, self._averages)

    def gradients(self) -> Mapping[str, np.ndarray] | None:
        return None if self._taken is None else self._taken.named

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


class PortRunner(Runner):
    """Of the port's script.

    Args:
      training: whose script it is.
      model: with the reference's weights.
      dtype: that its floating variables get. In float64, which is not timed, loops that never end are broken off.
      noted: whether the gradients that its optimizer takes are kept, where that is of `gm.optim` and on one device:
        another may clip them itself.
    """

    def __init__(self, training: Training, model: nnx.Module, dtype: str, *, noted: bool = False):
        for _, variable in nnx.to_flat_state(nnx.state(model)):
            value = variable.get_raw_value()
            if jax.numpy.issubdtype(value.dtype, jax.numpy.floating):
                variable.set_value(value.astype(dtype))
        self._weights, self._guarded = training.weights, dtype == "float64"
        self.step = training.model_step(model)
        if not isinstance(self.step, gm.training.TrainStep):
            several = isinstance(self.step, tuple | list)
            held = f" of {len(self.step)}" if several else ""
            advice = "a loss of several, gm.training.Loss with `present`, and groups of the optimizer are one step"
            raise CaseError(
                f"training {training.name!r}: model_step gives a {type(self.step).__name__}{held}, and one "
                f"gm.train_step(...) was wanted{f'; {advice}' if several else ''}"
            )
        self._noted = noted and self.step.placement is None and isinstance(self.step.optimizer, gm.optim.Optimizer)
        if self._noted:
            self.step.optimizer = KeepsGradients(self.step.optimizer)
        self._rates: tuple[float, ...] = ()
        self._timed, self._norms = dtype != "float64", [0.0]
        self._state = self.step.init()
        self._streams = jax_streams(self._state)

    def __call__(self, batch: Any) -> float:
        if self._guarded:
            with broken_off(), no_endless_loop():
                return self._stepped(batch)
        return self._stepped(batch)

    def _stepped(self, batch: Any) -> float:
        self._state, metrics = self.step(self._state, batch)
        self._rates = (float(metrics["lr"]),) if "lr" in metrics else ()
        if not self._timed and "grad_norm" in metrics:
            self._norms.append(float(metrics["grad_norm"]))
        return float(metrics["loss"])

    def gradients(self) -> Mapping[str, np.ndarray] | None:
        if not self._noted:
            return None
        return gradients_of_port(self.step, self._state, self._state.optimizer.gradients, self._weights)

    def rates(self) -> tuple[float, ...]:
        return self._rates

    def never_clips(self) -> str:
        """What to say where no step came to the norm that it clips to; empty where one did, and where none is clipped.

        It is known in float64 alone, in which steps are not timed.
        """
        limit, largest = self.step.clip_norm, max(self._norms)
        if limit is None or self._timed or largest > limit:
            return ""
        return (
            f"No step clips: the largest norm of the gradients is {largest:.3g}, and clip_norm is {limit:g}. A port "
            "that clips otherwise, or not at all, would pass: give steps with larger gradients."
        )

    def settings(self) -> Settings:
        return settings_of_port(self.step.optimizer.inner) if self._noted else {}

    def evaluated(self) -> nnx.Module:
        return self.step.objective.evaluated(self._state.params, self._state.rest)

    def left(self) -> Left:
        return of_port(self.step, self._state, self._weights)

    def draws(self) -> str:
        return jax_sources(self._streams, jax_streams(self._state))
