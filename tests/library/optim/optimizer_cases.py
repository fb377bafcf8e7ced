"""PyTorch's own configurations of its optimizers (`optim_db`), stepped on both sides over random problems."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
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
SHAPES = {"weight": (8, 12), "tall.weight": (16, 6), "bias": (64,), "scale": (), "kernel": (4, 3, 3, 2)}

Arrays = Mapping[str, Any]


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
        """All of them for Adafactor; where each element is stepped by itself one array and one scalar tell as much."""
        if self.optimizer == "Muon":
            return {name: shape for name, shape in SHAPES.items() if len(shape) == 2}
        return SHAPES if self.optimizer == "Adafactor" else {name: SHAPES[name] for name in ("weight", "scale")}

    def ours(self, **more: Any) -> gm.optim.Optimizer:
        arguments = {k: float(v) if isinstance(v, torch.Tensor) else v for k, v in self.arguments.items()}
        return getattr(gm.optim, self.optimizer.lower())(**arguments, **more)

    def theirs(self, parameters: Any) -> torch.optim.Optimizer:
        return getattr(torch.optim, self.optimizer)(parameters, **copy.deepcopy(self.arguments))


@functools.cache
def configurations() -> tuple[Configuration, ...]:
    return tuple(
        Configuration(info.optim_cls.__name__, given.desc, given.kwargs)
        for info in optim_db
        for given in info.optim_inputs_func(device="cpu")
    )


def stepped() -> tuple[Configuration, ...]:
    return tuple(c for c in configurations() if c.optimizer not in REFUSED)


def of(optimizer: str) -> tuple[Configuration, ...]:
    return tuple(c for c in configurations() if c.optimizer == optimizer)


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

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], seed: int, steps: int = STEPS):
        rng = np.random.default_rng(seed)
        self.start = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
        self.fixed = {
            name: (rng.standard_normal(shape), rng.uniform(0.1, 2.0, shape)) for name, shape in shapes.items()
        }
        self.each = {name: 0.1 * rng.standard_normal((steps, *shape)) for name, shape in shapes.items()}

    @staticmethod
    def gradient(p: Any, fixed: Any, noise: Any) -> Any:
        """In either framework."""
        target, scale = fixed
        return (p - target) * scale + 0.01 * p * p * p + noise


class GivenGradients:
    """Given gradients, of several decades of sizes; parameters start at zero, which hides no rounding of theirs."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], seed: int, steps: int = 20):
        rng = np.random.default_rng(seed)
        self.start = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.fixed: dict[str, Any] = dict.fromkeys(shapes, ())
        self.each = {
            name: (10 ** rng.uniform(-4, 2, shape) * rng.standard_normal((steps, *shape))).astype(np.float32)
            for name, shape in shapes.items()
        }

    @staticmethod
    def gradient(p: Any, fixed: Any, given: Any) -> Any:
        return given


@dataclass
class Trajectory:
    """After all steps: parameters and what the optimizer keeps for each, as float64; its scalars after every step."""

    parameters: dict[str, np.ndarray]
    state: dict[str, dict[str, np.ndarray]]


Kept = Mapping[str, Mapping[str, np.ndarray]]  # by slot and parameter


