"""Each configuration judged: *equal* to PyTorch in float64, in float32 as *precise*, early and late in a training."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from graphmode.compare.parity.yardstick import (
    EQUAL_TOLERANCE,
    PRECISE_RATIO,
    error_ratio,
    port_error,
    ratio_to,
    torch_error,
)

from .optimizer_cases import (
    STEPS,
    Configuration,
    GivenGradients,
    Problem,
    Trajectory,
    in_double,
    in_jax,
    in_torch,
    largest_errors,
    of,
)

SEEDS = (1, 2, 3)
LATE = 20_000


@dataclass(frozen=True)
class Verdict:
    """What came of one configuration.

    Attributes:
      configuration: the one judged.
      parameters, state: largest errors in float64 after `STEPS` steps, of each array's scale; the parameters' is None
        for Muon, whose steps are computed in bfloat16.
      ratio: our float32 error over PyTorch's own, both against float64, the worst of `ratios`. For Muon the truth
        iterates in float64.
      ratios: by what was judged: `"late exp_avg weight"`.
    """

    configuration: Configuration
    parameters: float | None
    state: float
    ratios: Mapping[str, float]

    @property
    def ratio(self) -> float:
        return max(self.ratios.values())

    @property
    def equal(self) -> bool:
        return max(self.parameters or 0.0, self.state) <= EQUAL_TOLERANCE

    @property
    def precise(self) -> bool:
        return self.ratio <= PRECISE_RATIO

    @property
    def agrees(self) -> bool:
        return self.equal and self.precise


def verdicts(optimizer: str, seeds: tuple[int, ...] = SEEDS) -> list[Verdict]:
    """Of all configurations of an optimizer, in the order of `optim_db`."""
    errors = float64_errors(optimizer, seeds)
    ratios = float32_ratios(optimizer)
    return [
        Verdict(configuration, *errors[configuration.id], ratios[configuration.id]) for configuration in of(optimizer)
    ]


@functools.cache
def float64_errors(optimizer: str, seeds: tuple[int, ...]) -> dict[str, tuple[float | None, float]]:
    """By configuration: of the parameters and of the state, the largest over the seeds."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in seeds:
        # Muon's bfloat16 makes parameters part within a few steps: gradients are given, and its state alone is told
        kind = GivenGradients if optimizer == "Muon" else Problem
        problem = kind(of(optimizer)[0].shapes, seed, STEPS)
        with in_double():
            for configuration, ours in zip(of(optimizer), in_jax(optimizer, problem, "float64"), strict=True):
                theirs = in_torch(configuration, problem, torch.float64)
                found.setdefault(configuration.id, []).append(largest_errors(ours, theirs))
    worst = {name: tuple(map(max, zip(*errors, strict=True))) for name, errors in found.items()}
    return {name: (None if optimizer == "Muon" else p, s) for name, (p, s) in worst.items()}


@functools.cache
def float32_ratios(optimizer: str) -> dict[str, dict[str, float]]:
    """By configuration and tensor, from the first step on and from step 20,000 on, over three draws."""
    draws = [GivenGradients(of(optimizer)[0].shapes, seed) for seed in SEEDS]
    found: dict[str, dict[str, float]] = {}
    for when in ("early", "late"):
        trajectories: dict[str, list[tuple[Trajectory, Trajectory, Trajectory]]] = {}
        for seed, draw in zip(SEEDS, draws, strict=True):
            kept = [late_state(c, draw, seed) for c in of(optimizer)] if when == "late" else None
            ours = in_jax(optimizer, draw, "float32", kept, LATE)
            for number, configuration in enumerate(of(optimizer)):
                given = None if kept is None else kept[number]
                theirs = in_torch(configuration, draw, torch.float32, given, LATE)
                with in_double(), newton_schulz_in_float64():
                    truth = in_torch(configuration, draw, torch.float64, given, LATE)
                trajectories.setdefault(configuration.id, []).append((ours[number], theirs, truth))
        for name, each in trajectories.items():
            found.setdefault(name, {}).update({f"{when} {what}": ratio for what, ratio in _ratios(each)})
    return found


