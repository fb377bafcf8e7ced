"""Schedulers of schedulers: one after another, or all at each step.

In torch the members stand on one optimizer, and are made in the order of the list, the inner ones first: each
constructor changes the learning rate that the next one finds. That is played through once, on the host, and gives the
learning rate of count 0. From there on one member that runs alone has a closed form, and so have members that all
multiply, or one that sets the learning rate whatever stood there; all others take the recursion itself, in a loop.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .arguments import GREATEST, as_lr, as_wholes
from .functions import MultiplicativeLR
from .plateau import ReduceLROnPlateau
from .schedule import Count, Group, Real, Scheduler, as_scalar, set_fields
from .swa import SWALR


def check_members(name: str, schedulers: Any, lr: float | None) -> tuple[tuple[Scheduler, ...], float]:
    """The members as a tuple, and the learning rate of the optimizer that all of them would stand on."""
    try:
        members = tuple(schedulers)
    except TypeError:
        raise TypeError(f"schedulers is {schedulers!r}, and a list of schedulers was wanted") from None
    if not members:
        raise ValueError(f"schedulers is empty; {name} wants at least one")
    for i, one in enumerate(members):
        if isinstance(one, ReduceLROnPlateau):
            raise ValueError(f"schedulers[{i}] is a ReduceLROnPlateau, which steps by a metric; step it on its own")
        if not isinstance(one, Scheduler):
            raise TypeError(
                f"schedulers[{i}] is {one!r}, and a scheduler of this module was wanted; a function goes into LambdaLR"
            )
    rate = members[0].lr if lr is None else as_lr("lr", lr)
    for i, one in enumerate(members):
        if one.lr != rate:
            raise ValueError(
                f"schedulers[{i}].lr is {one.lr} where {'schedulers[0].lr' if lr is None else 'lr'} is {rate}; "
                f"all stand on one optimizer: give them the same lr"
            )
    return members, rate


@dataclass
class Turns:
    """A SequentialLR on its group; `last` is its `last_epoch` at count 0."""

    members: list[Any]
    milestones: Sequence[int]
    group: Group
    last_epoch: int = 0

    factor = False

    def _active(self, epoch: int) -> int:
        return bisect_right(self.milestones, epoch)

    def again(self) -> None:
        """One step while an outer composite is made; it stays count 0."""
        self.last_epoch += 1
        k = self._active(self.last_epoch)
        if k and self.milestones[k - 1] == self.last_epoch:
            self.group.lr = float(self.members[k].reset(np, self.group.lr))
        else:
            self.members[k].again()

    open = again

    @functools.cached_property
    def phases(self) -> list[tuple[int, int, Any]]:
        """Counts from which on members are active, and until which, and the members; the first is from 0 on."""
        later = (one - self.last_epoch for one in set(self.milestones))
        starts = [0, *sorted(start for start in later if 0 < start <= GREATEST)]
        members = [self.members[self._active(self.last_epoch + start)] for start in starts]
        return list(zip(starts, [*starts[1:], GREATEST], members, strict=True))

    @property
    def setter(self) -> bool:
        return all(member.setter for _, _, member in self.phases)

    @property
    def last(self) -> int | None:
        ends = [
            start + member.last
            for start, end, member in self.phases
            if member.last is not None and start + member.last + 1 < end
        ]
        return min(ends, default=None)

    def step(self, xp: ModuleType, n: Count, lr: Real) -> Real:
        phases = self.phases
        if xp is np:
            start, _, member = next(phase for phase in reversed(phases) if phase[0] <= n)
            return member.reset(np, lr) if start and n == start else member.step(np, n - start, lr)
        value = phases[0][2].step(xp, xp.minimum(n, phases[0][1]), lr)
        for start, end, member in phases[1:]:
            local = xp.clip(n - start, 1, end - start)
            stepped = xp.where(n == start, member.reset(xp, lr), member.step(xp, local, lr))
            value = xp.where(n >= start, stepped, value)
        return value

    def run(self, xp: ModuleType, n: Count, lr: float) -> Real:
        value: Real = lr
        began, turn = 0, self.phases[0][2]
        for i, (start, end, member) in enumerate(self.phases):
            if xp is np and n < start:
                break
            if i:
                # only these go on from the learning rate that stands when their turn comes
                goes_on = isinstance(member.schedule, MultiplicativeLR | SWALR)
                lr = float(member.reset(np, float(turn.run(np, start - 1 - began, lr)) if goes_on else lr))
            began, turn = start, member
            if xp is not np or n < end or end == GREATEST:
                local = xp.clip(n - start, 0, end - 1 - start) if xp is jnp else n - start
                ran = member.run(xp, local, lr)
                value = xp.where(n >= start, ran, value) if xp is jnp and i else ran
        return value


@dataclass
class Chain:
    """A ChainedScheduler on its group."""

    members: list[Any]
    group: Group

    def again(self) -> None:
        """One step while an outer composite is made; it stays count 0."""
        for member in self.members:
            member.again()

    open = again

    @property
    def factor(self) -> bool:
        return all(member.factor for member in self.members)

    @property
    def setter(self) -> bool:
        return any(member.setter for member in self.members)

    @property
    def last(self) -> int | None:
        return min((member.last for member in self.members if member.last is not None), default=None)

    def step(self, xp: ModuleType, n: Count, lr: Real) -> Real:
        for member in self.members:
            lr = member.step(xp, n, lr)
        return lr

    def run(self, xp: ModuleType, n: Count, lr: float) -> Real:
        if self.factor or len(self.members) == 1:
            for member in self.members:
                lr = member.run(xp, n, lr)
            return lr
        if self.setter:
            # one step forgets the learning rate before it: any stands for it
            return xp.where(n == 0, lr, self.step(xp, xp.maximum(n, 1), lr)) if xp is jnp or n else lr
        if xp is np:
            for i in range(1, n + 1):
                lr = float(self.step(np, i, lr))
            return lr
        one = jnp.ones_like(n)
        return lax.fori_loop(one, n + 1, lambda i, value: as_scalar(self.step(jnp, i, value)), as_scalar(lr))


@dataclass(frozen=True)
class SequentialLR(Scheduler):
    """One scheduler after another, each from its milestone on and from its own count 0.

    A member that multiplies by a function (`MultiplicativeLR`) or anneals (`SWALR`) goes on from the learning rate that
    stands; all others begin at their own. As torch does when it calls `_update_lr(0)` at a milestone.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.SequentialLR.html

    Args:
      lr: the learning rate of the optimizer, that of all members too.
      schedulers: the members. A SequentialLR or ChainedScheduler among them must be the first: torch raises where it
        comes to one at a milestone.
      milestones: counts at which the next member takes over, not decreasing; a member between equal ones is left out.

    Raises:
      ValueError: where there is no member, or the milestones are not one fewer, or decrease, or a member has another
        `lr`, is a `ReduceLROnPlateau`, or is a composite that begins at a milestone.
      TypeError: where a member is no scheduler of this module, or a milestone no integer.

    Example:
      >>> warmup = LinearLR(1.0, start_factor=0.5, total_iters=2)
      >>> schedule = SequentialLR(1.0, [warmup, CosineAnnealingLR(1.0, T_max=4)], milestones=[2])
      >>> [round(float(schedule(n)), 6) for n in range(7)]
      [0.5, 0.75, 1.0, 0.853553, 0.5, 0.146447, 0.0]
    """

    lr: float
    schedulers: Iterable[Scheduler]
    milestones: Sequence[int]

    def __post_init__(self) -> None:
        lr = as_lr("lr", self.lr)
        members, _ = check_members("SequentialLR", self.schedulers, lr)
        milestones = as_wholes("milestones", self.milestones)
        if len(milestones) != len(members) - 1:
            raise ValueError(
                f"milestones has {len(milestones)} entries for {len(members)} schedulers; give one fewer of them"
            )
        if list(milestones) != sorted(milestones):
            raise ValueError(f"milestones is {list(milestones)}, which decreases; sort it")
        for k in range(bisect_right(milestones, 0) + 1, len(members)):
            left_out = k < len(milestones) and milestones[k] == milestones[k - 1]
            if isinstance(members[k], SequentialLR | ChainedScheduler) and not left_out:
                raise ValueError(
                    f"schedulers[{k}] is a {type(members[k]).__name__} that begins at milestone {milestones[k - 1]}, "
                    f"which torch cannot start (NotImplementedError); put it first, or its members here"
                )
        set_fields(self, lr=lr, schedulers=members, milestones=milestones)
        for start, _, member in self._attachment[0].phases[1:]:
            try:
                member.reset(np, lr)
            except ZeroDivisionError:
                raise ValueError(f"{member.schedule!r} divides by zero at milestone {start}, in torch too") from None

    def _built(self, group: Group) -> Turns:
        members = [one._built(group) for one in self.schedulers]
        group.lr = group.initial_lr
        members[bisect_right(self.milestones, 0)].open()
        return Turns(members, self.milestones, group)


@dataclass(frozen=True)
class ChainedScheduler(Scheduler):
    """All schedulers step at each step, one after another on the one learning rate.

    Members that only multiply have a product, and where one sets the learning rate the last such decides; with a
    CosineAnnealingLR or SWALR beside members that multiply, each step needs the one before, and a traced count costs
    a loop of that many. For a long run give `tabulated(schedule, total_steps)`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ChainedScheduler.html

    Args:
      schedulers: the members, in the order in which torch's would be made.
      lr: the learning rate of the optimizer, None for that of the members.

    Raises:
      ValueError: where there is no member, or one has another `lr` or is a `ReduceLROnPlateau`.
      TypeError: where a member is no scheduler of this module.

    Example:
      >>> schedule = ChainedScheduler([ConstantLR(1.0, factor=0.5, total_iters=2), ExponentialLR(1.0, gamma=0.5)])
      >>> [float(schedule(n)) for n in range(4)]
      [0.5, 0.25, 0.25, 0.125]
    """

    schedulers: Iterable[Scheduler]
    lr: float | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        members, rate = check_members("ChainedScheduler", self.schedulers, self.lr)
        set_fields(self, schedulers=members, lr=rate)
        _ = self._attachment

    def _built(self, group: Group) -> Chain:
        return Chain([one._built(group) for one in self.schedulers], group)
