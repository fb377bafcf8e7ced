"""Schedulers by a function of the user's, and tables of functions that no graph can hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .arguments import as_count, as_lr
from .schedule import Count, Factor, Leaf, Real, Schedule, Scheduler, Setter, as_scalar, check_count, set_fields, within


def check_callable(name: str, function: Any) -> None:
    """Raises `TypeError` for what cannot be called, a list of functions among them."""
    if not callable(function):
        raise TypeError(
            f"{name} is {function!r}, and a function of an integer was wanted; for parameter groups build one "
            f"schedule each"
        )


def called(xp: ModuleType, name: str, function: Callable[[Any], Any], n: Count) -> Real:
    """The function's value at a count: a float on the host, a scalar in the graph."""
    if xp is np:
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            given = function(int(n))
            try:
                return float(given)
            except (TypeError, ValueError):
                raise TypeError(f"{name} gave {given!r} for {int(n)}, and a number was wanted") from None
    try:
        # int32 / int is float32 even where x64 is on; the default integer divides in the precision in use
        value = jnp.asarray(function(jnp.asarray(n, jnp.result_type(int))), jnp.result_type(float))
    except (TypeError, IndexError) as error:
        why = str(error).partition("\n")[0]
        raise TypeError(
            f"{name} failed where its argument, the count, is traced: {why} Use jnp.where or jax.lax.cond in place "
            f"of Python's if, jnp functions in place of math's; or give tabulated({name}, total_steps)"
        ) from error
    if value.shape:
        raise TypeError(f"{name} gave an array of shape {value.shape}, and a scalar was wanted")
    return value


@dataclass(frozen=True)
class LambdaLR(Setter):
    """The learning rate times a function of the count.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.LambdaLR.html

    Args:
      lr: the learning rate that the function's value multiplies.
      lr_lambda: of an integer, a Python int where the count is known, and traced in a graph. What it computes in a
        graph is computed in the precision in use; `tabulated(lr_lambda, total_steps)` computes it in float64.

    Raises:
      ValueError: where `lr` is negative.
      TypeError: where `lr_lambda` is no function, or, when called with a traced count, does not trace.

    Example:
      >>> float(LambdaLR(1.0, lambda n: jnp.where(n < 10, 1.0, 0.5))(10))
      0.5
    """

    lr: float
    lr_lambda: Callable[[Any], Any]

    def __post_init__(self) -> None:
        check_callable("lr_lambda", self.lr_lambda)
        set_fields(self, lr=as_lr("lr", self.lr))

    def _set(self, xp: ModuleType, at: Leaf, n: Count) -> Real:
        return at.base * called(xp, "lr_lambda", self.lr_lambda, n)


@dataclass(frozen=True)
class MultiplicativeLR(Factor):
    """The learning rate times the function's values at 1, 2, ... up to the count.

    A traced count multiplies them in a loop, of as many steps as the count says, and rounds at each; for a long run in
    float32 give `tabulated(schedule, total_steps)`, which is made on the host in float64.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.MultiplicativeLR.html

    Args:
      lr: the learning rate at count 0.
      lr_lambda: of an integer, as `LambdaLR` takes it.

    Raises:
      ValueError: where `lr` is negative.
      TypeError: where `lr_lambda` is no function, or, when called with a traced count, does not trace.

    Example:
      >>> float(MultiplicativeLR(1.0, lambda n: 0.5)(3))
      0.125
    """

    lr: float
    lr_lambda: Callable[[Any], Any]

    def __post_init__(self) -> None:
        check_callable("lr_lambda", self.lr_lambda)
        set_fields(self, lr=as_lr("lr", self.lr))

    def _opened(self, at: Leaf, lr: float) -> Real:
        return lr

    def _factor(self, xp: ModuleType, n: Count) -> Real:
        return called(xp, "lr_lambda", self.lr_lambda, n)

    def _product(self, xp: ModuleType, n: Count) -> Real:
        if xp is np:
            product: Real = 1.0
            for i in range(1, n + 1):
                product *= self._factor(np, i)
            return product
        one = jnp.ones_like(n)
        return lax.fori_loop(one, n + 1, lambda i, product: product * self._factor(jnp, i), as_scalar(1.0))