def _ratios(draws: list[tuple[Trajectory, Trajectory, Trajectory]]) -> Iterator[tuple[str, float]]:
    _, _, truth = draws[0]
    for slot in ("parameters", *truth.state):
        for name in truth.parameters if slot == "parameters" else truth.state[slot]:
            arrays = [
                [(t.parameters if slot == "parameters" else t.state[slot])[name] for t in sides]
                for sides in zip(*draws, strict=True)
            ]
            if slot == "parameters" or truth.state[slot][name].shape == truth.parameters[name].shape:
                ratio = error_ratio(*arrays)
            else:  # a number after every step, or the sums of rows and columns: few, and judged all the same
                ratio = ratio_to(
                    port_error(arrays[0], arrays[2], kinked=False),
                    torch_error(arrays[1], arrays[2], dtype="float32", floor_scale=0.0, kinked=False),
                )
            if ratio is not None:
                yield f"{slot} {name}", ratio


def late_state(configuration: Configuration, draw: GivenGradients, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """What an optimizer could keep after 20,000 steps of gradients like these, as float32."""
    rng = np.random.default_rng((seed, LATE))
    h = {**configuration.ours().arguments}
    kept: dict[str, dict[str, np.ndarray]] = {}
    with torch.no_grad():
        parameters = {name: torch.nn.Parameter(torch.zeros(value.shape)) for name, value in draw.start.items()}
        optimizer = configuration.theirs(list(parameters.values()))
        for parameter in parameters.values():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    for name, parameter in parameters.items():
        size = np.sqrt(np.mean(np.square(draw.each[name], dtype=np.float64), 0))
        mean = size * rng.uniform(-0.5, 0.5, size.shape)
        square = np.square(size) * rng.uniform(0.5, 2.0, size.shape)
        values: dict[str, Any] = {
            **dict.fromkeys(("exp_avg", "grad_avg", "momentum_buffer", "prev"), mean),
            **dict.fromkeys(("exp_avg_sq", "square_avg", "variance"), square),
            "max_exp_avg_sq": 1.5 * square,
            "exp_inf": 3 * size,
            "sum": LATE * square,
            "acc_delta": np.square(rng.uniform(1e-3, 1e-1, size.shape)),
            "step_size": rng.uniform(1e-5, 1e-2, size.shape),
            "ax": np.zeros(size.shape),
            "mu_product": np.zeros(()),
        }
        if size.ndim > 1:
            values |= {"row_var": square.mean(-1, keepdims=True), "col_var": square.mean(-2, keepdims=True)}
        if configuration.optimizer == "ASGD":
            values["eta"] = np.asarray(h["lr"] / (1 + h["lambd"] * h["lr"] * LATE) ** h["alpha"])
            values["mu"] = np.asarray(1 / max(1, LATE - h["t0"]))
        for key in optimizer.state[parameter]:
            if key != "step" and optimizer.state[parameter][key] is not None:
                kept.setdefault(key, {})[name] = values[key].astype(np.float32)
    return kept


@contextmanager
def newton_schulz_in_float64() -> Iterator[None]:
    """Muon's step in PyTorch without the rounding to bfloat16: the definition of what both sides approximate."""
    from torch.optim import _muon

    def exact(grad: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> torch.Tensor:
        a, b, c = coefficients
        x = grad.double()
        x = x.T if grad.size(0) > grad.size(1) else x
        x = x / x.norm().clamp(min=eps)
        for _ in range(steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x.T if grad.size(0) > grad.size(1) else x

    before = _muon._zeropower_via_newtonschulz
    _muon._zeropower_via_newtonschulz = exact
    try:
        yield
    finally:
        _muon._zeropower_via_newtonschulz = before
