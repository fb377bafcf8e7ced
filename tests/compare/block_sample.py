"""A small model of two kinds of blocks with every sort of wiring, and ports of it that are wrong in one place each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from graphmode.compare import Case

from graphmode import nn

WIDTH, CHANNELS = 12, 5


class TorchMixer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.inner = torch.nn.Linear(WIDTH, WIDTH)
        self.outer = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.outer(torch.nn.functional.gelu(self.inner(self.norm(x)))) / 2


class TorchModel(torch.nn.Module):
    """`[B, 3, 7, 6]` -> logits `[B, 4]`."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1)
        self.bn = torch.nn.BatchNorm2d(CHANNELS)
        self.relu = torch.nn.ReLU(inplace=True)
        self.project = torch.nn.Linear(CHANNELS * 12, WIDTH)
        self.mixers = torch.nn.ModuleList([TorchMixer(), TorchMixer()])
        self.head = torch.nn.Linear(WIDTH, 4)

    def forward(self, x):
        h = self.relu(self.bn(self.conv(x)))
        h = self.project(h.flatten(1))
        for mixer in self.mixers:
            h = self.relu(mixer(h))
        return self.head(torch.softmax(h, -1))


class Mixer(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.norm = nn.LayerNorm(WIDTH)
        self.inner = nn.Linear(WIDTH, WIDTH, rngs=rngs)
        self.outer = nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return x + self.outer(jax.nn.gelu(self.inner(self.norm(x)), approximate=False)) / 2


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.conv = nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1, rngs=rngs)
        self.bn = nn.BatchNorm2d(CHANNELS)
        self.relu = nn.ReLU()
        self.project = nn.Linear(CHANNELS * 12, WIDTH, rngs=rngs)
        self.mixers = nnx.List([Mixer(rngs), Mixer(rngs)])
        self.head = nn.Linear(WIDTH, 4, rngs=rngs)

    def __call__(self, x):
        h = self.relu(self.bn(self.conv(x)))
        h = self.project(self.flat(h))
        for mixer in self.mixers:
            h = self.relu(mixer(h))
        return self.head(self.softmax(h))

    def flat(self, h):
        return jnp.moveaxis(h, -1, 1).reshape(h.shape[0], -1)

    def softmax(self, h):
        return jax.nn.softmax(h, axis=-1)


def case(plant: Callable[[Model], Any] = lambda model: None, **settings: Any) -> Case:
    """A case whose port was changed by `plant`."""

    def make(rngs: nnx.Rngs) -> Model:
        model = Model(rngs)
        plant(model)
        return model

    def inputs(rng: np.random.Generator) -> tuple[np.ndarray]:
        return (rng.standard_normal((4, 3, 7, 6)),)

    def to_model(given: tuple[Any]) -> tuple[Any]:
        return (jnp.moveaxis(given[0], 1, -1),)

    given = {"reference": TorchModel, "model": make, "inputs": inputs, "to_model": to_model, **settings}
    return Case(name="blocks", summary="a test", **given)


def becomes(path: str, **members: Any) -> Callable[[Model], None]:
    """A plant: the module at `path` is of a subclass with these members."""

    def plant(model: Model) -> None:
        module = at(model, path)
        module.__class__ = type(f"Wrong{type(module).__name__}", (type(module),), members)

    return plant


def sets(path: str, **values: Any) -> Callable[[Model], None]:
    """A plant: attributes of the module at `path` have these values."""

    def plant(model: Model) -> None:
        for name, value in values.items():
            setattr(at(model, path), name, value)

    return plant


def at(model: Any, path: str) -> Any:
    for part in filter(None, path.split(".")):
        model = model[int(part)] if part.isdigit() else getattr(model, part)
    return model
