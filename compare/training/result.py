"""`TrainingResult`: what came of both scripts, and the two verdicts on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..parity.yardstick import PRECISE_RATIO

EQUAL = 1e-8  # of the loss at each step, and of what both are left with, in float64
EAGER = "torch.eager"
PORT = "jax.jit"

Kept = Literal["parameter", "buffer", "average", "score"]


@dataclass
class Way:
    """One way of running the script.

    Attributes:
      name: `torch.eager`, `torch.compile`, `torch.cudagraph` or `jax.jit`.
      dtype: float64 or float32.
      losses: before each step.
      seconds: of each step, its loss fetched.
      scores: after the last step.
      reason: why it did not run; empty where it did.
    """

    name: str
    dtype: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def median_s(self) -> float:
        """Of a step, the first ones left out, in which graphs are made."""
        return float(np.median(self.seconds[min(5, len(self.seconds) // 2) :]))


@dataclass(frozen=True)
class Apart:
    """A tensor or score that both scripts should have alike after the last step in float64, and have not.

    Attributes:
      kind: of it.
      name: PyTorch's, or the score's.
      error: the largest difference over the tensor's size.
      index: where it is.
      port, reference: both values there.
      note: what is wrong, where it is not a matter of size.
    """

    kind: Kept
    name: str
    error: float
    index: tuple[int, ...] = ()
    port: str = ""
    reference: str = ""
    note: str = ""


@dataclass(frozen=True)
class TrainingResult:
    """What came of both scripts.

    Attributes:
      name, summary: the training's.
      device: cpu or gpu.
      ways: in float64 the reference and the port; in float32 all.
      error: the largest relative difference of the losses in float64; infinite where one side is not finite alone.
      error_step: where it is.
      first_step: the first step where it is above the bar; None where there is none.
      apart: what is off after the last step in float64, in the reference's order; not looked for where losses part.
      compared: how much was compared then, by its kind.
      ratio: the port's float32 error of the losses over PyTorch's own, both against float64; None for fewer than 64
        steps.
      traces: compilations of the port's step.
      narrow: the dtypes narrower than float32 in which PyTorch's script runs, and the port does not.
      warnings: what a reader should know of the two scripts, and of what could not be compared.
      case: that the training was made of, as `graphmode check` takes it; empty for a script.
      asked: steps that were to be made.
      interrupted: Ctrl-C ended the run: float64 or float32 has fewer steps, or none, or not all was looked for.
    """

    name: str
    summary: str
    device: str
    ways: tuple[Way, ...]
    error: float
    error_step: int
    first_step: int | None
    apart: tuple[Apart, ...]
    compared: Mapping[Kept, int]
    ratio: float | None
    traces: int
    narrow: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    case: str = ""
    asked: int = 0
    interrupted: bool = False

    @property
    def equal(self) -> bool:
        return self.error <= EQUAL and not self.apart

    @property
    def precise(self) -> bool | None:
        """None where too few steps were made to tell."""
        return None if self.ratio is None else self.ratio <= PRECISE_RATIO

    @property
    def passed(self) -> bool:
        return self.equal and self.precise is not False

    def way(self, name: str, dtype: str) -> Way:
        return next(way for way in self.ways if (way.name, way.dtype) == (name, dtype))
