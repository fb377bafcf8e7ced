"""What is done to gradients before a step, and to what a step moves: whether the port does the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from ....report.records import Cause
from ...optimizer import in_torch
from ..fit import plain, solve
from ..limit import Limit
from .steps import EXPLAINED, Steps, group_of, largest

ID = "gradient-clipping"
TORCHS_EPS = 1e-6  # that torch.nn.utils.clip_grad_norm_ adds to the norm
ALIKE = 1e-9
LIKELY = (10.0, 5.0, 1.0, 0.5, 0.1, 0.01, 1e-3, 1e-4)

Reform = Callable[[torch.Tensor], torch.Tensor]


class Way(NamedTuple):
    """A way to clip.

    Attributes:
      what: in words, what is held to a limit.
      clip: a tensor, to a limit.
    """

    what: str
    clip: Callable[[torch.Tensor, float], torch.Tensor]


class Own(NamedTuple):
    """What the reference does to gradients: in words, by a way of the known ones, to a limit."""

    says: str
    way: Way | None = None
    limit: float | None = None


def _by_norm(eps: float) -> Callable[[torch.Tensor, float], torch.Tensor]:
    return lambda x, limit: x * (limit / (torch.linalg.vector_norm(x) + eps)).clamp(max=1.0)


NORM = Way("norm", _by_norm(TORCHS_EPS))
PURE_NORM = Way("norm", _by_norm(0.0))
VALUE = Way("values", lambda x, limit: x.clamp(-limit, limit))
WAYS = (NORM, PURE_NORM, VALUE)


def clipping(steps: Steps, limit: Limit) -> list[Cause]:
    """Clipping that is left out, added, or of another kind, limit or place than the reference's."""
    own = _own(steps)
    if own is not None:
        off = largest(_left(steps, gradients=lambda g: g))
        if off <= EXPLAINED:
            says = f"leaves gradients as they are, where the reference {own.says} before each step"
            return [Cause(id=ID, says=says, fix=_fix(own), residual=off)]
    whole = Own("does not") if own is None else own
    for way, found in _limits(steps, whole, limit):
        value, off, of_update = found
        same = own is not None and own.limit is not None and abs(value - own.limit) <= ALIKE * own.limit
        beside = f", where the reference {whole.says}"
        if of_update:
            before = " before it" if own is not None else ""
            says = f"clips the {way.what} of what a step moves to {value:.12g}, after the optimizer{beside}{before}"
        elif same and way is PURE_NORM:
            says = f"divides by the norm alone as it clips, where the reference adds {TORCHS_EPS:g} to it"
        elif way is not VALUE and all(np.linalg.norm(g) > value for g in steps.gradients):
            says = f"brings the {way.what} of gradients to {value:.12g}, as clipping does{beside}"
        else:
            says = f"clips the {way.what} of gradients to {value:.12g}{beside}"
        return [Cause(id=ID, says=says, fix=_fix(own), residual=off)]
    return []


def _own(steps: Steps) -> Own | None:
    """What the reference does to gradients before its step; None for nothing."""
    taken: list[np.ndarray] = []

    def note(optimizer: torch.optim.Optimizer) -> None:
        taken.append(_parameter(optimizer).grad.detach().cpu().numpy().copy())  # type: ignore[union-attr]

    try:
        with steps.around(before=note):
            in_torch(steps.make, steps.gradients, "float64", steps.device, start=steps.start)
    except Exception:
        return None
    given = [g.astype(np.float64) for g in steps.gradients]
    if len(taken) != len(given) or all(np.array_equal(h, g) for h, g in zip(taken, given, strict=True)):
        return None
    for way in WAYS:
        limit = _limit(way, given, taken)
        if limit is not None:
            return Own(f"clips their {way.what} to {limit:.12g}", way, limit)
    return Own("changes them")


def _limit(way: Way, given: list[np.ndarray], taken: list[np.ndarray]) -> float | None:
    """With which limit a way makes of the given gradients those that were taken."""

    def left(limit: float) -> np.ndarray:
        return np.concatenate([(way.clip(torch.from_numpy(g), limit).numpy() - h).ravel() for g, h in pairs])

    pairs = list(zip(given, taken, strict=True))
    size = np.linalg.norm if way is not VALUE else (lambda x: np.abs(x).max())
    start = max(float(size(h)) for h in taken)
    value = solve(left, start)
    if value is None:
        return None
    scale = max(float(np.abs(h).max()) for h in taken)

    def holds(value: float) -> bool:
        return largest(left(value)) <= ALIKE * scale

    value = plain(value, holds)
    return value if holds(value) else None


def _limits(steps: Steps, own: Own, limit: Limit) -> Iterator[tuple[Way, tuple[float, float, bool]]]:
    """The ways and limits that explain the port's steps, of gradients and of what a step moves."""
    for of_update in (False, True):
        for way in WAYS:
            if limit.is_over:
                return

            def left(limit: float, way: Way = way, of_update: bool = of_update) -> np.ndarray | None:
                def clip(x: torch.Tensor) -> torch.Tensor:
                    return way.clip(x, limit)

                return _left(steps, gradients=None if of_update else clip, update=clip if of_update else None)

            start = own.limit if own.limit is not None else 1.0
            value = solve(left, start, LIKELY, limit)
            if value is None or value <= 0 or largest(left(value)) > EXPLAINED:
                continue
            value = plain(value, lambda value, left=left: largest(left(value)) <= EXPLAINED)  # type: ignore[misc]
            yield way, (value, largest(left(value)), of_update)


def _left(steps: Steps, *, gradients: Reform | None, update: Reform | None = None) -> np.ndarray | None:
    """What is left where the reference's step takes the given gradients so changed, and moves so changed."""
    given, before = iter(steps.gradients), torch.zeros(())
    change = gradients or (lambda g: g)

    def prepare(optimizer: torch.optim.Optimizer) -> None:
        nonlocal before
        parameter = _parameter(optimizer)
        before = parameter.detach().clone()
        parameter.grad = change(torch.from_numpy(next(given)).to(parameter))

    def finish(optimizer: torch.optim.Optimizer) -> None:
        if update is not None:
            parameter = _parameter(optimizer)
            with torch.no_grad():
                parameter.copy_(before + update(parameter - before))

    with steps.around(prepare, finish):
        return steps.left()


def _parameter(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    (parameter,) = group_of(optimizer)["params"]
    return parameter


def _fix(own: Own | None) -> str:
    if own is None:
        return "leave it out"
    if own.way is VALUE:
        return f"put optax.clip({own.limit:.12g}) before the optimizer, by optax.chain"
    if own.way is not None:
        return (
            f"put optax.stateless(lambda g, p: gm.optim.clip_grad_norm(g, {own.limit:.12g})[0]) before the optimizer, "
            "by optax.chain"
        )
    return "do the same to gradients before the optimizer, by optax.chain"
