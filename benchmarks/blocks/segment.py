"""Blocks with computed lengths, ranks and groups: what to time, and against which eager code."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch
from block import Block

import graphmode as gm

ROWS_PER_GROUP = 10
K_MAX = 100
EXPERTS, WIDTH, INNER = 8, 64, 256
SIZES = (1_000, 10_000, 100_000, 1_000_000)


def rows_and_ids(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    ids = rng.integers(0, n // ROWS_PER_GROUP, n).astype(np.int32)
    return rng.standard_normal(n).astype(np.float32), ids


def groups_of(ids):
    return gm.segments(ids, num_segments=len(ids) // ROWS_PER_GROUP)


def reduced(operation):
    def eager(x, ids):
        zeros = torch.zeros(len(x) // ROWS_PER_GROUP, device=x.device)
        return zeros.scatter_reduce(0, ids.long(), x, operation, include_self=False)

    return eager


def added(x, ids):
    return torch.zeros(len(x) // ROWS_PER_GROUP, device=x.device).index_add(0, ids, x)


def softmax(x, ids):
    ids = ids.long()
    weights = (x - reduced("amax")(x, ids)[ids]).exp()
    return weights / added(weights, ids)[ids]


def rows_and_repeats(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return rng.standard_normal(n).astype(np.float32), rng.integers(0, 3, n).astype(np.int32)


def rows_and_k(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return rng.standard_normal(n).astype(np.float32), np.int32(rng.integers(1, K_MAX + 1))


def rows_and_stop(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return rng.standard_normal(n).astype(np.float32), np.int32(n // 2)


def best(x, k):
    found = gm.topk(x, k, k_max=K_MAX)
    return tuple(gm.Padded(part, found.valid, found.count) for part in (found.values, found.indices))


def grouped(x, ids):
    keys, groups = gm.group_by(ids, capacity=len(ids) // ROWS_PER_GROUP)
    return keys, groups.ids, gm.Padded(groups.counts, keys.valid, keys.count)


def rows_and_experts(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    rows = n // WIDTH
    weights = rng.standard_normal((EXPERTS, WIDTH, INNER)), rng.standard_normal((EXPERTS, INNER, WIDTH))
    floats = [x.astype(np.float32) for x in (rng.standard_normal((rows, WIDTH)), *weights)]
    return floats[0], rng.integers(0, EXPERTS, rows).astype(np.int32), *floats[1:]


def mixed(x, ids, into, out):
    groups = gm.segments(ids, num_segments=EXPERTS)
    return gm.segment_map(lambda own, rows: jnp.maximum(rows @ own[0], 0) @ own[1], (into, out), x, groups)


def mixed_in_a_loop(x, ids, into, out):
    result = torch.zeros_like(x)
    for expert in range(EXPERTS):
        rows = ids == expert
        result[rows] = (x[rows] @ into[expert]).relu() @ out[expert]
    return result


def mixed_of_all(x, ids, into, out):
    given = (x @ into).relu() @ out  # [EXPERTS, rows, WIDTH]
    return given[ids.long(), torch.arange(len(x), device=x.device)]


BLOCKS = (
    # Eager code and the static form are one here: only the number of groups must be known, and ids are not checked.
    Block("segment_sum", rows_and_ids, lambda x, ids: gm.segment_sum(x, groups_of(ids)), added, None, SIZES),
    Block(
        "segment_mean", rows_and_ids, lambda x, ids: gm.segment_mean(x, groups_of(ids)), reduced("mean"), None, SIZES
    ),
    Block("segment_max", rows_and_ids, lambda x, ids: gm.segment_max(x, groups_of(ids)), reduced("amax"), None, SIZES),
    Block("segment_softmax", rows_and_ids, lambda x, ids: gm.segment_softmax(x, groups_of(ids)), softmax, None, SIZES),
    Block(
        "group_by",
        rows_and_ids,
        grouped,
        lambda x, ids: torch.unique(ids, return_inverse=True, return_counts=True),
        None,
        SIZES,
        bound=lambda x, ids: jnp.argsort(ids),
    ),
    Block(
        "segment_map",
        rows_and_experts,
        mixed,
        mixed_in_a_loop,
        mixed_of_all,
        SIZES,
        bound=lambda x, ids, into, out: jnp.maximum(x @ into[0], 0) @ out[0],
    ),
    Block(
        "bincount",
        rows_and_ids,
        lambda x, ids: gm.bincount(ids, capacity=len(ids) // ROWS_PER_GROUP),
        lambda x, ids: torch.bincount(ids),
        None,
        SIZES,
    ),
    Block(
        "repeat_interleave",
        rows_and_repeats,
        lambda x, repeats: gm.repeat_interleave(x, repeats, capacity=2 * len(x)),
        lambda x, repeats: torch.repeat_interleave(x, repeats),
        None,
        SIZES,
    ),
    Block(
        "take_slice",
        rows_and_stop,
        lambda x, stop: gm.take_slice(x, jnp.int32(7), stop, capacity=len(x)),
        lambda x, stop: x[7:stop].clone(),
        None,
        SIZES,
    ),
    Block(
        "topk",
        rows_and_k,
        best,
        lambda x, k: torch.topk(x, int(k)),
        lambda x, k: torch.topk(x, K_MAX),
        SIZES,
    ),
)
