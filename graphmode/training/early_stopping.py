"""A run that ends once a metric of its evaluation no longer gets better."""

from __future__ import annotations

import math
from typing import Literal

from ..nn.arguments import as_integer, as_word


class EarlyStopping:
    """Ends a run after `patience` evaluations in a row that are no better than the best.

    Args:
      metric: its name among those of the evaluation.
      patience: how many may fail to get better.
      mode: whether the smallest or the largest is the best.
      min_delta: by how much a value must be better to count.

    Attributes:
      best: the best value so far; None before the first.
      failures: evaluations since then.
    """

    def __init__(self, metric: str, *, patience: int = 3, mode: Literal["min", "max"] = "min", min_delta: float = 0.0):
        self.metric = metric
        self.patience = as_integer("patience", patience, least=1)
        self.mode = as_word("mode", mode, ("min", "max"))
        if min_delta < 0:
            raise ValueError(f"min_delta is {min_delta!r}; give a number of at least 0")
        self.min_delta = min_delta
        self.best: float | None = None
        self.failures = 0

    def is_over(self, metrics: dict[str, float]) -> bool:
        """Takes an evaluation's metrics; whether the run should end.

        Raises:
          ValueError: where the metric is not among them.
        """
        if self.metric not in metrics:
            raise ValueError(f"metric is {self.metric!r}, and the evaluation has {', '.join(metrics)}")
        value = metrics[self.metric]
        gain = -math.inf if math.isnan(value) else math.inf if self.best is None else self._gain(value, self.best)
        if gain > self.min_delta:
            self.best, self.failures = value, 0
        else:
            self.failures += 1
        return self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether so many evaluations in a row were no better."""
        return self.failures >= self.patience

    def state_dict(self) -> dict[str, float | int | None]:
        """For `json`, as a checkpoint keeps it."""
        return {"best": self.best, "failures": self.failures}

    def load_state_dict(self, state: dict[str, float | int | None]) -> None:
        self.best, self.failures = state["best"], int(state["failures"] or 0)

    def _gain(self, value: float, best: float) -> float:
        return best - value if self.mode == "min" else value - best
