"""Adam and its variants: `adam`, `adamw`, `adamax`, `nadam`, `radam`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .rule import (
    Rule,
    Slots,
    check_at_least_zero,
    check_betas,
    decoupled,
    lerp,
    one_minus_power,
    upwards,
    with_decay,
)
from .transformation import Group, LearningRate, Optimizer
from .ways import made, takes_ways

Betas = tuple[Any, Any]


@takes_ways
def adam(
    lr: LearningRate = 1e-3,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
    decoupled_weight_decay: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Adam as `torch.optim.Adam`. `optax.adam` computes `1 - beta**t` so that float32 keeps three digits of it.

    Args:
      lr: a number, or a schedule of `graphmode.optim.lr_scheduler` or optax: number of the update to learning rate.
      betas: coefficients of the running averages of the gradient and of its square; the first may be a schedule.
      eps: added to the root of the second average.
      weight_decay: of the L2 penalty, or, `decoupled_weight_decay`, as in AdamW.
      amsgrad: whether the largest second average so far counts.
      maximize: whether the objective is climbed.
      groups: parameters with arguments of their own; the first that takes a parameter counts.
      **ways: `foreach`, `fused`, `capturable` and `differentiable`, which PyTorch takes: without effect.

    Raises:
      ValueError: for arguments that PyTorch rejects; from `init`, for a group without parameters.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html

    Example:
      >>> import jax.numpy as jnp, optax
      >>> tx = adam(lr=0.1)
      >>> params = {"weight": jnp.ones(2)}
      >>> updates, state = tx.update({"weight": jnp.array([1.0, -1.0])}, tx.init(params), params)
      >>> optax.apply_updates(params, updates)["weight"]
      Array([0.9, 1.1], dtype=float32)
    """
    arguments = {
        "lr": lr,
        "betas": betas,
        "eps": eps,
        "weight_decay": weight_decay,
        "amsgrad": amsgrad,
        "maximize": maximize,
    }
    return made(ADAM, {**arguments, "decoupled_weight_decay": decoupled_weight_decay}, groups, ways)


@takes_ways
def adamw(
    lr: LearningRate = 1e-3,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Adam with decoupled weight decay, as `torch.optim.AdamW`. Arguments as those of `adam`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html
    """
    arguments = {
        "lr": lr,
        "betas": betas,
        "eps": eps,
        "weight_decay": weight_decay,
        "amsgrad": amsgrad,
        "maximize": maximize,
    }
    return made(ADAMW, {**arguments, "decoupled_weight_decay": True}, groups, ways)


@takes_ways
def adamax(
    lr: LearningRate = 2e-3,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    *,
    maximize: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Adam by the infinity norm, as `torch.optim.Adamax`: `eps` is added to the gradient's size. Otherwise as `adam`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adamax.html
    """
    return made(
        ADAMAX, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}, groups, ways
    )