def in_torch(
    configuration: Configuration, problem: Any, dtype: torch.dtype, kept: Kept | None = None, step: int = 0
) -> Trajectory:
    """All steps of a problem; where `kept` is given, from that state at that step."""
    given = {name: torch.nn.Parameter(torch.tensor(value, dtype=dtype)) for name, value in problem.start.items()}
    fixed = {name: tuple(torch.tensor(a, dtype=dtype) for a in of) for name, of in problem.fixed.items()}
    optimizer = configuration.theirs(list(given.values()))
    if kept is not None:
        for name, parameter in given.items():
            of = {key: torch.tensor(of[name], dtype=dtype) for key, of in kept.items() if name in of}
            counted = {} if configuration.ours().rule.counts is False else {"step": torch.tensor(float(step))}
            optimizer.state[parameter] = counted | of
    scalars: dict[str, dict[str, list[np.ndarray]]] = {}
    for number in range(len(next(iter(problem.each.values())))):
        with torch.no_grad():
            for name, p in given.items():
                noise = torch.tensor(problem.each[name][number], dtype=dtype)
                p.grad = problem.gradient(p, fixed[name], noise).to(dtype)
        optimizer.step()
        for name, p in given.items():
            for key, value in _held(optimizer, p).items():
                if value.shape == () and p.shape != ():
                    scalars.setdefault(key, {}).setdefault(name, []).append(_double(value))
    state: dict[str, dict[str, np.ndarray]] = {}
    for name, p in given.items():
        for key, value in _held(optimizer, p).items():
            each = scalars.get(key, {}).get(name)
            state.setdefault(key, {})[name] = _double(value) if each is None else np.stack(each)
    return Trajectory({name: _double(p) for name, p in given.items()}, state)


def in_jax(
    optimizer: str, problem: Any, dtype: str, kept: Sequence[Kept] | None = None, step: int = 0
) -> list[Trajectory]:
    """All configurations of an optimizer over a problem, in one graph."""
    start, fixed, each = (
        jax.tree.map(lambda a: jnp.asarray(a, dtype), tree) for tree in (problem.start, problem.fixed, problem.each)
    )
    states = [configuration.ours().init(start) for configuration in of(optimizer)]
    if kept is not None:
        states = [
            state._replace(
                step=jnp.full_like(state.step, step),
                slots=jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), dict(one), state.slots),
            )
            for state, one in zip(states, kept, strict=True)
        ]
    return [
        Trajectory(*({k: jax.tree.map(_wide, v) for k, v in tree.items()} for tree in one))
        for one in _compiled(optimizer, type(problem).gradient, dtype)(start, fixed, each, states)
    ]


@functools.cache
def _compiled(optimizer: str, gradient: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    rules = [configuration.ours() for configuration in of(optimizer)]

    def run(start: Arrays, fixed: Arrays, each: Arrays, states: Any) -> list[Any]:
        def body(carry: Any, noise: Arrays) -> Any:
            after, scalars = [], []
            for tx, (parameters, state) in zip(rules, carry, strict=True):
                gradients = {k: gradient(p, fixed[k], noise[k]).astype(dtype) for k, p in parameters.items()}
                updates, state = tx.update(gradients, state, parameters)
                after.append(({k: p + updates[k] for k, p in parameters.items()}, state))
                scalars.append(
                    {key: {k: v for k, v in of.items() if v.shape == () and start[k].shape != ()}
                     for key, of in state.slots.items()}
                )  # fmt: skip
            return after, scalars

        ended, scalars = jax.lax.scan(body, [(start, state) for state in states], each)
        return [
            (parameters, {key: {**of, **every[key]} for key, of in state.slots.items()})
            for (parameters, state), every in zip(ended, scalars, strict=True)
        ]

    return jax.jit(run)


def largest_errors(ours: Trajectory, theirs: Trajectory) -> tuple[float, float]:
    """Over the parameters and over the state, of each array's scale."""
    assert ours.state.keys() == theirs.state.keys(), (ours.state.keys(), theirs.state.keys())
    state = [_largest_error(ours.state[key], theirs.state[key]) for key in theirs.state]
    return _largest_error(ours.parameters, theirs.parameters), max(state, default=0.0)


def _largest_error(mine: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> float:
    assert mine.keys() == theirs.keys()
    worst = 0.0
    for name, value in theirs.items():
        scale = max(float(np.max(np.abs(value))), 1e-30)
        error = float(np.max(np.abs(mine[name] - value))) / scale
        worst = max(worst, error if np.isfinite(error) else np.inf)
    return worst


def _held(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    return {key: value for key, value in optimizer.state[parameter].items() if key != "step" and value is not None}


def _double(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy().copy()


def _wide(array: jax.Array) -> np.ndarray:
    return np.asarray(array, np.float64)
