"""A network with a loss, trained for a few steps by each of several optimizers; one of its layers is never called."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import torch
import torch.nn.functional as TF
from flax import nnx

import graphmode as gm
import graphmode.nn.functional as F

from ....case import Case

CLASSES, BATCH = 5, 12


class Reference(torch.nn.Module):
    """`[B, 6]`, classes `[B]` -> logits `[B, 5]`, and the classes again."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = torch.nn.Linear(6, 9)
        self.norm = torch.nn.BatchNorm1d(9)
        self.head = torch.nn.Linear(9, CLASSES)
        self.spare = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.head(torch.sigmoid(self.norm(self.hidden(x)))), classes


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden = gm.nn.Linear(6, 9, rngs=rngs)
        self.norm = gm.nn.BatchNorm1d(9)
        self.head = gm.nn.Linear(9, CLASSES, rngs=rngs)
        self.spare = gm.nn.Linear(4, 3, rngs=rngs)

    def activate(self, x: jax.Array) -> jax.Array:
        return F.sigmoid(x)

    def __call__(self, x: jax.Array, classes: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self.head(self.activate(self.norm(self.hidden(x)))), classes


class OfWhatHasGradients:
    """An optax transformation that leaves out the layer that is never called, as PyTorch does where `.grad` is None."""

    def __init__(self, optimizer: Any):
        self.optimizer = optimizer

    def init(self, params: Any) -> Any:
        return self.optimizer.init(params)

    def update(self, updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        present = {"spare": False} if isinstance(params, dict | nnx.State) else None
        return self.optimizer.update(updates, state, params, present=present)


def torch_loss(outputs: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    logits, classes = outputs
    return TF.cross_entropy(logits, classes, ignore_index=0)


def loss(outputs: tuple[jax.Array, jax.Array], *, ignore_index: int = 0, **options: Any) -> jax.Array:
    logits, classes = outputs
    return F.cross_entropy(logits, classes, ignore_index=ignore_index, **options)


def inputs(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return rng.standard_normal((BATCH, 6)), rng.permutation(np.arange(BATCH) % CLASSES)


def trained(name: str, make: Any, optimizer: Any) -> Case:
    return Case(
        name=name,
        summary=__doc__.splitlines()[0],
        reference=Reference,
        model=Port,
        inputs=inputs,
        loss=(torch_loss, loss),
        optimizer=(make, OfWhatHasGradients(optimizer)),
    )


SGD_ARGUMENTS: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.02}
NESTEROV_ARGUMENTS: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
ADAM_ARGUMENTS: dict[str, Any] = {"lr": 0.02, "weight_decay": 0.05, "eps": 1e-5}
RMSPROP_ARGUMENTS: dict[str, Any] = {"lr": 0.02, "alpha": 0.9, "eps": 1e-4, "momentum": 0.5}

SGD = trained("trained_sgd", lambda p: torch.optim.SGD(p, **SGD_ARGUMENTS), gm.optim.sgd(**SGD_ARGUMENTS))
NESTEROV = trained(
    "trained_nesterov", lambda p: torch.optim.SGD(p, **NESTEROV_ARGUMENTS), gm.optim.sgd(**NESTEROV_ARGUMENTS)
)
ADAM = trained("trained_adam", lambda p: torch.optim.Adam(p, **ADAM_ARGUMENTS), gm.optim.adam(**ADAM_ARGUMENTS))
ADAMW = trained("trained_adamw", lambda p: torch.optim.AdamW(p, **ADAM_ARGUMENTS), gm.optim.adamw(**ADAM_ARGUMENTS))
RMSPROP = trained(
    "trained_rmsprop",
    lambda p: torch.optim.RMSprop(p, **RMSPROP_ARGUMENTS),
    gm.optim.rmsprop(**RMSPROP_ARGUMENTS),
)
