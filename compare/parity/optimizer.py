"""The optimizer by itself: the same gradients through both sides of it, from parameters of zero.

Added to a parameter an update is rounded to the parameter's last digit, and in a step of training it comes from
gradients with errors of their own. Either hides how well it was computed: the `1 - beta**t` of `optax.adam` has lost
some of its seven digits in float32. Here nothing else is rounded.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

from ..case import TRAIN_STEPS, Case
from ..draw import generator
from ..dtypes import JAX_DTYPES, torch_dtype
from ..errors import describe_briefly
from ..report.records import Tensor
from ..wide_counts import with_wide_counts
from .yardstick import PRECISE_RATIO, Difference, difference, error_ratio

SHAPE = (64, 64)
DRAWS = 3
SMALLEST = 1e-4  # of the largest gradient's size


def examine_optimizer(case: Case, *, seed: int, dtype: str, device: str) -> Tensor | str:
    """Both verdicts on the optax side of the case's optimizer, or why there are none.

    Args:
      case: with an optimizer.
      seed: of the gradients, `[64, 64]`, whose sizes span four decades.
      dtype: that people run.
      device: `"cpu"` or `"gpu"`.
    """
    assert case.optimizer is not None
    make, transformation = case.optimizer
    draws = [gradients(case, seed, i) for i in range(DRAWS)]
    try:
        exact, usual = ([in_torch(make, g, name, device)[-1] for g in draws] for name in ("float64", dtype))
        ported = [[in_jax(transformation, g, name, device)[-1] for g in draws] for name in ("float64", dtype)]
    except Exception as error:
        return f"train_step: the optimizer was not judged by itself, on a single array: {describe_briefly(error)}"
    worst, at = _worst(ported[0], exact)
    ratio = error_ratio(ported[1], usual, exact, dtype=dtype)
    return Tensor(
        name="optimizer",
        kind="update",
        mode="train_step",
        equal=worst.equal,
        precise=ratio is not None and ratio <= PRECISE_RATIO,
        error=worst.error,
        ratio=ratio,
        input=f"gradients {at}",
        index=worst.index,
        port_value=worst.port,
        reference_value=worst.reference,
        note="; ".join(filter(None, (worst.note, "given the same gradients, from parameters of zero"))),
    )


def worst_in(case: Case, *, seed: int, dtype: str, device: str) -> tuple[Difference, str]:
    """How far the optax side of an optimizer that can be judged is off in a dtype, and on which gradients."""
    assert case.optimizer is not None
    make, transformation = case.optimizer
    draws = [gradients(case, seed, i) for i in range(DRAWS)]
    exact = [in_torch(make, g, "float64", device)[-1] for g in draws]
    worst, at = _worst([in_jax(transformation, g, dtype, device)[-1] for g in draws], exact)
    return worst, f"gradients {at}"


def _worst(ported: list[np.ndarray], exact: list[np.ndarray]) -> tuple[Difference, int]:
    found = [difference(ours, theirs) for ours, theirs in zip(ported, exact, strict=True)]
    at = max(range(len(found)), key=lambda i: found[i].error)
    return found[at], at


def gradients(case: Case, seed: int, index: int, shape: tuple[int, ...] = SHAPE) -> list[np.ndarray]:
    """One a step, each element's in a decade of its own."""
    rng = generator(case, seed, "optimizer", index)
    sizes = SMALLEST ** rng.uniform(0, 1, shape)
    return [np.asarray(sizes * rng.standard_normal(shape), np.float32) for _ in range(TRAIN_STEPS)]


def in_torch(
    make: Any, gradients: list[np.ndarray], dtype: str, device: str, *, start: np.ndarray | None = None
) -> np.ndarray:
    """The parameters after each step on these gradients, from `start` or zero, `[steps, *shape]`."""
    start = np.zeros(gradients[0].shape) if start is None else start
    options: Any = {"dtype": torch_dtype(dtype), "device": "cuda" if device == "gpu" else "cpu"}
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()).to(**options))
    optimizer = make([parameter])
    after = []
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient.copy()).to(**options)  # a hook may clip it in place
        optimizer.step()
        after.append(parameter.detach().to("cpu", torch.float64, copy=True).numpy())
    return np.stack(after)


def in_jax(
    transformation: Any,
    gradients: list[np.ndarray],
    dtype: str,
    device: str,
    *,
    start: np.ndarray | None = None,
    wide_scalars: bool = False,
) -> np.ndarray:
    """The same of an optax transformation; `wide_scalars` has numbers that are no arrays in float64 in each dtype."""
    transformation = with_wide_counts(transformation)
    start = np.zeros(gradients[0].shape) if start is None else start

    @jax.jit
    def step(parameter: jax.Array, state: Any, gradient: jax.Array) -> tuple[jax.Array, Any]:
        updates, state = transformation.update(gradient, state, parameter)
        return optax.apply_updates(parameter, updates), state

    with jax.enable_x64(wide_scalars or dtype == "float64"), jax.default_device(jax.devices(device)[0]):
        parameter = jnp.asarray(start, JAX_DTYPES[dtype])
        state = transformation.init(parameter)
        after = []
        for gradient in gradients:
            parameter, state = step(parameter, state, jnp.asarray(gradient, parameter.dtype))
            after.append(np.asarray(parameter).astype(np.float64))
        return np.stack(after)
