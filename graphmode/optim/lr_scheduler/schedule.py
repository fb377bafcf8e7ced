"""What every scheduler is: a frozen description that is called with a count.

A formula is written once for two namespaces: numpy, on the host in float64 with a Python int for a count (a count that
is known, milestones, tables), and jax.numpy, with a traced count. It is given the namespace as `xp`.

torch's schedulers share one optimizer, each step an affine map of the learning rate that stands there. A scheduler
therefore says how one step maps the learning rate (`_stepped`), and how many of them together do (`_ran`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .arguments import GREATEST, as_count

Count = int | jax.Array
Real = float | jax.Array


@dataclass
class Group:
    """What torch keeps in the optimizer's parameter group, as constructors change it one after another."""

    lr: float
    initial_lr: float = math.nan
    one_cycle: tuple[float, float] = (math.nan, math.nan)  # max_lr, min_lr
    swa_lr: float = math.nan


@dataclass
class Leaf:
    """One scheduler attached to the group. At count 0 its epoch is 0, and `steps` is `_step_count - 1`."""

    schedule: Scheduler
    group: Group
    base: float
    steps: int = 0

    @property
    def factor(self) -> bool:
        """Whether every step multiplies the learning rate."""
        return self.schedule._is_factor

    @property
    def setter(self) -> bool:
        """Whether every step sets the learning rate, whatever it was."""
        return self.schedule._is_setter

    @property
    def last(self) -> int | None:
        """The last count that torch takes, where there is one."""
        return self.schedule._last(self)

    def open(self) -> None:
        """torch's `_initial_step`."""
        self.steps = 0
        self.group.lr = float(self.schedule._opened(self, self.group.lr))

    def again(self) -> None:
        """The step that torch makes at epoch 0 inside of a composite that a SequentialLR holds."""
        self.steps += 1
        self.group.lr = float(self.schedule._stepped(np, self, 0, self.group.lr))

    def reset(self, xp: ModuleType, lr: Real) -> Real:
        """torch's `_update_lr(0)`."""
        return self.schedule._reset(xp, self, lr)

    def step(self, xp: ModuleType, n: Count, lr: Real) -> Real:
        """The learning rate after the n-th step, from the one before."""
        return self.schedule._stepped(xp, self, n, lr)

    def run(self, xp: ModuleType, n: Count, lr: float) -> Real:
        """The learning rate after n steps, from that of count 0."""
        return self.schedule._ran(xp, self, n, lr)


def real(xp: ModuleType, n: Count) -> Real:
    """A count as a float of the precision in use."""
    return np.float64(n) if xp is np else jnp.asarray(n).astype(jnp.result_type(float))


def within(n: jax.Array, last: int | None) -> jax.Array:
    """Whether a traced count is one that torch takes."""
    return n >= 0 if last is None else (n >= 0) & (n <= min(last, GREATEST))


def check_count(n: int, last: int | None, name: str) -> None:
    """Refuses a known count that torch would not reach."""
    if n < 0:
        raise ValueError(f"count is {n}; give the number of scheduler.step() calls so far, at least 0")
    if last is not None and n > last:
        raise ValueError(f"count is {n}, and {name} ends at count {last}; make it longer, or stop there")


def as_scalar(value: Any) -> jax.Array:
    """A scalar of the precision in use."""
    return jnp.asarray(value, jnp.result_type(float))


class Schedule:
    """Called with a count, gives a scalar; a known count past the end is an error, a traced one gives NaN."""

    def _end(self) -> int | None:
        raise NotImplementedError

    def _value(self, xp: ModuleType, n: Count) -> Real:
        raise NotImplementedError

    def __call__(self, count: Count) -> jax.Array:
        """The scheduled value after `count` calls of torch's `scheduler.step()`.

        Args:
          count: an integer of at least 0, or a traced scalar of an integer dtype.

        Returns:
          A scalar, float64 where x64 is on, and float32 otherwise.

        Raises:
          ValueError: where a count that is known is negative, or past the end; where it is traced, NaN is given.
          TypeError: where `count` is no integer scalar.
        """
        n = as_count(count)
        if isinstance(n, int):
            check_count(n, self._end(), type(self).__name__)
            with np.errstate(all="ignore"):
                return as_scalar(float(self._value(np, n)))
        return jnp.where(within(n, self._end()), as_scalar(self._value(jnp, jnp.maximum(n, 0))), jnp.nan)


