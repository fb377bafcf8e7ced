"""Masked reductions, moments and `Padded`'s methods against eager PyTorch on the dynamic `x[mask]`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch
from block import Block

import graphmode as gm


def values_and_mask(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return rng.standard_normal(size).astype(np.float32), rng.random(size) < 0.5


def ragged_batch(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    """`size` entries of 16 channels in sequences of up to 100."""
    x = rng.standard_normal((max(size // 1600, 1), 100, 16)).astype(np.float32)
    return x, np.arange(100) < rng.integers(1, 101, len(x))[:, None]


def rows_and_weight(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    x = rng.standard_normal((max(size // 64, 1), 64)).astype(np.float32)
    return x, rng.random(len(x)) < 0.5, (rng.standard_normal((64, 64)) / 8).astype(np.float32)


def front(x, mask):
    """As `compact` leaves it, so that a method is timed alone."""
    return gm.Padded(x, mask, jnp.sum(mask, dtype=jnp.int32))


def values_and_prefix(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    """Entries at the front, as `compact` leaves them."""
    return rng.standard_normal(size).astype(np.float32), np.arange(size) < size // 2


def softmax_by_row(x, mask):
    out = torch.zeros_like(x)
    out[mask] = x[mask].softmax(0)
    return out


def batch_moments(x, mask):
    rows = x[mask]
    return rows.mean(0), rows.var(0, correction=0), rows.var(0)


def mapped_and_back(x, mask, weight):
    return front(x, mask).map(lambda row: jnp.tanh(row @ weight)).scatter(mask, into=x)


def compacted_mapped_and_back(x, mask, weight):
    return gm.compact(x, mask, capacity=len(x)).map(lambda row: jnp.tanh(row @ weight)).scatter(mask, into=x)


def eager_mapped(x, mask, weight):
    out = x.clone()
    out[mask] = torch.tanh(x[mask] @ weight)
    return out


def eager_filled(x, mask):
    return x.masked_fill(~mask, -torch.inf)


BLOCKS = (
    Block(
        "masked_sum", values_and_mask, gm.masked_sum, lambda x, m: x[m].sum(), lambda x, m: torch.where(m, x, 0).sum()
    ),
    Block(
        "masked_mean",
        values_and_mask,
        gm.masked_mean,
        lambda x, m: x[m].mean(),
        lambda x, m: torch.where(m, x, 0).sum() / m.sum(),
    ),
    Block("masked_var", values_and_mask, gm.masked_var, lambda x, m: x[m].var(), None),
    Block(
        "masked_max", values_and_mask, gm.masked_max, lambda x, m: x[m].amax(), lambda x, m: eager_filled(x, m).amax()
    ),
    Block(
        "masked_argmax",
        values_and_mask,
        gm.masked_argmax,
        lambda x, m: m.nonzero()[x[m].argmax(), 0],
        lambda x, m: eager_filled(x, m).argmax(),
    ),
    Block(
        "masked_softmax",
        values_and_mask,
        gm.masked_softmax,
        softmax_by_row,
        lambda x, m: eager_filled(x, m).softmax(0),
    ),
    Block(
        "masked_moments",
        ragged_batch,
        lambda x, m: gm.masked_moments(x, m[..., None], (0, 1))[:3],
        batch_moments,
        None,
    ),
    Block(
        "Padded.sort",
        values_and_mask,
        lambda x, m: front(x, m).sort(),
        lambda x, m: x[m].sort().values,
        bound=lambda x, m: jnp.sort(x),
    ),
    Block(
        "Padded.concat",
        values_and_prefix,
        lambda x, m: front(x, m).concat(front(x, m)),
        lambda x, m: torch.cat([x[m], x[m]]),
        None,
    ),
    Block(
        "Padded.compact",
        values_and_mask,
        lambda x, m: front(x, x > 0).compact(m),
        lambda x, m: x[x > 0][m[x > 0]],
        None,
    ),
    Block(
        "Padded.map.scatter",
        rows_and_weight,
        compacted_mapped_and_back,
        eager_mapped,
        bound=lambda x, mask, weight: jnp.tanh(x @ weight),
    ),
)
