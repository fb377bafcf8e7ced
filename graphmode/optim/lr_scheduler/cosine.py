"""Cosine annealing, with and without restarts.

(1 + cos(pi * t / T)) / 2 is written sin(pi * (T - t) / (2 * T))**2: near t = T the sum cancels, the sine does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType

import jax.numpy as jnp
import numpy as np

from .arguments import GREATEST, as_lr, as_number, as_period
from .schedule import Count, Leaf, Real, Scheduler, Setter, real, set_fields


def half_cosine(xp: ModuleType, left: Real, period: Real) -> Real:
    """(1 + cos(pi * t / period)) / 2 from what is `left` of the period, period - t."""
    sine = xp.sin((math.pi / 2) * (left / period))
    return sine * sine


@dataclass(frozen=True)
class CosineAnnealingLR(Scheduler):
    """From `lr` to `eta_min` along a half cosine of `T_max` steps, and, as torch's recursion does, back and on.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CosineAnnealingLR.html

    Args:
      lr: the learning rate at count 0, and at every even multiple of `T_max`.
      T_max: steps from `lr` to `eta_min`.
      eta_min: the learning rate at the odd multiples of `T_max`.

    Raises:
      ValueError: where `lr` is negative or `T_max` 0.
      TypeError: where an argument is no number, or `T_max` not whole.

    Example:
      >>> float(CosineAnnealingLR(1.0, T_max=10)(10))
      0.0
    """

    lr: float
    T_max: int
    eta_min: float = 0.0

    def __post_init__(self) -> None:
        set_fields(
            self,
            lr=as_lr("lr", self.lr),
            T_max=as_period("T_max", self.T_max),
            eta_min=as_number("eta_min", self.eta_min),
        )

    def _weight(self, xp: ModuleType, n: Count) -> Real:
        return half_cosine(xp, real(xp, self.T_max - n % (2 * self.T_max)), float(self.T_max))

    def _opened(self, at: Leaf, lr: float) -> Real:
        return lr

    def _reset(self, xp: ModuleType, at: Leaf, lr: Real) -> Real:
        return at.base

    def _stepped(self, xp: ModuleType, at: Leaf, n: Count, lr: Real) -> Real:
        after_the_end = (n - 1 - self.T_max) % (2 * self.T_max) == 0
        rise = (at.base - self.eta_min) * math.sin(math.pi / 2 / self.T_max) ** 2
        before = xp.where(after_the_end, 1.0, self._weight(xp, n - 1))
        scaled = self._weight(xp, n) / before * (lr - self.eta_min) + self.eta_min
        return xp.where(after_the_end, lr + rise, scaled)

    def _ran(self, xp: ModuleType, at: Leaf, n: Count, lr: float) -> Real:
        # at T_max the recursion forgets what it began with, and rises again towards the base learning rate
        top = xp.where(n <= self.T_max, lr - self.eta_min, at.base - self.eta_min)
        return self.eta_min + top * self._weight(xp, n)


@dataclass(frozen=True)
class CosineAnnealingWarmRestarts(Setter):
    """From `lr` towards `eta_min` along a half cosine, and at once back to `lr`, in periods `T_mult` times as long.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CosineAnnealingWarmRestarts.html

    Args:
      lr: the learning rate at count 0 and after each restart.
      T_0: steps until the first restart.
      T_mult: how many times as long each period is as the one before.
      eta_min: what each period ends before.

    Raises:
      ValueError: where `lr` is negative, `T_0` no positive integer, `T_mult` no integer of at least 1, or `eta_min`
        no number, as in torch.

    Example:
      >>> [float(CosineAnnealingWarmRestarts(1.0, T_0=2)(n)) for n in (0, 2, 4)]
      [1.0, 1.0, 1.0]
    """

    lr: float
    T_0: int
    T_mult: int = 1
    eta_min: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.T_0, int) or self.T_0 <= 0:
            raise ValueError(f"T_0 is {self.T_0!r}; give an integer of at least 1")
        if not isinstance(self.T_mult, int) or self.T_mult < 1:
            raise ValueError(f"T_mult is {self.T_mult!r}; give an integer of at least 1")
        if not isinstance(self.eta_min, float | int):
            raise ValueError(f"eta_min is {self.eta_min!r}; give a float or an int")
        set_fields(self, lr=as_lr("lr", self.lr), eta_min=float(self.eta_min))

    def _set(self, xp: ModuleType, at: Leaf, n: Count) -> Real:
        if self.T_mult == 1:
            period: Real = float(self.T_0)
            left = real(xp, self.T_0 - n % self.T_0)
        else:
            starts, periods = [0], [self.T_0]
            while starts[-1] + periods[-1] <= GREATEST:
                starts.append(starts[-1] + periods[-1])
                periods.append(periods[-1] * self.T_mult)
            index = xp.sum(xp.asarray(np.asarray(starts, np.int32)) <= n) - 1
            start = xp.asarray(np.asarray(starts, np.int32))[index]
            lengths = np.asarray(periods, np.float64)
            period = lengths[index] if xp is np else jnp.asarray(lengths, jnp.result_type(float))[index]
            left = period - real(xp, n - start)
        return self.eta_min + (at.base - self.eta_min) * half_cosine(xp, left, period)