class Scheduler(Schedule):
    """A scheduler of torch's. `at` is where it is attached: its `Leaf`, with torch's `base_lr` and group."""

    lr: float
    _is_factor = False
    _is_setter = False

    def _attached(self, group: Group) -> None:
        """What the constructor writes into the group before anything else."""

    def _built(self, group: Group) -> Any:
        """The constructor of torch's."""
        self._attached(group)
        if math.isnan(group.initial_lr):
            group.initial_lr = group.lr
        leaf = Leaf(self, group, group.initial_lr)
        leaf.open()
        return leaf

    def _opened(self, at: Leaf, lr: float) -> Real:
        """The step within the constructor, to epoch 0."""
        return self._stepped(np, at, 0, lr)

    def _reset(self, xp: ModuleType, at: Leaf, lr: Real) -> Real:
        """Epoch 0 again, at a milestone of SequentialLR."""
        return self._stepped(xp, at, 0, lr)

    def _stepped(self, xp: ModuleType, at: Leaf, n: Count, lr: Real) -> Real:
        raise NotImplementedError

    def _ran(self, xp: ModuleType, at: Leaf, n: Count, lr: float) -> Real:
        raise NotImplementedError

    def _last(self, at: Leaf) -> int | None:
        return None

    def of_group(self) -> dict[str, float]:
        """What torch's constructor leaves in the optimizer's parameter group beside `lr`: `initial_lr` for instance."""
        _, group = self._attachment
        top, least = group.one_cycle
        found = {"initial_lr": group.initial_lr, "max_lr": top, "min_lr": least, "swa_lr": group.swa_lr}
        return {name: value for name, value in found.items() if not math.isnan(value)}

    @functools.cached_property
    def _attachment(self) -> tuple[Any, Group]:
        """Alone on an optimizer: the node, and the group at count 0."""
        group = Group(self.lr)
        with np.errstate(all="ignore"):
            try:
                node = self._built(group)
            except ZeroDivisionError:
                raise ValueError(f"{self!r} divides by zero at its first step, in torch too") from None
        return node, group

    def _end(self) -> int | None:
        return self._attachment[0].last

    def _value(self, xp: ModuleType, n: Count) -> Real:
        node, group = self._attachment
        return node.run(xp, n, group.lr)

    def _recursion(self, total_steps: int) -> list[float]:
        """The first values, one step of torch's after another in float64."""
        node, group = self._attachment
        values = [lr := group.lr]
        with np.errstate(all="ignore"):
            for n in range(1, total_steps):
                values.append(lr := float(node.step(np, n, lr)))
        return values[:total_steps]


class Factor(Scheduler):
    """A scheduler whose every step multiplies the learning rate that stands."""

    _is_factor = True

    def _factor(self, xp: ModuleType, n: Count) -> Real:
        """By what the n-th step multiplies, n = 0 included."""
        raise NotImplementedError

    def _product(self, xp: ModuleType, n: Count) -> Real:
        """The product of the factors of steps 1 to n."""
        raise NotImplementedError

    def _stepped(self, xp: ModuleType, at: Leaf, n: Count, lr: Real) -> Real:
        return lr * self._factor(xp, n)

    def _ran(self, xp: ModuleType, at: Leaf, n: Count, lr: float) -> Real:
        return lr * self._product(xp, n)


class Setter(Scheduler):
    """A scheduler whose every step sets the learning rate, whatever stands."""

    _is_setter = True

    def _set(self, xp: ModuleType, at: Leaf, n: Count) -> Real:
        raise NotImplementedError

    def _stepped(self, xp: ModuleType, at: Leaf, n: Count, lr: Real) -> Real:
        return self._set(xp, at, n)

    def _ran(self, xp: ModuleType, at: Leaf, n: Count, lr: float) -> Real:
        return self._set(xp, at, n)


def set_fields(schedule: Any, **values: Any) -> None:
    """Checked values in place of what a frozen dataclass was given."""
    for name, value in values.items():
        object.__setattr__(schedule, name, value)
