"""Steps scaled by sums or averages of squared gradients: `adagrad`, `adadelta`, `rmsprop`."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import jax
import jax.numpy as jnp

from .rule import Rule, Slots, check_at_least_zero, check_range, is_zero, lerp, upwards, with_decay
from .transformation import Group, LearningRate, Optimizer
from .ways import made, takes_ways


@takes_ways
def adagrad(
    lr: LearningRate = 1e-2,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial_accumulator_value: float = 0.0,
    eps: float = 1e-10,
    *,
    maximize: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Adagrad as `torch.optim.Adagrad`.

    Args:
      lr: a number, or a schedule: number of the update to learning rate.
      lr_decay: `lr` is divided by `1 + (t - 1) * lr_decay` at a parameter's step t, counted from 1.
      weight_decay: of the L2 penalty.
      initial_accumulator_value: that the sum of squares starts from, in all groups.
      eps: added to its root.
      maximize: whether the objective is climbed.
      groups: parameters with arguments of their own; the first that takes a parameter counts.
      **ways: `foreach`, `fused`, `capturable` and `differentiable`, which PyTorch takes: without effect.

    Raises:
      ValueError: for arguments that PyTorch rejects.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adagrad.html
    """
    arguments = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps, "maximize": maximize}
    return made(ADAGRAD, {**arguments, "initial_accumulator_value": initial_accumulator_value}, groups, ways)


@takes_ways
def adadelta(
    lr: LearningRate = 1.0,
    rho: float = 0.9,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    *,
    maximize: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Adadelta as `torch.optim.Adadelta`. Arguments as those of `adagrad`, and `rho`, the kept fraction of averages.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adadelta.html
    """
    return made(
        ADADELTA, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}, groups, ways
    )


@takes_ways
def rmsprop(
    lr: LearningRate = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
    *,
    maximize: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """RMSprop as `torch.optim.RMSprop`: `eps` is added outside of the root, as TensorFlow's is not.

    Args:
      lr, weight_decay, maximize, groups, **ways: as those of `adagrad`.
      alpha: kept fraction of the average of squares.
      eps: added to its root.
      momentum: kept fraction of the momentum; it may be a schedule.
      centered: whether the squared average of the gradient is subtracted first.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.RMSprop.html
    """
    arguments = {
        "lr": lr,
        "alpha": alpha,
        "eps": eps,
        "weight_decay": weight_decay,
        "momentum": momentum,
        "centered": centered,
    }
    return made(RMSPROP, {**arguments, "maximize": maximize}, groups, ways)


def _adagrad(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    g = with_decay(upwards(g, h), p, h)
    total = s["sum"] + g * g
    lr = h.lr if is_zero(h.lr_decay) else h.lr / (1 + (c["step"] - 1).astype(p.dtype) * h.lr_decay)
    return -lr * g / (jnp.sqrt(total) + h.eps), {"sum": total}


def _adadelta(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    g = with_decay(upwards(g, h), p, h)
    squares = h.rho * s["square_avg"] + (1 - h.rho) * g * g
    delta = jnp.sqrt(s["acc_delta"] + h.eps) / jnp.sqrt(squares + h.eps) * g
    return -h.lr * delta, {"square_avg": squares, "acc_delta": h.rho * s["acc_delta"] + (1 - h.rho) * delta * delta}


def _rmsprop_slots(p: jax.Array, h: SimpleNamespace) -> Slots:
    names = ["square_avg"] + ["momentum_buffer"] * (not is_zero(h.momentum)) + ["grad_avg"] * h.centered
    return {name: jnp.zeros_like(p) for name in names}


def _rmsprop(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    g = with_decay(upwards(g, h), p, h)
    squares = h.alpha * s["square_avg"] + (1 - h.alpha) * g * g
    new = {"square_avg": squares}
    if h.centered:
        mean = new["grad_avg"] = lerp(s["grad_avg"], g, 1 - h.alpha)
        squares = squares - mean * mean
    scaled = g / (jnp.sqrt(squares) + h.eps)
    if not is_zero(h.momentum):
        scaled = new["momentum_buffer"] = h.momentum * s["momentum_buffer"] + scaled
    return -h.lr * scaled, new


def _check_adagrad(h: SimpleNamespace) -> None:
    check_at_least_zero(h, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")


def _check_adadelta(h: SimpleNamespace) -> None:
    check_at_least_zero(h, "lr", "eps", "weight_decay")
    check_range("rho", h.rho, low=0.0, high=1.0)


def _check_rmsprop(h: SimpleNamespace) -> None:
    check_at_least_zero(h, "lr", "eps", "momentum", "weight_decay", "alpha")


def _adagrad_slots(p: jax.Array, h: SimpleNamespace) -> Slots:
    return {"sum": jnp.full_like(p, h.initial_accumulator_value)}


def _adadelta_slots(p: jax.Array, h: SimpleNamespace) -> Slots:
    return {"square_avg": jnp.zeros_like(p), "acc_delta": jnp.zeros_like(p)}


ADAGRAD = Rule(
    "Adagrad",
    _adagrad_slots,
    _adagrad,
    check=_check_adagrad,
    shared=("initial_accumulator_value",),
)
ADADELTA = Rule(
    "Adadelta",
    _adadelta_slots,
    _adadelta,
    check=_check_adadelta,
)
RMSPROP = Rule("RMSprop", _rmsprop_slots, _rmsprop, check=_check_rmsprop, schedulable=("momentum",))
