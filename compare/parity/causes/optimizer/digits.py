"""Why an optimizer that is equal in float64 rounds worse than PyTorch's: a number that all elements share."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np

from ....case import Case
from ....dtypes import HALF_ULP, JAX_DTYPES
from ....report.records import Cause
from ...yardstick import PRECISE_RATIO, error_ratio

MANY = 16.0  # half-ulps: beyond what the roundings of one element come to
ID = "shared-factor"
FIX = "take the optimizer of gm.optim by PyTorch's name, with PyTorch's arguments: it keeps them"


def explain_optimizer_digits(case: Case, *, seed: int, dtype: str, device: str) -> list[Cause]:
    """The cause, if the first step is off by one factor, or if all is right as soon as the numbers that are no arrays
    are in float64; `1 - beta**t` near 0 is what Adam's relatives lose it in.

    Args:
      case: with an optimizer.
      seed: of the gradients.
      dtype: that people run.
      device: `"cpu"` or `"gpu"`.
    """
    return _of_a_factor(case, seed, dtype, device) or _of_scalars(case, seed, dtype, device)


def _of_a_factor(case: Case, seed: int, dtype: str, device: str) -> list[Cause]:
    from ...optimizer import gradients, in_jax, in_torch

    assert case.optimizer is not None
    make, transformation = case.optimizer
    given = gradients(case, seed, 0)[:1]
    exact = in_torch(make, given, "float64", device)[0]
    ours, theirs = in_jax(transformation, given, dtype, device)[0], in_torch(make, given, dtype, device)[0]
    moved = exact != 0
    if not moved.any():
        return []
    apart, usual = ((x[moved] / exact[moved] - 1) / HALF_ULP[dtype] for x in (ours, theirs))
    shared = float(np.median(apart))
    if abs(shared) < MANY or np.abs(apart - shared).max() > max(MANY, 2 * np.abs(usual).max()):
        return []
    says = (
        f"has the first step {1 + shared * HALF_ULP[dtype]:.7f} times, in every element: a factor that all share has "
        f"lost digits in {dtype}, as 1 - beta**t of optax's Adam does where beta is near 1"
    )
    return [Cause(id=ID, says=says, fix=FIX, residual=0.0)]


def _of_scalars(case: Case, seed: int, dtype: str, device: str) -> list[Cause]:
    """By experiment: in x64 a number of Python's own, and what is made of such and of counts, has all digits; arrays
    keep their dtype."""
    from ...optimizer import DRAWS, gradients, in_jax, in_torch

    assert case.optimizer is not None
    make, transformation = case.optimizer
    draws = [gradients(case, seed, i) for i in range(DRAWS)]
    exact, usual = ([in_torch(make, g, name, device)[-1] for g in draws] for name in ("float64", dtype))

    def ratio(*, wide_scalars: bool) -> float:
        ported = [in_jax(transformation, g, dtype, device, wide_scalars=wide_scalars)[-1] for g in draws]
        return error_ratio(ported, usual, exact, dtype=dtype) or np.inf

    if not _arrays_stay(transformation, dtype) or (left := ratio(wide_scalars=True)) > PRECISE_RATIO:
        return []
    says = (
        f"loses digits in {dtype} in numbers that all elements share, as 1 - beta**t of optax's Adam does where beta "
        "is near 1: with these alone in float64 it is as precise as PyTorch's"
    )
    return [Cause(id=ID, says=says, fix=FIX, residual=left / ratio(wide_scalars=False))]


def _arrays_stay(transformation: Any, dtype: str) -> bool:
    """Whether in x64 a step makes no array in float64: then its scalars alone are."""
    from ...optimizer import SHAPE

    def step(parameter: jax.Array, gradient: jax.Array) -> Any:
        return transformation.update(gradient, transformation.init(parameter), parameter)

    with jax.enable_x64(True):
        given = jax.ShapeDtypeStruct(SHAPE, JAX_DTYPES[dtype])
        return re.search(r"\bf64\[\d", str(jax.make_jaxpr(step)(given, given))) is None