@takes_ways
def nadam(
    lr: LearningRate = 2e-3,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum_decay: float = 4e-3,
    decoupled_weight_decay: bool = False,
    *,
    maximize: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Adam with Nesterov momentum, as `torch.optim.NAdam`. Otherwise as `adam`.

    Args:
      momentum_decay: how fast the momentum approaches `betas[0]`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.NAdam.html
    """
    arguments = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay}
    return made(
        NADAM, {**arguments, "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize}, groups, ways
    )


@takes_ways
def radam(
    lr: LearningRate = 1e-3,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled_weight_decay: bool = False,
    *,
    maximize: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Adam with a rectified variance, as `torch.optim.RAdam`. Otherwise as `adam`; no argument but `lr` is a schedule.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.RAdam.html
    """
    arguments = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    return made(
        RADAM, {**arguments, "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize}, groups, ways
    )


def _check(h: SimpleNamespace) -> None:
    check_at_least_zero(h, "lr", "eps", "weight_decay")
    check_betas(h)
    if hasattr(h, "momentum_decay"):
        check_at_least_zero(h, "momentum_decay")


def _moments(p: jax.Array, h: SimpleNamespace) -> Slots:
    names = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if getattr(h, "amsgrad", False) else [])
    return {name: jnp.zeros_like(p) for name in names}


def _corrections(step: jax.Array, h: SimpleNamespace) -> Slots:
    return {"correction1": one_minus_power(h.betas[0], step), "correction2": one_minus_power(h.betas[1], step)}


def _decayed(g: jax.Array, p: jax.Array, h: SimpleNamespace) -> tuple[jax.Array, jax.Array, Any]:
    """The gradient, the parameter that the step starts from, and what decoupled decay adds to it."""
    g = upwards(g, h)
    if h.decoupled_weight_decay:
        return g, p, decoupled(p, h)
    return with_decay(g, p, h), p, 0.0


def _averaged(g: jax.Array, s: Slots, h: SimpleNamespace) -> Slots:
    beta1, beta2 = h.betas
    return {
        "exp_avg": lerp(s["exp_avg"], g, 1 - beta1),
        "exp_avg_sq": beta2 * s["exp_avg_sq"] + (1 - beta2) * g * g,
    }


def _adam(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    g, p, decay = _decayed(g, p, h)
    new = _averaged(g, s, h)
    second = new["exp_avg_sq"]
    if h.amsgrad:
        second = new["max_exp_avg_sq"] = jnp.maximum(s["max_exp_avg_sq"], second)
    denominator = jnp.sqrt(second) / jnp.sqrt(c["correction2"]) + h.eps
    return decay - (h.lr / c["correction1"]) * new["exp_avg"] / denominator, new


def _adamax(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    g = with_decay(upwards(g, h), p, h)
    mean = lerp(s["exp_avg"], g, 1 - h.betas[0])
    largest = jnp.maximum(h.betas[1] * s["exp_inf"], jnp.abs(g) + h.eps)
    return -(h.lr / c["correction1"]) * mean / largest, {"exp_avg": mean, "exp_inf": largest}


def _nadam_slots(p: jax.Array, h: SimpleNamespace) -> Slots:
    return {**_moments(p, h), "mu_product": jnp.ones((), float)}


def _nadam_scalars(step: jax.Array, h: SimpleNamespace) -> Slots:
    def mu(at: jax.Array) -> jax.Array:
        return h.betas[0] * (1 - 0.5 * jnp.exp(at * (h.momentum_decay * math.log(0.96))))

    return {"correction2": one_minus_power(h.betas[1], step), "mu": mu(step), "mu_next": mu(step + 1)}


def _nadam(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    g, p, decay = _decayed(g, p, h)
    new = _averaged(g, s, h)
    product = s["mu_product"] * c["mu"]
    denominator = jnp.sqrt(new["exp_avg_sq"] / c["correction2"]) + h.eps
    by_gradient = h.lr * (1 - c["mu"]) / (1 - product)
    by_mean = h.lr * c["mu_next"] / (1 - product * c["mu_next"])
    return decay - (by_gradient * g + by_mean * new["exp_avg"]) / denominator, {**new, "mu_product": product}


def _radam_scalars(step: jax.Array, h: SimpleNamespace) -> Slots:
    """Length of the approximated moving average, and the rectification by it.

    `2 / (1 - beta) - 1 - 2 t beta**t / (1 - beta**t)` is a small difference of thousands. With `y = -log(beta)` the
    halves that cancel, `2 / y`, are left out of both, the first on the host.
    """
    beta = h.betas[1]
    longest = 2 / (1 - beta) - 1
    y = -math.log(beta) if beta > 0 else math.inf
    if beta > 0 and jnp.result_type(float) == np.float32:
        x = (step * y).astype(float)
        series = x * (1 / 12 - x * x * (1 / 720 - x * x * (1 / 30240 - x * x / 1209600)))
        rest = jnp.where(x < 0.5, series, 1 / jnp.expm1(x) - 1 / x + 0.5)  # 1 / (e**x - 1), its pole and half left out
        length = (step - 2 * step * rest) + (longest - 2 / y)
    else:
        power = jnp.exp(-step * y) if beta > 0 else jnp.zeros(step.shape, float)
        length = longest - 2 * step * power / (1 - power)
    with_room = jnp.maximum(length, 5.0)  # the root is not taken of what is not used
    constant = (longest - 4) * (longest - 2)
    rectified = jnp.sqrt((with_room - 4) * (with_room - 2) * longest / (constant * with_room)) if constant > 0 else 1.0
    return {**_corrections(step, h), "is_long": length > 5.0, "rectification": rectified * jnp.ones(step.shape, float)}


def _radam(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    g, p, decay = _decayed(g, p, h)
    new = _averaged(g, s, h)
    adaptive = c["rectification"] * jnp.sqrt(c["correction2"]) / (jnp.sqrt(new["exp_avg_sq"]) + h.eps)
    factor = jnp.where(c["is_long"] > 0, adaptive, 1.0)
    return decay - (h.lr / c["correction1"]) * new["exp_avg"] * factor, new


def _adamax_slots(p: jax.Array, h: SimpleNamespace) -> Slots:
    return {"exp_avg": jnp.zeros_like(p), "exp_inf": jnp.zeros_like(p)}


def _first_correction(step: jax.Array, h: SimpleNamespace) -> Slots:
    return {"correction1": one_minus_power(h.betas[0], step)}


ADAM = Rule("Adam", _moments, _adam, _corrections, _check, schedulable=("betas",))
ADAMW = Rule("AdamW", _moments, _adam, _corrections, _check, schedulable=("betas",))
ADAMAX = Rule(
    "Adamax",
    _adamax_slots,
    _adamax,
    _first_correction,
    _check,
    schedulable=("betas",),
)
NADAM = Rule("NAdam", _nadam_slots, _nadam, _nadam_scalars, _check, schedulable=("betas",))
RADAM = Rule("RAdam", _moments, _radam, _radam_scalars, _check)
