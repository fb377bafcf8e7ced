"""PyTorch's own optimizer with other settings, until it steps as the port's does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ....report.records import Cause
from ..fit import plain, solve
from ..limit import Limit
from .steps import EXPLAINED, Make, Steps, group_of, largest

START = "initial_accumulator_value"
OPTAX_ADAGRAD = 0.1, 1e-7  # what optax.adagrad starts its sum of squares from, and adds inside the root
LIKELY: dict[str, tuple[float, ...]] = {
    "lr": (1e-4, 1e-3, 1e-2, 0.1),
    "eps": (1e-8, 1e-6, 1e-5, 1e-10, 0.0),
    "weight_decay": (0.0, 1e-4, 1e-2, 0.1),
    "momentum": (0.0, 0.9, 0.99),
    "dampening": (0.0, 0.9),
    "alpha": (0.9, 0.99),
    "lr_decay": (0.0,),
    "betas[0]": (0.9, 0.95),
    "betas[1]": (0.999, 0.99, 0.95, 0.98),
}
WORDS = {
    "lr": "learning-rate",
    "eps": "optimizer-epsilon",
    "weight_decay": "weight-decay",
    "decoupled_weight_decay": "weight-decay",
    "momentum": "optimizer-momentum",
    "dampening": "optimizer-momentum",
    "nesterov": "nesterov",
    START: "optimizer-start",
}

Settings = dict[str, Any]
Change = Callable[[Settings], None]


def settings(steps: Steps, limit: Limit) -> list[Cause]:
    """The settings with which the reference's optimizer makes exactly the port's steps, one changed at a time."""
    usual, make, where = _settings(steps), steps.make, ""
    if steps.groups > 1 or len(steps.shape) == 1:
        axes = "one axis" if len(steps.shape) == 1 else f"{len(steps.shape)} axes"
        where = f", for a parameter of {axes}" + (", of whose group the numbers are" if steps.groups > 1 else "")

    def residual(change: Change) -> float:
        return steps.residual(_changed(make, change))

    found: list[Cause] = []
    for name, says, fix, change in _switches(usual):
        off = residual(change)
        if off <= EXPLAINED:
            id = WORDS.get(name, name.replace("_", "-"))
            found.append(Cause(id=id, says=says + where, fix=fix, residual=off))
    for corrected in (False, True) if not found and usual.get("eps") else ():
        off = steps.residual(_with_eps_inside(make, corrected=corrected))
        if off <= EXPLAINED:
            says = f"adds eps={usual['eps']:.12g} inside the root, to the mean of squares"
            fix = "add it outside: optax has it so with eps=, eps_root=0 and eps_in_sqrt=False; or take gm.optim"
            found.append(Cause(id="optimizer-epsilon-place", says=says, fix=fix, residual=off))
            break
    if not found and START in usual:
        start, eps = OPTAX_ADAGRAD
        off = steps.residual(_with_eps_inside(_changed(make, _set(START, start)), corrected=False, eps=eps))
        if off <= EXPLAINED:
            says = (
                f"starts its sum of squares from {start}, and adds {eps} inside the root, as optax.adagrad by default"
            )
            found.append(Cause(id=WORDS[START], says=says, fix="take gm.optim.adagrad", residual=off))
    for name, known in _numbers(usual):
        if found or limit.is_over:
            break

        def left(value: float, name: str = name) -> np.ndarray | None:
            return steps.left(_changed(make, _set(name, value)))

        value = solve(left, known, LIKELY.get(name, ()), limit)
        if value is None:
            continue
        value = plain(value, lambda value, left=left: largest(left(value)) <= EXPLAINED)  # type: ignore[misc]
        off = largest(left(value))
        if off <= EXPLAINED:
            id = WORDS.get(name, name.partition("[")[0])
            found.append(Cause(id=id, says=f"has {name}={value:.12g}{where}", fix=f"give {known:.12g}", residual=off))
    return found


def _with_eps_inside(make: Make, *, corrected: bool, eps: float | None = None) -> Make:
    """The optimizer with its eps, or another, under the root; `corrected` where the bias of the mean of squares is
    taken out first."""

    def build(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        optimizer: Any = make(parameters)
        (group,) = optimizer.param_groups
        inside, beta, step = group["eps"] if eps is None else eps, group.get("betas", (0.0, 0.0))[1], optimizer.step
        group.update(eps=0.0, foreach=False)
        count = itertools.count(1)

        def changed() -> None:
            with _EpsInside(inside * (1 - beta ** next(count) if corrected else 1.0)):
                step()

        optimizer.step = changed
        return optimizer

    return build


class _EpsInside(TorchFunctionMode):
    """Adds a number to what a root is taken of."""

    def __init__(self, eps: float):
        self.eps = eps

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("sqrt", "sqrt_") and isinstance(args[0], torch.Tensor):
            return func(args[0] + self.eps)
        return func(*args, **(kwargs or {}))


def _settings(steps: Steps) -> Settings:
    """Those of the group that the parameter is in."""
    return group_of(steps.make([torch.nn.Parameter(torch.zeros(steps.shape, dtype=torch.float64))]))


def _changed(make: Make, change: Change) -> Make:
    def build(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = make(parameters)
        for group in optimizer.param_groups:
            change(group)
            for parameter in group["params"] if START in group else ():  # Adagrad's, made with the optimizer
                optimizer.state[parameter]["sum"].fill_(group[START])
        return optimizer

    return build


def _switches(usual: Settings) -> Iterator[tuple[str, str, str, Change]]:
    for name, value in usual.items():
        if isinstance(value, bool) and name not in ("capturable", "differentiable", "foreach", "fused"):
            says = f"steps as with {name}={not value}"
            if name == "decoupled_weight_decay":
                says = "decays weights " + ("through the gradient (L2)" if value else "apart from the gradient (AdamW)")
            yield name, says, f"give {name}={value}", _set(name, not value)
    betas = usual.get("betas")
    if betas is not None:
        yield "betas", "takes the two betas in the other order", f"give betas={betas}", _set("betas", betas[::-1])


def _numbers(usual: Settings) -> Iterator[tuple[str, float]]:
    for name, value in usual.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)
        elif isinstance(value, tuple):
            yield from ((f"{name}[{i}]", float(v)) for i, v in enumerate(value) if isinstance(v, int | float))


def _set(name: str, value: Any) -> Change:
    def change(settings: Settings) -> None:
        whole, _, place = name.partition("[")
        if place:
            values = list(settings[whole])
            values[int(place.rstrip("]"))] = value
            settings[whole] = tuple(values)
        else:
            settings[name] = value

    return change
