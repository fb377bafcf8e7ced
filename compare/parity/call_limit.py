"""Ends a run of a reference whose loop never ends on an input that nobody gave it."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

LEAST, TIMES = 10_000, 100  # calls that every run may make, and times as many as it makes on an input of its own


class NeverEnds(RuntimeError):
    """It calls far more functions of PyTorch than on an input of its own."""


class CountedCalls(TorchFunctionMode):
    """Counts the functions of PyTorch that are called within it.

    Args:
      most: that may be; None for any number.

    Raises:
      NeverEnds: where there are more.
    """

    def __init__(self, most: int | None = None):
        self.most, self.count = most, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        most = self.most
        # never in a call that puts a setting back, as that at the end of no_grad
        if most is not None and self.count > most and any(isinstance(arg, torch.Tensor) for arg in args):
            self.most = None
            raise NeverEnds(f"it made {most} calls and did not end")
        return func(*args, **(kwargs or {}))

    @property
    def limit(self) -> CountedCalls:
        """Within it, a run may make many times as many calls as were counted here."""
        return CountedCalls(max(LEAST, TIMES * self.count))
