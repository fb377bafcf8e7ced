"""Control flow by values: branches and loops."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from block import Block

import graphmode as gm

STEPS = 32


def vector(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return (rng.uniform(1, 2, size).astype(np.float32),)


def lanes(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    rows = max(1, size // 64)
    return rng.random(rows) < 0, rng.standard_normal((rows, 64)).astype(np.float32)


def cond(x):
    return gm.cond(x.sum() > 0, lambda x: jnp.sin(x) * 2, lambda x: jnp.exp(x), x)


def eager_cond(x):
    return torch.sin(x) * 2 if x.sum() > 0 else torch.exp(x)


def static_cond(x):
    return torch.where(x.sum() > 0, torch.sin(x) * 2, torch.exp(x))


WEIGHT = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8
TORCH_WEIGHT = torch.from_numpy(WEIGHT)


def branch_of_lanes(wanted, x):
    def costly(row):
        for _ in range(4):
            row = jnp.tanh(WEIGHT @ row)
        return row

    return jax.vmap(lambda p, row: gm.cond(p, costly, lambda row: row, row, under_vmap="branch"))(wanted, x)


def costly(rows):
    for _ in range(4):
        rows = torch.tanh(rows @ TORCH_WEIGHT.to(rows.device).T)
    return rows


def eager_branch_of_lanes(wanted, x):
    if not wanted.any():
        return x
    x = x.clone()
    x[wanted] = costly(x[wanted])
    return x


def static_branch_of_lanes(wanted, x):
    return torch.where(wanted[:, None], costly(x), x)


def while_loop(x):
    return gm.while_loop(lambda x: x[0] > 0.1, lambda x: x * 0.75, x, max_steps=STEPS)[0]


def eager_while(x):
    while x[0] > 0.1:
        x = x * 0.75
    return x


def static_while(x):
    for _ in range(STEPS):
        x = torch.where(x[0] > 0.1, x * 0.75, x)
    return x


def while_gradient(x):
    return jax.grad(lambda x: while_loop(x).sum())(x)


def eager_while_gradient(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(eager_while(x).sum(), x)[0]


def scan_until(x):
    rows = x.reshape(100, -1)
    h, ys, _ = gm.scan_until(lambda h, x: (jnp.tanh(h + x), h, h[0] > 0.97), jnp.zeros_like(rows[0]), rows)
    return h, ys


def eager_scan_until(x):
    rows, ys = x.reshape(100, -1), []
    h = torch.zeros_like(rows[0])
    for row in rows:
        ys.append(h)
        stop = h[0] > 0.97
        h = torch.tanh(h + row)
        if stop:
            break
    return h, torch.stack(ys)


BLOCKS = (
    Block("cond", vector, cond, eager_cond, static_cond),
    Block("cond, no lane takes the branch", lanes, branch_of_lanes, eager_branch_of_lanes, static_branch_of_lanes),
    Block("while_loop", vector, while_loop, eager_while, static_while),
    Block("while_loop, gradient", vector, while_gradient, eager_while_gradient, None),
    Block("scan_until", vector, scan_until, eager_scan_until, None),
)
