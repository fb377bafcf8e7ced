"""Optimizers that see a parameter as a matrix: `adafactor` keeps rows and columns, `muon` steps orthogonally."""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import SimpleNamespace

import jax
import jax.numpy as jnp

from .rule import Rule, Slots, check_at_least_zero, check_count, check_range, decoupled, lerp, upwards
from .transformation import Group, LearningRate, Optimizer
from .ways import made, takes_ways


@takes_ways
def adafactor(
    lr: LearningRate = 1e-2,
    beta2_decay: float = -0.8,
    eps: tuple[float | None, float] = (None, 1e-3),
    d: float = 1.0,
    weight_decay: float = 0.0,
    *,
    maximize: bool = False,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Adafactor as `torch.optim.Adafactor`: second moments by rows and columns of the last two axes, PyTorch's.

    `gm.train_step` knows which axes those are; elsewhere `adafactor(...).for_model(model)` does.

    Args:
      lr: a number, or a schedule: number of the update to learning rate.
      beta2_decay: power of the step by which a new square's weight falls.
      eps: the least root of a second moment (None: the dtype's epsilon) and the least root mean square of a parameter.
      d: above which root mean square an update is scaled down.
      weight_decay: decoupled.
      maximize: whether the objective is climbed.
      groups: parameters with arguments of their own; the first that takes a parameter counts.
      **ways: `foreach`, `fused`, `capturable` and `differentiable`, which PyTorch takes: without effect.

    Raises:
      ValueError: for arguments that PyTorch rejects.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html
    """
    arguments = {
        "lr": lr,
        "beta2_decay": beta2_decay,
        "eps": eps,
        "d": d,
        "weight_decay": weight_decay,
        "maximize": maximize,
    }
    return made(ADAFACTOR, arguments, groups, ways)


@takes_ways
def muon(
    lr: LearningRate = 1e-3,
    weight_decay: float = 0.1,
    momentum: float = 0.95,
    nesterov: bool = True,
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
    eps: float = 1e-7,
    ns_steps: int = 5,
    adjust_lr_fn: str | None = None,
    *,
    groups: Iterable[Group] = (),
    **ways: bool | None,
) -> Optimizer:
    """Momentum made orthogonal by Newton-Schulz iterations in bfloat16, as `torch.optim.Muon`; for matrices alone.

    `gm.train_step` knows which axis PyTorch puts first; elsewhere `muon(...).for_model(model)` does. Other parameters
    go to another optimizer: `optax.partition`. Of a bfloat16 parameter without `nesterov`, PyTorch 2.13 divides the
    momentum that it keeps by its norm at each step, and so does this.

    Args:
      lr: a number, or a schedule: number of the update to learning rate.
      weight_decay: decoupled.
      momentum: kept fraction of the momentum; it may be a schedule.
      nesterov: whether the step looks ahead along it.
      ns_coefficients: of the iteration's polynomial.
      eps: the least norm that the momentum is divided by.
      ns_steps: iterations, fewer than 100.
      adjust_lr_fn: `"original"` (None too) scales by `sqrt(max(1, rows / columns))`, `"match_rms_adamw"` by
        `0.2 * sqrt(max(rows, columns))`.
      groups: parameters with arguments of their own; the first that takes a parameter counts.
      **ways: `foreach`, `fused`, `capturable` and `differentiable`, which PyTorch takes: without effect.

    Raises:
      ValueError: for arguments that PyTorch rejects; from `init`, for a parameter that is no matrix.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Muon.html
    """
    arguments = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "eps": eps}
    more = {"ns_coefficients": ns_coefficients, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
    return made(MUON, {**arguments, **more}, groups, ways)


def _check_adafactor(h: SimpleNamespace) -> None:
    check_at_least_zero(h, "lr", "weight_decay")
    check_range("d", h.d, low=1.0)
    if not isinstance(h.beta2_decay, jax.core.Tracer) and not h.beta2_decay <= 0:
        raise ValueError(f"beta2_decay is {h.beta2_decay!r}; give a number of at most 0")
    check_count("eps", h.eps, 2)
    for index, eps in enumerate(h.eps):
        if eps is not None or index == 1:
            check_range(f"eps[{index}]", eps, low=0.0)


def _adafactor_slots(p: jax.Array, h: SimpleNamespace) -> Slots:
    if p.ndim < 2:
        return {"variance": jnp.zeros_like(p)}
    return {
        "row_var": jnp.zeros((*p.shape[:-1], 1), p.dtype),
        "col_var": jnp.zeros((*p.shape[:-2], 1, p.shape[-1]), p.dtype),
    }


def _adafactor(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    g = upwards(g, h)
    step = c["step"].astype(p.dtype)
    weight = step**h.beta2_decay
    least = float(jnp.finfo(h.dtype).eps) if h.eps[0] is None else h.eps[0]
    # PyTorch takes Python's max, in which NaN is no largest
    size = jnp.fmax(h.eps[1], _root_mean_square(p)) * jnp.minimum(h.lr, 1 / jnp.sqrt(step))
    if g.ndim > 1:
        rows = lerp(s["row_var"], jnp.mean(g * g, -1, keepdims=True), weight)
        columns = lerp(s["col_var"], jnp.mean(g * g, -2, keepdims=True), weight)
        variance = rows * columns / jnp.maximum(jnp.mean(rows, -2, keepdims=True), least)
        new = {"row_var": rows, "col_var": columns}
    else:
        variance = lerp(s["variance"], g * g, weight)
        new = {"variance": variance}
    update = jax.lax.rsqrt(jnp.maximum(variance, least * least)) * g
    clipped = jnp.fmax(1.0, _root_mean_square(update) / h.d)
    return decoupled(p, h) - (size / clipped) * update, new


def _root_mean_square(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(x * x)) / math.sqrt(x.size)


def _check_muon(h: SimpleNamespace) -> None:
    check_at_least_zero(h, "lr", "momentum", "weight_decay")
    check_range("eps", h.eps, low=-math.inf)  # PyTorch takes any
    if h.adjust_lr_fn not in (None, "original", "match_rms_adamw"):
        raise ValueError(f"adjust_lr_fn is {h.adjust_lr_fn!r}; choose 'original' or 'match_rms_adamw'")
    check_count("ns_coefficients", h.ns_coefficients, 3)
    if not isinstance(h.ns_steps, jax.core.Tracer) and h.ns_steps >= 100:
        raise ValueError(f"ns_steps is {h.ns_steps}; give fewer than 100")


def _check_matrix(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise ValueError(
            f"{name} has shape {shape}, and muon steps matrices: give the others to another optimizer with "
            "optax.partition"
        )


def _muon(g: jax.Array, p: jax.Array, s: Slots, c: Slots, h: SimpleNamespace) -> tuple[jax.Array, Slots]:
    buffer = lerp(s["momentum_buffer"], g, 1 - h.momentum)
    if h.nesterov:
        direction = _orthogonal(_scaled(lerp(g, buffer, h.momentum), h), h).astype(p.dtype)
    else:
        scaled = _scaled(buffer, h)
        direction = _orthogonal(scaled, h).astype(p.dtype)
        if h.dtype == jnp.bfloat16:  # PyTorch scales in place what it has cast, and a cast to the same dtype is no copy
            buffer = scaled.astype(p.dtype)
    rows, columns = p.shape
    ratio = math.sqrt(max(1, rows / columns))
    if h.adjust_lr_fn == "match_rms_adamw":
        ratio = 0.2 * math.sqrt(max(rows, columns))
    return decoupled(p, h) - (h.lr * ratio) * direction, {"momentum_buffer": buffer}


def _scaled(matrix: jax.Array, h: SimpleNamespace) -> jax.Array:
    """In bfloat16, divided by its norm."""
    x = matrix.astype(jnp.bfloat16)
    norm = jnp.sqrt(jnp.sum(jnp.square(x.astype(jnp.float32)))).astype(jnp.bfloat16)
    return x / jnp.maximum(norm, jnp.asarray(h.eps, jnp.bfloat16))


def _orthogonal(x: jax.Array, h: SimpleNamespace) -> jax.Array:
    a, b, c = h.ns_coefficients
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x

    def closer(x: jax.Array) -> jax.Array:
        gram = _product(x, x.T).astype(jnp.bfloat16)
        polynomial = (b * gram.astype(jnp.float32) + c * _product(gram, gram)).astype(jnp.bfloat16)
        return (a * x.astype(jnp.float32) + _product(polynomial, x)).astype(jnp.bfloat16)

    if isinstance(h.ns_steps, jax.Array):
        x = jax.lax.fori_loop(0, h.ns_steps.astype(jnp.int32), lambda _, x: closer(x), x)
    else:
        for _ in range(h.ns_steps):
            x = closer(x)
    return x.T if is_tall else x


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)


def _muon_slots(p: jax.Array, h: SimpleNamespace) -> Slots:
    return {"momentum_buffer": jnp.zeros_like(p)}


ADAFACTOR = Rule("Adafactor", _adafactor_slots, _adafactor, check=_check_adafactor, in_torchs_layout=True)
MUON = Rule(
    "Muon",
    _muon_slots,
    _muon,
    check=_check_muon,
    schedulable=("momentum",),
    in_torchs_layout=True,
    check_shape=_check_matrix,
    counts=False,
)
