"""Annealing to the constant learning rate of stochastic weight averaging."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import numpy as np

from .arguments import as_lr, as_number, as_word
from .cosine import half_cosine
from .schedule import Count, Group, Leaf, Real, Scheduler, real, set_fields


@dataclass(frozen=True)
class SWALR(Scheduler):
    """From the learning rate that stands to `swa_lr` in `anneal_epochs` steps, and constant from there on.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.swa_utils.SWALR.html

    Args:
      lr: the learning rate at count 0.
      swa_lr: the learning rate at the end.
      anneal_epochs: steps from the one to the other; where it is 0, `swa_lr` holds from count 0.
      anneal_strategy: `"cos"` or `"linear"`.

    Raises:
      ValueError: where `lr` is negative, `anneal_epochs` no integer of at least 0, or `anneal_strategy` unknown.
      TypeError: where a learning rate is no number.

    Example:
      >>> float(SWALR(1.0, swa_lr=0.5, anneal_epochs=4, anneal_strategy="linear")(2))
      0.75
    """

    lr: float
    swa_lr: float
    anneal_epochs: int = 10
    anneal_strategy: Literal["cos", "linear"] = "cos"

    def __post_init__(self) -> None:
        as_word("anneal_strategy", self.anneal_strategy, ("cos", "linear"))
        if not isinstance(self.anneal_epochs, int) or self.anneal_epochs < 0:
            raise ValueError(f"anneal_epochs is {self.anneal_epochs!r}; give an integer of at least 0")
        set_fields(self, lr=as_lr("lr", self.lr), swa_lr=as_number("swa_lr", self.swa_lr))

    def _attached(self, group: Group) -> None:
        group.swa_lr = self.swa_lr

    def _left(self, xp: ModuleType, step: Count) -> Real:
        """1 - alpha: how much of the way to `swa_lr` is left."""
        length = self.anneal_epochs
        left = real(xp, xp.clip(length - step, 0, length))
        return half_cosine(xp, left, float(length)) if self.anneal_strategy == "cos" else left / length

    def _stepped(self, xp: ModuleType, at: Leaf, n: Count, lr: Real) -> Real:
        if not self.anneal_epochs:
            return at.group.swa_lr
        step = n + at.steps
        before = self._left(xp, step - 1)
        ratio = xp.where(before == 0, 0.0, self._left(xp, step) / xp.where(before == 0, 1.0, before))
        return at.group.swa_lr + (lr - at.group.swa_lr) * ratio

    def _ran(self, xp: ModuleType, at: Leaf, n: Count, lr: float) -> Real:
        first = float(self._left(np, at.steps)) if self.anneal_epochs else 0.0
        way = xp.where(n == 0, 1.0, self._left(xp, n + at.steps) / first) if first else xp.where(n == 0, 1.0, 0.0)
        return at.group.swa_lr + (lr - at.group.swa_lr) * way
