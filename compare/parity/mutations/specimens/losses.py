"""A classifier whose losses are modules of the model: cross-entropy with all its options, and others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

import graphmode as gm
import graphmode.nn.functional as F

from ....case import Case

CLASSES, BATCH = 5, 11
WEIGHT = (0.5, 1.5, 1.0, 2.0, 0.7)


class Reference(torch.nn.Module):
    """`[B, 6]`, classes `[B]`, values `[B, 3]` -> four losses."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = torch.nn.Linear(6, 9)
        self.logits, self.values = torch.nn.Linear(9, CLASSES), torch.nn.Linear(9, 3)
        self.weighted = torch.nn.CrossEntropyLoss(weight=torch.tensor(WEIGHT))
        self.smooth = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
        self.huber = torch.nn.HuberLoss(delta=0.5)
        self.square = torch.nn.MSELoss(reduction="sum")

    def forward(self, x: torch.Tensor, classes: torch.Tensor, wanted: torch.Tensor) -> dict[str, torch.Tensor]:
        x = torch.tanh(self.hidden(x))
        logits, values = self.logits(x), self.values(x)
        return {
            "weighted": self.weighted(logits, classes),
            "smooth": self.smooth(logits, classes),
            "huber": self.huber(values, wanted),
            "square": self.square(values, wanted),
            "spread": values.var(0),
        }


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden = gm.nn.Linear(6, 9, rngs=rngs)
        self.logits, self.values = gm.nn.Linear(9, CLASSES, rngs=rngs), gm.nn.Linear(9, 3, rngs=rngs)
        self.weighted = gm.nn.CrossEntropyLoss(weight=jnp.array(WEIGHT))
        self.smooth = gm.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
        self.huber = gm.nn.HuberLoss(delta=0.5)
        self.square = gm.nn.MSELoss(reduction="sum")

    def activate(self, x: jax.Array) -> jax.Array:
        return F.tanh(x)

    def spread(self, values: jax.Array) -> jax.Array:
        return jnp.var(values, 0, ddof=1)

    def __call__(self, x: jax.Array, classes: jax.Array, wanted: jax.Array) -> dict[str, jax.Array]:
        x = self.activate(self.hidden(x))
        logits, values = self.logits(x), self.values(x)
        return {
            "weighted": self.weighted(logits, classes),
            "smooth": self.smooth(logits, classes),
            "huber": self.huber(values, wanted),
            "square": self.square(values, wanted),
            "spread": self.spread(values),
        }


def inputs(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    classes = rng.permutation(np.arange(BATCH) % CLASSES)
    return rng.standard_normal((BATCH, 6)), classes, rng.standard_normal((BATCH, 3))


CASE = Case(name="losses", summary=__doc__.splitlines()[0], reference=Reference, model=Port, inputs=inputs)
