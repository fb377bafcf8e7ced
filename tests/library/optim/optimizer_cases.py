"""PyTorch's own configurations of its optimizers (`optim_db`), stepped on both sides over random problems."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.testing._internal.common_optimizers import optim_db

import graphmode as gm

REFUSED = {"LBFGS": gm.optim.lbfgs, "SparseAdam": gm.optim.sparse_adam}
STEPS = 50
SHAPES = {"weight": (5, 7), "tall.weight": (9, 4), "bias": (7,), "scale": (), "kernel": (4, 3, 3, 2)}


@dataclass(frozen=True)
class Configuration:
    """One of the 91 of torch 2.13."""

    optimizer: str
    description: str
    arguments: dict[str, Any] = field(hash=False)

    @property
    def id(self) -> str:
        return f"{self.optimizer}: {self.description}"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {k: v for k, v in SHAPES.items() if len(v) == 2} if self.optimizer == "Muon" else SHAPES

    def ours(self, **more: Any) -> gm.optim.Optimizer:
        arguments = {k: float(v) if isinstance(v, torch.Tensor) else v for k, v in self.arguments.items()}
        return getattr(gm.optim, self.optimizer.lower())(**arguments, **more)

    def theirs(self, parameters: Any) -> torch.optim.Optimizer:
        return getattr(torch.optim, self.optimizer)(parameters, **copy.deepcopy(self.arguments))


def configurations() -> list[Configuration]:
    return [
        Configuration(info.optim_cls.__name__, given.desc, given.kwargs)
        for info in optim_db
        for given in info.optim_inputs_func(device="cpu")
    ]


@contextmanager
def in_double() -> Iterator[None]:
    """float64 on both sides; PyTorch keeps the numbers of steps and their products in its default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with jax.enable_x64(True):
            yield
    finally:
        torch.set_default_dtype(before)


class Problem:
    """`|A x - b|**2 / 2 + a cubic` for each parameter: gradients that depend on where the parameters have gone."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], seed: int):
        rng = np.random.default_rng(seed)
        self.start = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
        self.scale = {name: rng.uniform(0.1, 2.0, shape) for name, shape in shapes.items()}
        self.target = {name: rng.standard_normal(shape) for name, shape in shapes.items()}

    def gradients(self, parameters: dict[str, Any], noise: dict[str, Any]) -> dict[str, Any]:
        """In either framework."""
        return {
            name: (p - self._like(p, self.target[name])) * self._like(p, self.scale[name])
            + 0.01 * p * p * p
            + self._like(p, noise[name])
            for name, p in parameters.items()
        }

    def noise(self, step: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng((7, step))
        return {name: 0.1 * rng.standard_normal(value.shape) for name, value in self.start.items()}

    @staticmethod
    def _like(p: Any, value: np.ndarray) -> Any:
        return torch.as_tensor(value, dtype=p.dtype) if isinstance(p, torch.Tensor) else jnp.asarray(value, p.dtype)


@dataclass
class Trajectory:
    """After all steps: parameters, and what the optimizer keeps for each, as float64."""

    parameters: dict[str, np.ndarray]
    state: dict[str, dict[str, np.ndarray]]


def in_torch(configuration: Configuration, problem: Problem, dtype: torch.dtype, steps: int = STEPS) -> Trajectory:
    given = {name: torch.nn.Parameter(torch.tensor(value, dtype=dtype)) for name, value in problem.start.items()}
    optimizer = configuration.theirs(list(given.values()))
    for step in range(steps):
        with torch.no_grad():
            for name, gradient in problem.gradients(given, problem.noise(step)).items():
                given[name].grad = gradient.to(dtype)
        optimizer.step()
    state: dict[str, dict[str, np.ndarray]] = {}
    for name, parameter in given.items():
        for key, value in optimizer.state[parameter].items():
            if key != "step" and value is not None:
                state.setdefault(key, {})[name] = _double(value)
    return Trajectory({name: _double(p) for name, p in given.items()}, state)


def in_jax(configuration: Configuration, problem: Problem, dtype: str, steps: int = STEPS) -> Trajectory:
    tx = configuration.ours()

    @jax.jit
    def step(parameters: Any, state: Any, noise: Any) -> tuple[Any, Any]:
        gradients = problem.gradients(parameters, noise)
        updates, state = tx.update({k: g.astype(dtype) for k, g in gradients.items()}, state, parameters)
        return {name: p + updates[name] for name, p in parameters.items()}, state

    parameters = {name: jnp.asarray(value, dtype) for name, value in problem.start.items()}
    state = tx.init(parameters)
    for number in range(steps):
        noise = {name: jnp.asarray(value, dtype) for name, value in problem.noise(number).items()}
        parameters, state = step(parameters, state, noise)
    slots = {key: {name: np.asarray(v, np.float64) for name, v in of.items()} for key, of in state.slots.items()}
    return Trajectory({name: np.asarray(p, np.float64) for name, p in parameters.items()}, slots)


def largest_error(ours: Trajectory, theirs: Trajectory) -> float:
    """Over parameters and state, of each array's scale."""
    assert ours.state.keys() == theirs.state.keys(), (ours.state.keys(), theirs.state.keys())
    worst = 0.0
    for mine, reference in [
        (ours.parameters, theirs.parameters),
        *((ours.state[key], theirs.state[key]) for key in theirs.state),
    ]:
        assert mine.keys() == reference.keys()
        for name, value in reference.items():
            scale = max(float(np.max(np.abs(value))), 1e-30)
            error = float(np.max(np.abs(mine[name] - value))) / scale
            worst = max(worst, error if np.isfinite(error) else np.inf)
    return worst


def _double(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy().copy()
