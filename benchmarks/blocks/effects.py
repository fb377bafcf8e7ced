"""Gradients and effects at many sizes: what a check, a hook, an estimator and a safe function cost."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
from block import Block

import graphmode as gm


def one(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return (np.abs(rng.standard_normal(n)).astype(np.float32),)


def two(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    y = rng.standard_normal(n).astype(np.float32)
    return rng.standard_normal(n).astype(np.float32), np.where(rng.random(n) < 0.1, np.float32(0), y)


def rows(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return (rng.standard_normal((max(n // 64, 1), 64)).astype(np.float32),)


def checked_root(x: jax.Array) -> jax.Array:
    gm.check((x >= 0).all(), "root of {x}", x=x)
    return jnp.sqrt(x)


def eager_checked_root(x: torch.Tensor) -> torch.Tensor:
    assert (x >= 0).all(), f"root of {x}"
    return x.sqrt()


def eager_log(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    mask = x > 0.5
    out[mask] = torch.log(x[mask])
    return out


def static_log(x: torch.Tensor) -> torch.Tensor:
    mask = x > 0.5
    return torch.where(mask, torch.log(torch.where(mask, x, 1.0)), 0.0)


def eager_divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    mask = y != 0
    out[mask] = x[mask] / y[mask]
    return out


def eager_clipped(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    y = x * 1
    y.register_hook(lambda g: g.clamp(-0.5, 0.5))
    return torch.autograd.grad((y * y).sum(), x)[0]


def eager_norm_gradient(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(torch.linalg.vector_norm(x, dim=-1).sum(), x)[0]


BLOCKS = (
    Block("check", one, checked_root, eager_checked_root, None),
    Block("where_safe", one, lambda x: gm.where_safe(x > 0.5, jnp.log, x), eager_log, static_log),
    Block(
        "safe_divide",
        two,
        gm.safe_divide,
        eager_divide,
        lambda x, y: torch.where(y == 0, 0.0, x / torch.where(y == 0, 1.0, y)),
    ),
    Block(
        "safe_norm, gradient",
        rows,
        jax.grad(lambda x: gm.safe_norm(x, axis=-1).sum()),
        eager_norm_gradient,
        None,
    ),
    Block("ste_round", one, gm.ste_round, lambda x: x + (x.round() - x).detach(), None),
    Block(
        "clip_gradient",
        one,
        jax.grad(lambda x: (gm.clip_gradient(x, max_value=0.5) ** 2).sum()),
        eager_clipped,
        None,
    ),
    Block(
        "opaque",
        one,
        lambda x: gm.opaque(np.sin, x, result=x),
        lambda x: torch.from_numpy(np.sin(x.cpu().numpy())).to(x.device),
        None,
    ),
)
