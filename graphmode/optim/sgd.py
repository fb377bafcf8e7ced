"""Plain and averaged stochastic gradient descent, and resilient propagation: `sgd`, `asgd`, `rprop`."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import jax
import jax.numpy as jnp

from .rule import Rule, Slots, check_at_least_zero, check_count, is_zero, lerp, upwards, with_decay
from .transformation import Group, LearningRate, Optimizer
from .ways import made, takes_ways


@takes_ways
def sgd(
    lr: LearningRate = 1e-3,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    *,
    maximize: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Stochastic gradient descent as `torch.optim.SGD`: the first gradient enters the momentum undampened.

    Args:
      lr: a number, or a schedule: number of the update to learning rate.
      momentum: kept fraction of the momentum; it may be a schedule.
      dampening: left out of each further gradient.
      weight_decay: of the L2 penalty.
      nesterov: whether the step looks ahead along the momentum.
      maximize: whether the objective is climbed.
      groups: parameters with arguments of their own; the first that takes a parameter counts.
      **ways: `foreach`, `fused`, `capturable` and `differentiable`, which PyTorch takes: without effect.

    Raises:
      ValueError: for arguments that PyTorch rejects, such as Nesterov's without momentum.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html

    Example:
      >>> import jax.numpy as jnp, optax
      >>> tx = sgd(lr=0.5, momentum=0.9)
      >>> params = {"weight": jnp.ones(2)}
      >>> updates, state = tx.update({"weight": jnp.ones(2)}, tx.init(params), params)
      >>> optax.apply_updates(params, updates)["weight"]
      Array([0.5, 0.5], dtype=float32)
    """
    arguments = {
        "lr": lr,
        "momentum": momentum,
        "dampening": dampening,
        "weight_decay": weight_decay,
        "nesterov": nesterov,
    }
    return made(SGD, {**arguments, "maximize": maximize}, groups, ways)


@takes_ways
def asgd(
    lr: LearningRate = 1e-2,
    lambd: float = 1e-4,
    alpha: float = 0.75,
    t0: float = 1e6,
    weight_decay: float = 0.0,
    *,
    maximize: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Averaged stochastic gradient descent as `torch.optim.ASGD`; the average is the slot `ax`.

    Args:
      lr, weight_decay, maximize, groups, **ways: as those of `sgd`.
      lambd: decay of the parameters.
      alpha: power by which the step size falls.
      t0: number of the step at which averaging starts.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.ASGD.html
    """
    arguments = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "maximize": maximize}
    return made(ASGD, arguments, groups, ways)


@takes_ways
def rprop(
    lr: LearningRate = 1e-2,
    etas: tuple[float, float] = (0.5, 1.2),
    step_sizes: tuple[float, float] = (1e-6, 50.0),
    *,
    maximize: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Resilient backpropagation as `torch.optim.Rprop`: steps by the gradient's sign, each element of its own size.

    Args:
      lr: size of the first step, and nothing later: a schedule changes no further one, as in PyTorch.
      etas: factors of a step's size where the sign has changed, and where it has not.
      step_sizes: the smallest and the largest.
      maximize, groups, **ways: as those of `sgd`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Rprop.html
    """
    return made(RPROP, {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}, groups, ways)


def _check_sgd(h: SimpleNamespace) -> None:
    check_at_least_zero(h, "lr", "momentum", "weight_decay")
    damps = not isinstance(h.dampening, jax.core.Tracer) and h.dampening != 0
    if h.nesterov and (is_zero(h.momentum) or damps):
        raise ValueError(
            f"nesterov is True with momentum={h.momentum!r} and dampening={h.dampening!r}; give a momentum above 0 and "
            "no dampening"
        )


def _sgd(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    g = with_decay(upwards(g, h), p, h)
    if is_zero(h.momentum):
        return -h.lr * g, {}
    further = h.momentum * s["momentum_buffer"] + (1 - h.dampening) * g
    buffer = further if is_zero(h.dampening) else jnp.where(c["step"] == 1, g, further)
    step = g + h.momentum * buffer if h.nesterov else buffer
    if isinstance(h.momentum, jax.Array):  # PyTorch looks at no momentum and no dampening where it is zero
        step = jnp.where(h.momentum == 0, g, step)
        buffer = jnp.where(h.momentum == 0, s["momentum_buffer"], buffer)
    return -h.lr * step, {"momentum_buffer": buffer}


def _asgd_slots(p: jax.Array, h: SimpleNamespace) -> Slots:
    return {"ax": jnp.zeros_like(p), "eta": jnp.asarray(h.lr, float), "mu": jnp.ones((), float)}


def _asgd(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    g = with_decay(upwards(g, h), p, h)
    eta = jnp.where(c["step"] == 1, h.lr, s["eta"])  # PyTorch takes that of the first gradient
    delta = -h.lambd * eta * p - eta * g
    new = p + delta
    step = c["step"].astype(eta.dtype)
    return delta, {
        "ax": jnp.where(s["mu"] == 1, new, lerp(s["ax"], new, s["mu"])),
        "eta": h.lr / (1 + h.lambd * h.lr * step) ** h.alpha,
        "mu": 1 / jnp.maximum(1, step - h.t0),
    }


def _check_rprop(h: SimpleNamespace) -> None:
    check_at_least_zero(h, "lr")
    check_count("etas", h.etas, 2)
    check_count("step_sizes", h.step_sizes, 2)
    if not 0 < h.etas[0] < 1 < h.etas[1]:
        raise ValueError(f"etas is {h.etas!r}; give one between 0 and 1, and one above 1")


def _rprop(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    g = upwards(g, h)
    agreement = g * s["prev"]
    factor = jnp.where(agreement > 0, h.etas[1], jnp.where(agreement < 0, h.etas[0], 1.0))
    size = jnp.where(c["step"] == 1, h.lr, s["step_size"])  # PyTorch takes that of the first gradient
    size = jnp.clip(size * factor, *h.step_sizes)
    g = jnp.where(agreement < 0, 0, g)
    sign = jnp.where(jnp.isnan(g), 0, jnp.sign(g))  # as torch.sign: the parameter stays
    return -sign * size, {"prev": g, "step_size": size}


def _check_asgd(h: SimpleNamespace) -> None:
    check_at_least_zero(h, "lr", "weight_decay")


def _sgd_slots(p: jax.Array, h: SimpleNamespace) -> Slots:
    return {} if is_zero(h.momentum) else {"momentum_buffer": jnp.zeros_like(p)}


def _rprop_slots(p: jax.Array, h: SimpleNamespace) -> Slots:
    return {"prev": jnp.zeros_like(p), "step_size": jnp.full_like(p, h.lr)}


SGD = Rule(
    "SGD",
    _sgd_slots,
    _sgd,
    check=_check_sgd,
    schedulable=("momentum",),
    counts=False,
)
ASGD = Rule("ASGD", _asgd_slots, _asgd, check=_check_asgd)
RPROP = Rule(
    "Rprop",
    _rprop_slots,
    _rprop,
    check=_check_rprop,
)
