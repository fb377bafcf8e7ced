"""`Training`: a training script in graph mode and its PyTorch twin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

import graphmode as gm
from graphmode.training import TrainStep
from graphmode.weights import WeightRule

from ..case import Case, CaseError, Inputs, identity
from ..scalar_loss import scalar_loss
from ..trees import is_floating
from .torch_steps import Kind, TorchStep, as_kind

COUNT = 200


@dataclass(frozen=True)
class Training:
    """What `graphmode train` runs: one step of each script, from the same weights over the same batches.

    Attributes:
      name: of the report.
      summary: what it shows, in one line.
      reference: gives the `torch.nn.Module`, freshly initialised.
      model: takes `nnx.Rngs`, gives the port.
      reference_step: of the PyTorch script: `(module, kind) -> step`, where `step(batch)` trains on tensors and gives
        the loss before it, and `kind` is `"eager"`, `"compile"` or `"cudagraph"`. A
        `torch.optim.swa_utils.AveragedModel` that it makes is compared with the port's average.
      model_step: of the JAX script: `module -> gm.train_step(...)`, or `module -> step` with a `step(batch)` written by
        hand, which trains the module in place, as `nnx.Optimizer.update` does, and gives the loss before it.
      batches: `(generator, count)` gives so many batches: pytrees of numpy arrays in the reference's layout, floating
        ones in float32.
      count: of steps.
      weights: rules for `graphmode.weights`.
      to_model: takes a batch to the port's layout.
      scores: a pair, of the reference's module and of the port's, each in evaluation mode after the last step, to
        numbers by name: an accuracy. None for none.
      case: that it is made of, as `graphmode check` takes it; empty for a script of its own.

    Raises:
      CaseError: where a field has the wrong type.
    """

    name: str
    summary: str
    reference: Callable[[], torch.nn.Module]
    model: Callable[[nnx.Rngs], nnx.Module]
    reference_step: Callable[[torch.nn.Module, Kind], TorchStep]
    model_step: Callable[[nnx.Module], TrainStep | Callable[[Any], Any]]
    batches: Callable[[np.random.Generator, int], Iterable[Any]]
    count: int = COUNT
    weights: Sequence[WeightRule] = ()
    to_model: Callable[[Any], Any] = identity
    scores: tuple[Callable[[Any], Mapping[str, float]], Callable[[Any], Mapping[str, float]]] | None = None
    case: str = ""

    def __post_init__(self) -> None:
        wrong = [
            f"{field} is {type(getattr(self, field)).__name__}; give a callable"
            for field in ("reference", "model", "reference_step", "model_step", "batches", "to_model")
            if not callable(getattr(self, field))
        ]
        if not isinstance(self.count, int) or self.count < 1:
            wrong.append(f"count is {self.count!r}; give an integer of at least 1")
        if self.scores is not None and not (len(self.scores) == 2 and all(map(callable, self.scores))):
            wrong.append("scores is no pair of functions, of the reference's module and of the port's")
        if wrong:
            raise CaseError(f"training {self.name!r}: {'; '.join(wrong)}")


def training_of(case: Case, location: str = "") -> Training:
    """A case with an optimizer and a loss, trained on its random inputs.

    Args:
      case: of any file.
      location: where it is, as `graphmode check` takes it.

    Raises:
      CaseError: where it has none.
    """
    if case.optimizer is None or case.loss is None:
        lacks = " and ".join(n for n, v in {"optimizer": case.optimizer, "loss": case.loss}.items() if v is None)
        raise CaseError(f"case {case.name!r} has no {lacks}, and training needs both; give them, or a Training")
    theirs, ours = case.loss
    make, transformation = case.optimizer

    def reference_step(module: torch.nn.Module, kind: Kind) -> TorchStep:
        optimizer = make([p for p in module.parameters() if p.requires_grad])

        def step(batch: Inputs) -> torch.Tensor:
            optimizer.zero_grad()
            outputs = module(**batch) if isinstance(batch, dict) else module(*batch)
            loss = scalar_loss(theirs(outputs), "torch")
            loss.backward()
            optimizer.step()
            return loss.detach()

        return as_kind(step, kind, module, optimizer)

    def loss(model: Any, batch: Inputs) -> jax.Array:
        return scalar_loss(ours(model(**batch) if isinstance(batch, dict) else model(*batch)), "jax")

    return Training(
        name=case.name,
        summary=case.summary,
        reference=next(iter(case.references.values())),
        model=next(iter(case.models.values())),
        reference_step=reference_step,
        model_step=lambda model: gm.train_step(model, loss, transformation),
        batches=lambda rng, count: (_float32(case.inputs(rng)) for _ in range(count)),
        weights=case.weights,
        to_model=case.to_model,
        case=location,
    )


def _float32(inputs: Inputs) -> Inputs:
    return jax.tree.map(lambda x: np.asarray(x, np.float32) if is_floating(x) else x, inputs)


Framework = Literal["torch", "jax"]


def in_dtype(batch: Any, dtype: str, framework: Framework, device: str) -> Any:
    """A batch's floating arrays in a dtype, on a device of one framework."""

    def one(x: np.ndarray) -> Any:
        if framework == "torch":
            tensor = torch.from_numpy(np.ascontiguousarray(x)).to("cuda" if device == "gpu" else "cpu")
            return tensor.to(getattr(torch, dtype)) if is_floating(x) else tensor
        return jnp.asarray(x, dtype) if is_floating(x) else jnp.asarray(x)

    return jax.tree.map(one, batch)
