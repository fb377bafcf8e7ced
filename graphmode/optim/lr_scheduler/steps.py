"""Decay by gamma: at every step, every so many steps, or at milestones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import jax.numpy as jnp
import numpy as np

from .arguments import GREATEST, as_lr, as_number, as_period, as_wholes
from .powers import power
from .schedule import Count, Factor, Leaf, Real, set_fields


@dataclass(frozen=True)
class StepLR(Factor):
    """The learning rate times `gamma` every `step_size` steps.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.StepLR.html

    Args:
      lr: the learning rate at count 0.
      step_size: steps between two decays.
      gamma: what each decay multiplies by.

    Raises:
      ValueError: where `lr` is negative or `step_size` 0.
      TypeError: where an argument is no number, or `step_size` not whole.

    Example:
      >>> float(StepLR(1.0, step_size=30, gamma=0.5)(65))
      0.25
    """

    lr: float
    step_size: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        set_fields(
            self,
            lr=as_lr("lr", self.lr),
            step_size=as_period("step_size", self.step_size),
            gamma=as_number("gamma", self.gamma),
        )

    def _reset(self, xp: ModuleType, at: Leaf, lr: Real) -> Real:
        return at.base

    def _factor(self, xp: ModuleType, n: Count) -> Real:
        return xp.where((n == 0) | (n % self.step_size != 0), 1.0, self.gamma)

    def _product(self, xp: ModuleType, n: Count) -> Real:
        return power(xp, self.gamma, n // self.step_size)


@dataclass(frozen=True)
class MultiStepLR(Factor):
    """The learning rate times `gamma` at each milestone, twice where a milestone is named twice.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.MultiStepLR.html

    Args:
      lr: the learning rate before any milestone.
      milestones: counts, in any order; one of 0 decays the first value already.
      gamma: what each decay multiplies by.

    Raises:
      ValueError: where `lr` is negative.
      TypeError: where `milestones` is no list of integers, or another argument no number.

    Example:
      >>> float(MultiStepLR(1.0, milestones=[30, 80], gamma=0.5)(80))
      0.25
    """

    lr: float
    milestones: Sequence[int]
    gamma: float = 0.1

    def __post_init__(self) -> None:
        milestones = tuple(sorted(as_wholes("milestones", self.milestones)))
        set_fields(self, lr=as_lr("lr", self.lr), milestones=milestones, gamma=as_number("gamma", self.gamma))

    def _decays(self, xp: ModuleType, table: np.ndarray, n: Count) -> Real:
        """`table` at the number of milestones from 1 to n."""
        later = np.asarray([min(one, GREATEST) for one in self.milestones if one > 0], np.int32)
        reached = xp.sum(xp.asarray(later) <= n)
        return table[reached] if xp is np else jnp.asarray(table, jnp.result_type(float))[reached]

    def _reset(self, xp: ModuleType, at: Leaf, lr: Real) -> Real:
        return at.base * self.gamma ** bisect_right(self.milestones, 0)

    def _factor(self, xp: ModuleType, n: Count) -> Real:
        factor: Real = 1.0
        for one in dict.fromkeys(one for one in self.milestones if 0 <= one <= GREATEST):
            factor = xp.where(n == one, self.gamma ** self.milestones.count(one), factor)
        return factor

    def _product(self, xp: ModuleType, n: Count) -> Real:
        return self._decays(xp, np.power(np.float64(self.gamma), np.arange(len(self.milestones) + 1)), n)


@dataclass(frozen=True)
class ExponentialLR(Factor):
    """The learning rate times `gamma` at every step.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ExponentialLR.html

    Args:
      lr: the learning rate at count 0.
      gamma: what each step multiplies by; gamma**count is good to about 4 units in the last place at any count.

    Raises:
      ValueError: where `lr` is negative.
      TypeError: where an argument is no number.

    Example:
      >>> float(ExponentialLR(1.0, gamma=0.5)(3))
      0.125
    """

    lr: float
    gamma: float

    def __post_init__(self) -> None:
        set_fields(self, lr=as_lr("lr", self.lr), gamma=as_number("gamma", self.gamma))

    def _opened(self, at: Leaf, lr: float) -> Real:
        return lr

    def _reset(self, xp: ModuleType, at: Leaf, lr: Real) -> Real:
        return at.base

    def _factor(self, xp: ModuleType, n: Count) -> Real:
        return self.gamma

    def _product(self, xp: ModuleType, n: Count) -> Real:
        return power(xp, self.gamma, n)
