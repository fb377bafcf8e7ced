"""`gm.compact` and `gm.partition` against boolean indexing in PyTorch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, mask_of, padded, run, values_of
from hypothesis import strategies as st

import graphmode as gm

ROWS = st.fixed_dictionaries(
    {
        "rows": st.sampled_from([0, 6, 17]),
        "columns": st.sampled_from([(), (2,)]),
        "capacity": st.sampled_from([5, 6, 20]),
        "fill_value": st.sampled_from([0, 1]),
    }
)


def rows_and_mask(rng, config, dtype):
    x = values_of(rng, (config.rows, *config.columns), dtype)
    return {"x": x, "mask": mask_of(rng, config.rows)}


COMPACT = Differential(
    name="compact",
    configs=ROWS,
    arrays=rows_and_mask,
    ours=lambda c, x, mask: gm.compact(x, mask, capacity=c.capacity, fill_value=c.fill_value),
    eager=lambda c, x, mask: padded(x[mask], c.capacity, c.fill_value),
    gradients=("x",),
)
PARTITION = Differential(
    name="partition",
    configs=ROWS,
    arrays=rows_and_mask,
    ours=lambda c, x, mask: gm.partition(x, mask),
    eager=lambda c, x, mask: (torch.cat([x[mask], x[~mask]]), mask.sum()),
    gradients=("x",),
)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([COMPACT, PARTITION]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def one_short(c, x, mask):
    picked = gm.compact(x, mask, capacity=c.capacity, fill_value=c.fill_value)
    return dataclasses.replace(picked, valid=picked.valid & (jnp.arange(c.capacity) < c.capacity - 1))


def silent(c, x, mask):
    picked = gm.compact(x, mask, capacity=c.capacity, fill_value=c.fill_value)
    return dataclasses.replace(picked, count=jnp.minimum(picked.count, c.capacity))


def leaking(c, x, mask):
    picked = gm.compact(x, mask, capacity=c.capacity, fill_value=c.fill_value)
    return dataclasses.replace(picked, values=picked.values + x.sum(0).astype(x.dtype) * jnp.asarray(0, x.dtype))


@pytest.mark.parametrize("fault", [one_short, silent, leaking])
def test_a_planted_fault_is_caught(fault):
    assert is_caught(dataclasses.replace(COMPACT, ours=fault))
    assert not is_caught(COMPACT)


def test_one_compilation_for_all_masks():
    traces = []

    @jax.jit
    def pick(x, mask):
        traces.append(x.shape)
        return gm.compact(x, mask, capacity=3)

    for seed in range(4):
        pick(np.arange(5.0), np.random.default_rng(seed).random(5) < 0.5)
    assert len(traces) == 1


def test_overflow_is_seen():
    picked = jax.jit(lambda x: gm.compact(x, x > 0, capacity=2))(np.arange(5.0))
    assert picked.values.tolist() == [1, 2]
    assert int(picked.count) == 4
    assert bool(picked.overflow)