@dataclass(frozen=True, eq=False)
class Tabulated(Schedule):
    """Values known for the first counts; see `tabulated`."""

    values: np.ndarray

    def __call__(self, count: Count) -> jax.Array:
        """The value at `count`: an error past the table where the count is known, NaN where it is traced."""
        n, last = as_count(count), len(self.values) - 1
        if isinstance(n, int):
            check_count(n, last, "the table")
            return as_scalar(self.values[n])
        return jnp.where(within(n, last), as_scalar(self.values)[jnp.clip(n, 0, last)], jnp.nan)


def tabulated(schedule_or_fn: Callable[[int], Any], total_steps: int) -> Tabulated:
    """A function of an int, or a schedule, evaluated now, on the host in float64, into a table for graphs.

    Args:
      schedule_or_fn: an ordinary Python function of an int, `if` and `math` included, that gives a float; or a
        scheduler of this module, which is stepped as torch steps it.
      total_steps: how many values, for counts 0 to total_steps - 1.

    Returns:
      A schedule: a scalar for a count, float64 where x64 is on, float32 otherwise. A count past the table is a
      `ValueError` where it is known, and NaN where it is traced.

    Raises:
      ValueError: where `total_steps` is below 1.
      TypeError: where `schedule_or_fn` cannot be called, `total_steps` is no integer, or a value no number.

    Example:
      >>> float(tabulated(lambda n: 1.0 if n < 10 else 0.5, 100)(10))
      0.5
    """
    check_callable("schedule_or_fn", schedule_or_fn)
    if isinstance(total_steps, bool) or not isinstance(total_steps, int):
        raise TypeError(f"total_steps is {total_steps!r}, and an integer was wanted")
    if total_steps < 1:
        raise ValueError(f"total_steps is {total_steps}; give the number of values, at least 1")
    if isinstance(schedule_or_fn, Scheduler):
        end = schedule_or_fn._end()
        check_count(total_steps - 1, end, "schedule_or_fn")
        values = schedule_or_fn._recursion(total_steps)
    else:
        values = [float(called(np, "schedule_or_fn", schedule_or_fn, n)) for n in range(total_steps)]
    table = np.asarray(values, np.float64)
    table.setflags(write=False)
    return Tabulated(table)


@dataclass(frozen=True)
class PerEpoch(Schedule):
    """A schedule of epochs as one of steps; see `per_epoch`."""

    schedule: Callable[[Any], jax.Array]
    steps_per_epoch: int

    def __call__(self, count: Count) -> jax.Array:
        """The value of the schedule at count // steps_per_epoch."""
        n = as_count(count)
        return self.schedule(n // self.steps_per_epoch)


def per_epoch(schedule: Callable[[Any], jax.Array], steps_per_epoch: int) -> PerEpoch:
    """A schedule for a count of optimizer steps, where torch's loop steps the scheduler once an epoch.

    Args:
      schedule: of epochs; any function of a count.
      steps_per_epoch: optimizer steps in an epoch.

    Raises:
      ValueError: where `steps_per_epoch` is below 1.
      TypeError: where `schedule` cannot be called or `steps_per_epoch` is no integer.

    Example:
      >>> float(per_epoch(StepLR(1.0, step_size=30, gamma=0.5), 100)(3000))
      0.5
    """
    check_callable("schedule", schedule)
    if isinstance(steps_per_epoch, bool) or not isinstance(steps_per_epoch, int):
        raise TypeError(f"steps_per_epoch is {steps_per_epoch!r}, and an integer was wanted")
    if steps_per_epoch < 1:
        raise ValueError(f"steps_per_epoch is {steps_per_epoch}; give the optimizer steps of an epoch, at least 1")
    return PerEpoch(schedule, steps_per_epoch)
