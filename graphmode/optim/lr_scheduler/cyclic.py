"""Cycles between two learning rates, with the momentum cycled the other way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from .arguments import as_lr, as_number, as_whole, as_word
from .functions import called, check_callable
from .powers import power
from .schedule import Count, Group, Leaf, Real, Schedule, Scheduler, Setter, real, set_fields


@dataclass(frozen=True)
class Momentum(Schedule):
    """The momentum (of Adam beta1) that a scheduler sets beside the learning rate, as a schedule."""

    of: Scheduler

    def _end(self) -> int | None:
        return self.of._end()

    def _value(self, xp: ModuleType, n: Count) -> Real:
        return self.of._momentum(xp, n)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class CyclicLR(Setter):
    """From `base_lr` up to `max_lr` and down again, over and over; `momentum` goes the other way.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CyclicLR.html

    Args:
      lr: the optimizer's own learning rate, which torch overwrites by `base_lr`; schedulers that a SequentialLR or
        ChainedScheduler holds beside this one start from it.
      base_lr: the lower end of the cycles.
      max_lr: the upper end, before scaling.
      step_size_up: steps from the lower end to the upper.
      step_size_down: steps back, None for as many as `step_size_up`.
      mode: scaling of the amplitude: `"triangular"` none, `"triangular2"` halved each cycle, `"exp_range"`
        gamma**count.
      gamma: of `"exp_range"`.
      scale_fn: a scaling of one's own in place of `mode`, of an integer that is traced in a graph.
      scale_mode: what `scale_fn` is given: `"cycle"`, the cycle from 1 on, or `"iterations"`, the count.
      cycle_momentum: whether there is a `momentum`, which an optimizer is given beside `lr`:
        `sgd(schedule, momentum=schedule.momentum)`, `adam(schedule, betas=(schedule.momentum, 0.999))`.
      base_momentum: the momentum at the upper end of the learning rate.
      max_momentum: the momentum at its lower end.

    Raises:
      ValueError: where a learning rate is negative, `mode` or `scale_mode` unknown, `step_size_up` below 1 or
        `step_size_down` below 0.
      TypeError: where an argument is no number, a step size not whole, or `scale_fn` no function that traces.

    Example:
      >>> schedule = CyclicLR(0.1, base_lr=0.25, max_lr=0.75, step_size_up=4)
      >>> float(schedule(4)), float(schedule(8)), float(schedule.momentum(4))
      (0.75, 0.25, 0.800000011920929)
    """

    lr: float
    base_lr: float
    max_lr: float
    step_size_up: int = 2000
    step_size_down: int | None = None
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    gamma: float = 1.0
    scale_fn: Callable[[Any], Any] | None = None
    scale_mode: Literal["cycle", "iterations"] = "cycle"
    cycle_momentum: bool = True
    base_momentum: float = 0.8
    max_momentum: float = 0.9

    def __post_init__(self) -> None:
        up = as_whole("step_size_up", self.step_size_up)
        down = up if self.step_size_down is None else as_whole("step_size_down", self.step_size_down)
        if up < 1:
            raise ValueError(f"step_size_up is {up}; give a number of steps of at least 1")
        if down < 0:
            raise ValueError(f"step_size_down is {down}; give a number of steps of at least 0")
        if self.scale_fn is None:
            as_word("mode", self.mode, ("triangular", "triangular2", "exp_range"))
        else:
            check_callable("scale_fn", self.scale_fn)
            as_word("scale_mode", self.scale_mode, ("cycle", "iterations"))
        numbers = ("base_lr", "max_lr", "gamma", "base_momentum", "max_momentum")
        set_fields(self, **{name: as_number(name, getattr(self, name)) for name in numbers})
        set_fields(self, lr=as_lr("lr", self.lr), step_size_up=up, step_size_down=down)

    def _attached(self, group: Group) -> None:
        group.lr = self.base_lr

    def _built(self, group: Group) -> Any:
        leaf = super()._built(group)
        # torch's constructor takes its first step from the learning rate that the optimizer began with
        group.lr = leaf.base
        return leaf

    @property
    def momentum(self) -> Schedule | None:
        """The momentum by count, a schedule; None where `cycle_momentum` is False."""
        return Momentum(self) if self.cycle_momentum else None

    def _height(self, xp: ModuleType, n: Count) -> Real:
        """How far above the lower end, as a part of the amplitude."""
        up, down = self.step_size_up, self.step_size_down or 0
        cycle, place = n // (up + down), n % (up + down)
        rising = real(xp, place) / up
        height = xp.where(place <= up, rising, real(xp, up + down - place) / down) if down else rising
        if self.scale_fn is not None:
            return height * called(xp, "scale_fn", self.scale_fn, cycle + 1 if self.scale_mode == "cycle" else n)
        if self.mode == "triangular":
            return height
        return height * (power(xp, 0.5, cycle) if self.mode == "triangular2" else power(xp, self.gamma, n))

    def _set(self, xp: ModuleType, at: Leaf, n: Count) -> Real:
        return self.base_lr + (self.max_lr - self.base_lr) * self._height(xp, n)

    def _momentum(self, xp: ModuleType, n: Count) -> Real:
        return self.max_momentum - (self.max_momentum - self.base_momentum) * self._height(xp, n)
