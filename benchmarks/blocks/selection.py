"""Selection: what a mask picks, writes under a mask, distinct entries, membership."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import torch
from block import Block

import graphmode as gm


def numbers(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return (rng.standard_normal(size).astype(np.float32),)


def numbers_and_mask(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return rng.standard_normal(size).astype(np.float32), rng.random(size) < 0.5


def rows_and_mask(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return rng.standard_normal((size, 64)).astype(np.float32), rng.random(size) < 0.5


def numbers_mask_source(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    x, mask = numbers_and_mask(rng, size)
    return x, mask, rng.standard_normal(size).astype(np.float32)


def labels(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return (rng.integers(0, size, size).astype(np.int32),)


def two_of_labels(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return labels(rng, size) + labels(rng, size)


def all_that_fit(form, x: jax.Array, *others: jax.Array):
    return form(x, *others, capacity=x.shape[0])


def squares_of_compact(x: jax.Array, mask: jax.Array) -> jax.Array:
    return jax.grad(lambda x: jnp.sum(gm.compact(x, mask, capacity=x.shape[0]).values ** 2))(x)


def squares_of_partition(x: jax.Array, mask: jax.Array) -> jax.Array:
    return jax.grad(lambda x: jnp.sum(gm.partition(x, mask)[0] ** 2))(x)


def eager_squares(form):
    def gradient(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad((form(x, mask) ** 2).sum(), x)[0]

    return gradient


def picked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[mask]


def picked_first(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[mask], x[~mask]])


def picked_first_by_sort(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[torch.argsort(~mask, stable=True)]


def distinct_with_all(x: jax.Array):
    found, inverse, counts = gm.unique(x, capacity=x.shape[0], return_inverse=True, return_counts=True)
    return found, inverse, gm.Padded(counts, found.valid, found.count)


def first_rows(x: jax.Array, mask: jax.Array) -> jax.Array:
    return gm.partition(x, mask)[0]


ROWS = (1_000, 10_000, 100_000)
BLOCKS = (
    Block("compact", numbers_and_mask, functools.partial(all_that_fit, gm.compact), picked, picked_first_by_sort),
    Block("compact rows of 64", rows_and_mask, functools.partial(all_that_fit, gm.compact), picked, None, ROWS),
    Block("compact, gradient", numbers_and_mask, squares_of_compact, eager_squares(picked), None),
    Block("partition", numbers_and_mask, first_rows, picked_first, picked_first_by_sort),
    Block("partition rows of 64", rows_and_mask, first_rows, picked_first, picked_first_by_sort, ROWS),
    Block("partition, gradient", numbers_and_mask, squares_of_partition, eager_squares(picked_first), None),
    Block(
        "nonzero", lambda *a: numbers_and_mask(*a)[1:], functools.partial(all_that_fit, gm.nonzero), torch.nonzero, None
    ),
    Block(
        "masked_fill",
        numbers_and_mask,
        lambda x, mask: gm.masked_fill(x, mask, 0),
        lambda x, mask: x.masked_fill(mask, 0),
        lambda x, mask: torch.where(mask, 0, x),
    ),
    Block(
        "masked_scatter",
        numbers_mask_source,
        gm.masked_scatter,
        lambda x, mask, source: x.masked_scatter(mask, source),
        lambda x, mask, source: torch.where(mask, source[(mask.cumsum(0) - 1).clamp(0)], x),
    ),
    Block("unique", numbers, functools.partial(all_that_fit, gm.unique), torch.unique, bound=jnp.sort),
    Block("unique of labels", labels, functools.partial(all_that_fit, gm.unique), torch.unique, bound=jnp.sort),
    Block(
        "unique, inverse and counts",
        labels,
        distinct_with_all,
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        bound=jnp.argsort,
    ),
    Block(
        "unique_consecutive",
        lambda rng, size: (np.sort(labels(rng, size)[0]),),
        functools.partial(all_that_fit, gm.unique_consecutive),
        torch.unique_consecutive,
        None,
    ),
    Block("isin", two_of_labels, gm.isin, torch.isin, None),
    Block(
        "intersection",
        two_of_labels,
        functools.partial(all_that_fit, gm.intersect1d),
        lambda a, b: torch.unique(a[torch.isin(a, b)]),
        None,
    ),
)
