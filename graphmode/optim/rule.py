"""What one of PyTorch's optimizers is made of: its arguments, what it keeps for a parameter, how it steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

Slots = dict[str, jax.Array]


def no_scalars(step: jax.Array, h: SimpleNamespace) -> Slots:
    """For a rule that needs nothing computed from the number of the step."""
    return {}


def no_check(h: SimpleNamespace) -> None:
    """For a rule whose arguments may be anything."""


def any_shape(name: str, shape: tuple[int, ...]) -> None:
    """For a rule that steps parameters of every shape."""


@dataclass(frozen=True)
class Rule:
    """An optimizer of `torch.optim`, for one parameter at a time; of functions that have a name, so that it pickles.

    Attributes:
      name: of the class in `torch.optim`.
      slots: `(parameter, h) -> what is kept for it`, under PyTorch's names; `h` holds the arguments as attributes.
      step: `(gradient, parameter, slots, scalars, h) -> (what is added to the parameter, new slots)`.
      scalars: `(steps [P] of the parameters, this one included, h) -> [P] each`: what depends on the number of the step
        alone, for all parameters at once.
      check: `h -> None`; raises `ValueError` for arguments that PyTorch rejects.
      schedulable: arguments beside `lr` that may be a schedule.
      shared: arguments that PyTorch takes of the optimizer for all groups, whatever a group says.
      in_torchs_layout: whether a step is no elementwise one, and sees the parameter as PyTorch lays it out.
      check_shape: `(name, shape) -> None`; raises for a parameter that it cannot step.
      counts: whether PyTorch keeps the number of the step.
    """

    name: str
    slots: Callable[[jax.Array, SimpleNamespace], Slots]
    step: Callable[[jax.Array, jax.Array, Slots, Slots, SimpleNamespace], tuple[jax.Array, Slots]]
    scalars: Callable[[jax.Array, SimpleNamespace], Slots] = no_scalars
    check: Callable[[SimpleNamespace], None] = no_check
    schedulable: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    in_torchs_layout: bool = False
    check_shape: Callable[[str, tuple[int, ...]], None] = any_shape
    counts: bool = True


def one_minus_power(beta: Any, step: jax.Array) -> jax.Array:
    """`1 - beta**step` to the last digits: in float32 the plain form loses four of seven for a beta of 0.999."""
    if isinstance(beta, int | float):
        if beta == 0:
            return jnp.ones(step.shape, float)
        return -jnp.expm1(step * math.log(beta))
    return jnp.where(beta > 0, -jnp.expm1(step * jnp.log(jnp.where(beta > 0, beta, 1.0))), 1.0)


def lerp(start: jax.Array, end: jax.Array, weight: Any) -> jax.Array:
    """As `torch.lerp`: from the nearer end, so that weights 0 and 1 give the ends themselves.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.lerp.html
    """
    distance = end - start
    if isinstance(weight, int | float):
        return start + weight * distance if weight < 0.5 else end - distance * (1 - weight)
    return jnp.where(weight < 0.5, start + weight * distance, end - distance * (1 - weight))


def upwards(gradient: jax.Array, h: SimpleNamespace) -> jax.Array:
    """The gradient of what is minimised."""
    return -gradient if h.maximize else gradient


def with_decay(gradient: jax.Array, parameter: jax.Array, h: SimpleNamespace) -> jax.Array:
    """The gradient with that of the L2 penalty."""
    return gradient if is_zero(h.weight_decay) else gradient + h.weight_decay * parameter


def decoupled(parameter: jax.Array, h: SimpleNamespace) -> Any:
    """What decoupled weight decay adds to the parameter."""
    return 0.0 if is_zero(h.weight_decay) else -(h.lr * h.weight_decay) * parameter


def is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0


def check_at_least_zero(h: SimpleNamespace, *names: str) -> None:
    for name in names:
        check_range(name, getattr(h, name), low=0.0)


def check_betas(h: SimpleNamespace) -> None:
    check_count("betas", h.betas, 2)
    for index, beta in enumerate(h.betas):
        check_range(f"betas[{index}]", beta, low=0.0, below=1.0)


def check_count(name: str, value: Any, count: int) -> None:
    if not isinstance(value, tuple) or len(value) != count:
        raise ValueError(f"{name} is {value!r}; give {('two', 'three')[count - 2]} numbers in a tuple")


def check_range(name: str, value: Any, *, low: float, high: float = math.inf, below: float = math.inf) -> None:
    """Raises `ValueError` unless a number is in range (`below` is left out of it), `TypeError` for what is none.

    A schedule is not looked at, nor what is traced, as `optax.inject_hyperparams` gives it.
    """
    if isinstance(value, jax.core.Tracer) or (callable(value) and not isinstance(value, type)):
        return
    if not isinstance(value, Real) and getattr(value, "shape", None) != ():
        called = ": call it, as in StepLR(0.1, step_size=30)" if isinstance(value, type) else ""
        raise TypeError(f"{name} is {value!r}, and a number or a schedule was wanted{called}")
    number = float(value)
    if not low <= number <= high or not number < below:
        upper = f" and less than {below:g}" if below < math.inf else f" and at most {high:g}" if high < math.inf else ""
        raise ValueError(f"{name} is {value!r}; give a number of at least {low:g}{upper}")


def namespace(values: Mapping[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(**values)
