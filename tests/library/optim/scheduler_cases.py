"""Schedulers by one expression for both sides: torch's take the optimizer where ours take the learning rate."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.optim import lr_scheduler as theirs
from torch.optim import swa_utils

from graphmode.optim import lr_scheduler as ours

LR = 0.3
STEPS = 150
Build = Callable[[Any, Any], Any]  # of a side, and of the optimizer or the learning rate


def where(condition: Any, yes: Any, no: Any) -> Any:
    """What a user writes with jnp.where, but quick where the condition is known."""
    return jnp.where(condition, yes, no) if isinstance(condition, jax.Array) else yes if condition else no


TORCH = types.SimpleNamespace(**vars(theirs), SWALR=swa_utils.SWALR, where=where)
OURS = types.SimpleNamespace(**{name: getattr(ours, name) for name in ours.__all__}, where=where)

LEAVES: Mapping[str, Build] = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda n: 0.95**n),
    "lambda, branch": lambda s, o: s.LambdaLR(o, lambda n: s.where(n < 20, (n + 1) / 20, 1 / (1 + n))),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda n: 0.97),
    "multiplicative, branch": lambda s, o: s.MultiplicativeLR(o, lambda n: s.where(n % 3 == 0, 1.02, 0.95)),
    "step": lambda s, o: s.StepLR(o, step_size=30, gamma=0.1),
    "step, default": lambda s, o: s.StepLR(o, 7),
    "step, each": lambda s, o: s.StepLR(o, step_size=1, gamma=1.01),
    "step, sign": lambda s, o: s.StepLR(o, step_size=-4, gamma=-0.9),
    "multistep": lambda s, o: s.MultiStepLR(o, milestones=[30, 80], gamma=0.1),
    "multistep, repeated": lambda s, o: s.MultiStepLR(o, [10, 10, 50, 10, 200], gamma=0.5),
    "multistep, zero": lambda s, o: s.MultiStepLR(o, [5, 0, 0, 90, -3], gamma=0.7),
    "multistep, none": lambda s, o: s.MultiStepLR(o, []),
    "constant": lambda s, o: s.ConstantLR(o),
    "constant, long": lambda s, o: s.ConstantLR(o, factor=0.5, total_iters=400),
    "constant, never": lambda s, o: s.ConstantLR(o, factor=0.7, total_iters=0),
    "linear": lambda s, o: s.LinearLR(o),
    "linear, down": lambda s, o: s.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=77),
    "linear, to zero": lambda s, o: s.LinearLR(o, start_factor=0.9, end_factor=0.0, total_iters=40),
    "linear, never": lambda s, o: s.LinearLR(o, start_factor=0.9, total_iters=0),
    "linear, long": lambda s, o: s.LinearLR(o, start_factor=1e-3, total_iters=1000),
    "exponential": lambda s, o: s.ExponentialLR(o, gamma=0.9),
    "exponential, up": lambda s, o: s.ExponentialLR(o, gamma=1.1),
    "exponential, zero": lambda s, o: s.ExponentialLR(o, gamma=0.0),
    "polynomial": lambda s, o: s.PolynomialLR(o),
    "polynomial, long": lambda s, o: s.PolynomialLR(o, total_iters=120, power=0.9),
    "polynomial, square": lambda s, o: s.PolynomialLR(o, total_iters=400, power=2.0),
    "polynomial, never": lambda s, o: s.PolynomialLR(o, total_iters=0),
    "polynomial, flat": lambda s, o: s.PolynomialLR(o, total_iters=30, power=0.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, T_max=40),
    "cosine, floor": lambda s, o: s.CosineAnnealingLR(o, T_max=33, eta_min=0.01),
    "cosine, long": lambda s, o: s.CosineAnnealingLR(o, T_max=1000, eta_min=1e-4),
    "cosine, one": lambda s, o: s.CosineAnnealingLR(o, T_max=1, eta_min=0.02),
    "cosine, above": lambda s, o: s.CosineAnnealingLR(o, T_max=10, eta_min=1.5),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=20),
    "restarts, double": lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.001),
    "restarts, one": lambda s, o: s.CosineAnnealingWarmRestarts(o, 1, 3, 0.1),
    "cyclic": lambda s, o: s.CyclicLR(o, base_lr=0.01, max_lr=0.1, step_size_up=10),
    "cyclic, down": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 7, 13, base_momentum=0.6, max_momentum=0.95),
    "cyclic, saw": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 7, 0),
    "cyclic, halved": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 10, mode="triangular2"),
    "cyclic, exp": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 10, mode="exp_range", gamma=0.99),
    "cyclic, own": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 10, mode="?", scale_fn=lambda x: 1 / (5.0 ** (x * 1e-2))),
    "cyclic, own count": lambda s, o: s.CyclicLR(
        o, 0.01, 0.1, 10, 3, scale_fn=lambda n: s.where(n > 50, 0.5, 1.0), scale_mode="iterations"
    ),
    "cyclic, no momentum": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 10, cycle_momentum=False),
    "one cycle": lambda s, o: s.OneCycleLR(o, max_lr=0.5, total_steps=149),
    "one cycle, epochs": lambda s, o: s.OneCycleLR(o, 0.5, epochs=20, steps_per_epoch=8, pct_start=0.21),
    "one cycle, linear": lambda s, o: s.OneCycleLR(o, 0.5, 160, anneal_strategy="linear"),
    "one cycle, three": lambda s, o: s.OneCycleLR(o, 0.5, 155, three_phase=True),
    "one cycle, three linear": lambda s, o: s.OneCycleLR(
        o, 0.5, 155, three_phase=True, anneal_strategy="linear", pct_start=0.33, div_factor=7, final_div_factor=11
    ),
    "one cycle, wide": lambda s, o: s.OneCycleLR(o, 0.5, 155, three_phase=True, pct_start=0.9),
    "one cycle, early": lambda s, o: s.OneCycleLR(o, 0.5, 155, pct_start=0.0, cycle_momentum=False),
    "one cycle, late": lambda s, o: s.OneCycleLR(o, 0.5, 151, pct_start=1.0, base_momentum=0.5, max_momentum=0.99),
    "swa": lambda s, o: s.SWALR(o, swa_lr=0.05),
    "swa, linear": lambda s, o: s.SWALR(o, swa_lr=0.5, anneal_epochs=60, anneal_strategy="linear"),
    "swa, at once": lambda s, o: s.SWALR(o, swa_lr=0.05, anneal_epochs=0),
}

# one of each kind, that no member's own end stops
KINDS = (
    "lambda, branch",
    "multiplicative, branch",
    "step, default",
    "multistep, zero",
    "constant",
    "linear",
    "exponential",
    "polynomial, long",
    "cosine, floor",
    "restarts, double",
    "cyclic, down",
    "one cycle",
    "swa",
    "swa, linear",
    "swa, at once",
)
FIRST_KINDS = ("lambda, branch", "multiplicative, branch", "linear", "cosine, floor", "cyclic, down", "swa")


def sequential(*parts: Any) -> Build:
    """Names of leaves, or builds, and milestones between them."""
    members, milestones = parts[::2], list(parts[1::2])
    return lambda s, o: s.SequentialLR(o, [build(one)(s, o) for one in members], milestones=milestones)


def chained(*parts: Any) -> Build:
    return lambda s, o: s.ChainedScheduler([build(one)(s, o) for one in parts])


def build(part: Any) -> Build:
    return LEAVES[part] if isinstance(part, str) else part


def composed_with(kinds: Iterable[str]) -> dict[str, Build]:
    """Every way to put together each of the kinds with others."""
    kinds = tuple(kinds)
    return {
        **{f"linear, then {kind}": sequential("linear", 12, kind) for kind in kinds},
        **{f"{kind}, then cosine": sequential(kind, 31, "cosine, floor") for kind in kinds},
        **{
            f"{kind}, then multiplicative, then swa": sequential(kind, 9, "multiplicative", 50, "swa") for kind in kinds
        },
        **{f"exponential and {kind}": chained("exponential", kind) for kind in kinds},
        **{f"{kind} and cosine": chained(kind, "cosine, floor") for kind in kinds},
        **{f"cosine, {kind} and linear": chained("cosine", kind, "linear") for kind in kinds},
        **{f"{kind} alone": chained(kind) for kind in kinds},
        **{
            f"chain with {kind}, then step": sequential(chained(kind, "multistep"), 20, "step, default")
            for kind in kinds
        },
        **{f"sequence with {kind}, then step": sequential(sequential(kind, 9, "swa"), 40, "step") for kind in kinds},
        **{
            f"three levels with {kind}": sequential(
                sequential(sequential(kind, 2, "cosine"), 20, kind), 60, "swa, linear"
            )
            for kind in kinds
        },
        **{f"chain of sequence to {kind}": chained("linear", sequential("constant", 9, kind)) for kind in kinds},
        **{f"sequence in chain after {kind}": chained(sequential(kind, 30, "cosine"), kind, "swa") for kind in kinds},
    }


COMPOSED: Mapping[str, Build] = {
    **composed_with(FIRST_KINDS),
    "milestone zero": sequential("linear", 0, "exponential", 10, "cosine"),
    "milestones equal": sequential("linear", 10, chained("exponential"), 10, "cosine"),
    "milestone never": sequential("linear", 10, "exponential", 10**12, "cosine"),
    "one member": sequential("cosine"),
    "composite skipped": sequential("linear", 0, chained("step", "cosine"), 70, "swa"),
    "inner milestone of one": sequential(sequential("exponential", 1, "swa"), 60, "step"),
    "inner milestones of one and two": sequential(
        sequential(sequential("exponential", 1, "swa", 2, "multiplicative"), 9, "cosine"), 60, "step"
    ),
    # torch steps a member of a composite at epoch 0 once more: the recursion begins off its base, and goes past T_max
    "cosine off its base": sequential(chained("cosine, floor"), 140, "swa"),
    "cosine off its base, inner": sequential(sequential("cosine, floor", 120, "swa"), 140, "step"),
    "chain of chains": chained(chained("exponential", "cosine"), chained("linear", "multistep, zero")),
    "two cycles share a group": chained(
        "one cycle", lambda s, o: s.OneCycleLR(o, 0.7, 200, pct_start=0.5, div_factor=3), "exponential"
    ),
    "one cycle moves the base": sequential("one cycle", 50, "cosine", 90, "linear"),
    "two swa share a rate": sequential("swa", 5, "swa, linear", 90, "step"),
    "chain in sequence in chain": chained(
        sequential(chained("exponential", sequential("cosine", 3, "step")), 30, "cosine"), "linear"
    ),
}
COMPOSED_TOO: Mapping[str, Build] = composed_with(kind for kind in KINDS if kind not in FIRST_KINDS)


def optimizer_at(lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr, momentum=0.9)


def stepped_by_torch(make: Build, lr: float = LR, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    """Learning rates and momenta at counts 0 to steps - 1."""
    optimizer = optimizer_at(lr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a member's step before optimizer.step(), which SequentialLR causes itself
        scheduler = make(TORCH, optimizer)
        group = optimizer.param_groups[0]
        seen = [(group["lr"], group["momentum"])]
        for _ in range(1, steps):
            optimizer.step()
            scheduler.step()
            seen.append((group["lr"], group["momentum"]))
    lrs, momenta = np.asarray(seen, np.float64).T
    return lrs, momenta
