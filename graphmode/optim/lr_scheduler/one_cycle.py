"""One cycle: up to the greatest learning rate, down to the least, with the momentum the other way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

from .arguments import as_lr, as_number, as_word
from .cosine import half_cosine
from .cyclic import Momentum
from .schedule import Count, Group, Leaf, Real, Schedule, Setter, real, set_fields


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"{name} is {value!r}; give an integer of at least 1")


@dataclass(frozen=True)
class OneCycleLR(Setter):
    """From max_lr / div_factor up to `max_lr`, then down to max_lr / div_factor / final_div_factor.

    torch raises at its step number total_steps + 1. Here a known count past `total_steps` is a `ValueError`, and a
    traced one gives NaN. `total_steps` itself is one step past the end of the annealing: torch extrapolates, and so
    does this.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html

    Args:
      lr: the optimizer's own learning rate, which torch overwrites; it is not used.
      max_lr: the greatest learning rate.
      total_steps: steps of the cycle; None for epochs * steps_per_epoch.
      epochs: together with `steps_per_epoch`, in place of `total_steps`.
      steps_per_epoch: optimizer steps in an epoch.
      pct_start: the part of the cycle in which the learning rate rises, a float from 0 to 1.
      anneal_strategy: `"cos"` or `"linear"`.
      cycle_momentum: whether there is a `momentum`, which an optimizer is given beside `lr`:
        `sgd(schedule, momentum=schedule.momentum)`, `adam(schedule, betas=(schedule.momentum, 0.999))`.
      base_momentum: the momentum at the greatest learning rate.
      max_momentum: the momentum at the ends.
      div_factor: `max_lr` by the first learning rate.
      final_div_factor: the first learning rate by the least.
      three_phase: down in as many steps as up, and then to the least.

    Raises:
      ValueError: where torch raises one, or divides by zero at its first step (pct_start * total_steps is 1).
      TypeError: where a factor or a momentum is no number.

    Example:
      >>> schedule = OneCycleLR(0.1, max_lr=1.0, total_steps=10)
      >>> float(schedule(2)), round(float(schedule.momentum(2)), 6)
      (1.0, 0.85)
    """

    lr: float
    max_lr: float
    total_steps: int | None = None
    epochs: int | None = None
    steps_per_epoch: int | None = None
    pct_start: float = 0.3
    anneal_strategy: Literal["cos", "linear"] = "cos"
    cycle_momentum: bool = True
    base_momentum: float = 0.85
    max_momentum: float = 0.95
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    three_phase: bool = False

    def __post_init__(self) -> None:
        if self.total_steps is not None:
            _check_positive("total_steps", self.total_steps)
        elif self.epochs is not None and self.steps_per_epoch is not None:
            _check_positive("epochs", self.epochs)
            _check_positive("steps_per_epoch", self.steps_per_epoch)
            set_fields(self, total_steps=self.epochs * self.steps_per_epoch)
        else:
            raise ValueError("total_steps is None; give it, or both epochs and steps_per_epoch")
        if not isinstance(self.pct_start, float) or not 0 <= self.pct_start <= 1:
            raise ValueError(f"pct_start is {self.pct_start!r}; give a float from 0 to 1")
        as_word("anneal_strategy", self.anneal_strategy, ("cos", "linear"))
        numbers = ("max_lr", "base_momentum", "max_momentum", "div_factor", "final_div_factor")
        set_fields(self, **{name: as_number(name, getattr(self, name)) for name in numbers}, lr=as_lr("lr", self.lr))
        for name in ("div_factor", "final_div_factor"):
            if not getattr(self, name):
                raise ValueError(f"{name} is 0; give what the learning rate is divided by")
        if self._ends[0] == 0:
            raise ValueError(
                f"pct_start is {self.pct_start} of total_steps {self.total_steps}, a rise of one step, by which torch "
                f"divides by zero; give a greater pct_start or more steps"
            )

    @property
    def _total(self) -> int:
        assert self.total_steps is not None
        return self.total_steps

    @property
    def _ends(self) -> tuple[float, ...]:
        total = self._total
        fall = (2 * self.pct_start * total - 2,) if self.three_phase else ()
        return self.pct_start * total - 1, *fall, total - 1

    def _last(self, at: Leaf) -> int | None:
        *_, before, end = self._ends
        return self._total - 1 if before == end else self._total

    def _attached(self, group: Group) -> None:
        group.initial_lr = self.max_lr / self.div_factor
        group.one_cycle = self.max_lr, group.initial_lr / self.final_div_factor

    @property
    def momentum(self) -> Schedule | None:
        """The momentum by count, a schedule; None where `cycle_momentum` is False."""
        return Momentum(self) if self.cycle_momentum else None

    def _annealed(self, xp: ModuleType, n: Count, stations: tuple[float, ...]) -> Real:
        """Phase by phase from one station to the next."""
        ends = self._ends
        value: Real = math.nan
        for i in reversed(range(len(ends))):
            start, end = (ends[i - 1] if i else 0.0), ends[i]
            whole = math.floor(end)
            # integers are subtracted first, and both weights made: a float32 difference of two near ones would cancel
            left, length = real(xp, whole - n) + (end - whole), end - start
            done = real(xp, n - math.floor(start)) - (start - math.floor(start))
            if length:
                weights = (left / length, done / length)
                if self.anneal_strategy == "cos":
                    weights = half_cosine(xp, left, length), half_cosine(xp, done, length)
                phase = stations[i] * weights[0] + stations[i + 1] * weights[1]
                value = phase if i == len(ends) - 1 else xp.where(n <= end, phase, value)
        return value

    def _set(self, xp: ModuleType, at: Leaf, n: Count) -> Real:
        first, (top, least) = at.group.initial_lr, at.group.one_cycle
        return self._annealed(xp, n, (first, top, first, least) if self.three_phase else (first, top, least))

    def _momentum(self, xp: ModuleType, n: Count) -> Real:
        high, low = self.max_momentum, self.base_momentum
        return self._annealed(xp, n, (high, low, high, high) if self.three_phase else (high, low, high))
