"""The same gradients through both optimizers, the reference's with changes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from ....case import Case
from ....draw import generator
from ...optimizer import SHAPE, gradients, in_jax, in_torch

EXPLAINED = 1e-9
SIZES = (1.0, 0.01, 0.1)  # of a step's gradients: a limit that all of them exceed is no other than a factor

Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
Hook = Callable[[torch.optim.Optimizer], None]


class Steps:
    """What an optimizer of the port does, step by step, from random parameters in float64.

    Args:
      case: with an optimizer.
      seed: of the parameters and gradients.
      device: `"cpu"` or `"gpu"`.
      shape: of the parameters.

    Attributes:
      make: gives the reference's.
      gradients: one a step.
      kind: the class of `torch.optim` that the reference's is, or is derived from; its own where there is none.
    """

    def __init__(self, case: Case, seed: int, device: str, shape: tuple[int, ...] = SHAPE):
        assert case.optimizer is not None
        self.make, self._transformation = case.optimizer
        self.device, self.shape = device, shape
        self.start = generator(case, seed, "optimizer start").standard_normal(shape)
        sizes = itertools.cycle(SIZES)
        self.gradients = [g * np.float32(next(sizes)) for g in gradients(case, seed, 0, shape)]
        self.port = self.ported()
        self.scale = float(np.abs(self.port).max()) or 1.0
        probe = self.make([torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64))])
        known = (each for each in type(probe).__mro__ if each.__module__.startswith("torch.optim"))
        self.kind: Any = next(known, type(probe))
        self.groups = len(probe.param_groups)

    def ported(self) -> np.ndarray:
        """What the port's moves in each step."""
        return in_jax(self._transformation, self.gradients, "float64", self.device, start=self.start) - self.start

    def left(
        self, make: Make | None = None, *, count: int | None = None, port: np.ndarray | None = None
    ) -> np.ndarray | None:
        """What is left of the difference, of the first `count` steps, as a fraction of the largest; None where the
        reference's optimizer cannot step so. The port's steps are those found first, or `port`."""
        try:
            moved = in_torch(make or self.make, self.gradients[:count], "float64", self.device, start=self.start)
        except Exception:
            return None  # a setting that the optimizer refuses
        moved -= self.start
        port = self.port if port is None else port
        return ((moved - port[: len(moved)]) / self.scale).ravel() if np.isfinite(moved).all() else None

    def residual(self, make: Make | None = None, *, port: np.ndarray | None = None) -> float:
        return largest(self.left(make, port=port))

    @contextlib.contextmanager
    def around(self, before: Hook = lambda _: None, after: Hook = lambda _: None) -> Iterator[None]:
        """Within it, each step of an optimizer that is made there calls these just around the step of `torch.optim`'s
        class itself: after the hooks that it has, and what its own class does before."""
        inherited = "step" not in vars(self.kind)
        usual = self.kind.step
        bare = usual.__wrapped__ if hasattr(usual, "hooked") else usual

        def step(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            before(optimizer)
            result = bare(optimizer, *args, **kwargs)
            after(optimizer)
            return result

        self.kind.step = step
        try:
            yield
        finally:
            if inherited:
                del self.kind.step
            else:
                self.kind.step = usual

    def alone(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """The reference's optimizer without what is hung on it: neither hooks nor steps of a class of its own."""
        optimizer: Any = self.make(parameters)
        usual = self.kind.step
        bare = usual.__wrapped__ if hasattr(usual, "hooked") else usual
        optimizer.step = lambda closure=None: bare(optimizer, closure)
        return optimizer


def largest(left: np.ndarray | None) -> float:
    return np.inf if left is None else float(np.abs(left).max())


def group_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The settings of the group that the parameter is in."""
    return next(group for group in optimizer.param_groups if group["params"])
