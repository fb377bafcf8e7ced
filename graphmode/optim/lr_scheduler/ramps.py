"""A factor that ends at `total_iters`: constant, linear, polynomial."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from .arguments import GREATEST, as_lr, as_number, as_whole
from .schedule import Count, Factor, Leaf, Real, real, set_fields


@dataclass(frozen=True)
class ConstantLR(Factor):
    """The learning rate times `factor` before count `total_iters`, and itself from there on.

    As in torch, a `total_iters` below 1 is never reached: the factor stays.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ConstantLR.html

    Args:
      lr: the learning rate from `total_iters` on.
      factor: from 0 to 1. Where it is 0, torch divides by zero at `total_iters`; the schedule ends before it.
      total_iters: steps that the factor holds for.

    Raises:
      ValueError: where `lr` is negative, or `factor` outside of [0, 1].
      TypeError: where an argument is no number, or `total_iters` not whole.

    Example:
      >>> float(ConstantLR(1.0, factor=0.5, total_iters=4)(3))
      0.5
    """

    lr: float
    factor: float = 1.0 / 3
    total_iters: int = 5

    def __post_init__(self) -> None:
        factor = as_number("factor", self.factor)
        if factor > 1 or factor < 0:
            raise ValueError(f"factor is {self.factor!r}; give a factor from 0 to 1")
        total_iters = as_whole("total_iters", self.total_iters)
        set_fields(self, lr=as_lr("lr", self.lr), factor=factor, total_iters=total_iters)

    def _last(self, at: Leaf) -> int | None:
        return self.total_iters - 1 if not self.factor and self.total_iters > 0 else None

    @property
    def _inverse(self) -> float:
        return 1.0 / self.factor if self.factor else np.nan

    def _reset(self, xp: ModuleType, at: Leaf, lr: Real) -> Real:
        return at.base * (1.0 if self.total_iters <= 0 else self.factor)

    def _factor(self, xp: ModuleType, n: Count) -> Real:
        undone = xp.where(n == min(self.total_iters, GREATEST), self._inverse, 1.0)
        return xp.where(n == 0, self.factor, undone)

    def _product(self, xp: ModuleType, n: Count) -> Real:
        if self.total_iters <= 0:
            return 1.0
        return xp.where(n >= min(self.total_iters, GREATEST), self._inverse, 1.0)


@dataclass(frozen=True)
class LinearLR(Factor):
    """The learning rate times a factor that goes from `start_factor` to `end_factor` in `total_iters` steps.

    As in torch, a `total_iters` below 1 is never reached: the factor stays `start_factor`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.LinearLR.html

    Args:
      lr: the learning rate that the factors multiply.
      start_factor: above 0, at most 1.
      end_factor: from 0 to 1.
      total_iters: steps from the one to the other.

    Raises:
      ValueError: where `lr` is negative, or a factor outside of its range.
      TypeError: where an argument is no number, or `total_iters` not whole.

    Example:
      >>> float(LinearLR(1.0, start_factor=0.5, total_iters=4)(2))
      0.75
    """

    lr: float
    start_factor: float = 1.0 / 3
    end_factor: float = 1.0
    total_iters: int = 5

    def __post_init__(self) -> None:
        start = as_number("start_factor", self.start_factor)
        end = as_number("end_factor", self.end_factor)
        if start > 1 or start <= 0:
            raise ValueError(f"start_factor is {self.start_factor!r}; give a factor above 0 and at most 1")
        if end > 1 or end < 0:
            raise ValueError(f"end_factor is {self.end_factor!r}; give a factor from 0 to 1")
        total_iters = as_whole("total_iters", self.total_iters)
        set_fields(self, lr=as_lr("lr", self.lr), start_factor=start, end_factor=end, total_iters=total_iters)

    def _weighted(self, xp: ModuleType, n: Count) -> Real:
        """total_iters times the factor at n: a sum of two positive terms, nothing cancels."""
        return real(xp, self.total_iters - n) * self.start_factor + real(xp, n) * self.end_factor

    def _reset(self, xp: ModuleType, at: Leaf, lr: Real) -> Real:
        if not self.total_iters:
            raise ZeroDivisionError
        return at.base * (self.end_factor if self.total_iters < 0 else self.start_factor)

    def _factor(self, xp: ModuleType, n: Count) -> Real:
        changed = xp.where(n > min(self.total_iters, GREATEST), 1.0, self._weighted(xp, n) / self._weighted(xp, n - 1))
        return xp.where(n == 0, self.start_factor, changed)

    def _product(self, xp: ModuleType, n: Count) -> Real:
        if self.total_iters <= 0:
            return 1.0
        done = xp.minimum(n, min(self.total_iters, GREATEST))
        return self._weighted(xp, done) / (self.total_iters * self.start_factor)


@dataclass(frozen=True)
class PolynomialLR(Factor):
    """The learning rate times (1 - count / total_iters)**power, and what it was at `total_iters` from there on.

    As in torch, a `total_iters` below 1 is never reached: the learning rate stays.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.PolynomialLR.html

    Args:
      lr: the learning rate at count 0.
      total_iters: steps of the decay.
      power: of the polynomial. Where it is negative, torch divides by zero at `total_iters`; the schedule ends before.

    Raises:
      ValueError: where `lr` is negative.
      TypeError: where an argument is no number, or `total_iters` not whole.

    Example:
      >>> float(PolynomialLR(1.0, total_iters=4, power=2.0)(2))
      0.25
    """

    lr: float
    total_iters: int = 5
    power: float = 1.0

    def __post_init__(self) -> None:
        total_iters = as_whole("total_iters", self.total_iters)
        set_fields(self, lr=as_lr("lr", self.lr), total_iters=total_iters, power=as_number("power", self.power))

    def _last(self, at: Leaf) -> int | None:
        return self.total_iters - 1 if self.power < 0 and self.total_iters > 0 else None

    def _opened(self, at: Leaf, lr: float) -> Real:
        return lr

    def _reset(self, xp: ModuleType, at: Leaf, lr: Real) -> Real:
        if not self.total_iters:
            raise ZeroDivisionError
        return at.base * (1.0 - min(self.total_iters, 0) / self.total_iters) ** self.power

    def _factor(self, xp: ModuleType, n: Count) -> Real:
        if not self.total_iters and xp is np and n == 0:
            raise ZeroDivisionError
        left = real(xp, self.total_iters - n) / real(xp, self.total_iters - n + 1)
        return xp.where(n > min(self.total_iters, GREATEST), 1.0, xp.power(xp.maximum(left, 0.0), self.power))

    def _product(self, xp: ModuleType, n: Count) -> Real:
        if self.total_iters <= 0:
            return 1.0
        left = real(xp, xp.maximum(self.total_iters - n, 0)) / self.total_iters
        return xp.power(left, self.power)
