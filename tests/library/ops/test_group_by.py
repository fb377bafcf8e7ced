"""`gm.group_by` against `torch.unique` with its inverse and counts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import DTYPES, Differential, cases, is_caught, mask_of, padded, run, values_of
from hypothesis import strategies as st

import graphmode as gm


def keys_and_mask(rng, config, dtype):
    keys = values_of(rng, config.rows, dtype)
    if dtype not in ("bool", "int32") and rng.random() < 0.5:
        keys[rng.random(config.rows) < 0.3] = rng.choice([np.nan, -np.nan])
    if dtype == "int32" and rng.random() < 0.5:
        keys[rng.random(config.rows) < 0.3] = 2**31 - 1
    return {"keys": keys, "valid": mask_of(rng, config.rows)}


def grouped(c, keys, valid):
    names, groups = gm.group_by(keys, capacity=c.capacity, valid=valid)
    return names, groups.ids, groups.counts, groups.outside


def by_unique(c, keys, valid):
    names, inverse, counts = torch.unique(keys[valid], return_inverse=True, return_counts=True)
    # Each NaN is a group, in an order that PyTorch's sort leaves open.
    nan = keys[valid].isnan()
    inverse[nan] = inverse[nan].sort().values
    ids = torch.full((len(keys),), c.capacity)
    ids[valid] = torch.where(inverse < c.capacity, inverse, c.capacity)
    room = padded(counts, c.capacity)["values"]
    return padded(names, c.capacity), ids, room, (inverse >= c.capacity).sum()


GROUP_BY = Differential(
    name="group_by",
    configs=st.sampled_from([{"rows": r, "capacity": c} for r, c in [(0, 2), (1, 1), (18, 4), (18, 20)]]),
    arrays=keys_and_mask,
    ours=grouped,
    eager=by_unique,
    dtypes=DTYPES,
)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([GROUP_BY]))
def test_agrees_with_unique_of_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def padding_is_a_key(c, keys, valid):
    return grouped(c, jnp.where(valid, keys, 0), jnp.ones_like(valid))


def one_nan_for_all(c, keys, valid):
    names, groups = gm.group_by(jnp.where(jnp.isnan(keys), jnp.inf, keys), capacity=c.capacity, valid=valid)
    return names, groups.ids, groups.counts, groups.outside


def rows_without_room_are_unseen(c, keys, valid):
    names, ids, counts, outside = grouped(c, keys, valid)
    return names, ids, counts, jnp.zeros_like(outside)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [padding_is_a_key, one_nan_for_all, rows_without_room_are_unseen])
def test_a_planted_fault_is_caught(fault):
    assert is_caught(dataclasses.replace(GROUP_BY, ours=fault))


def test_a_loop_over_the_groups():
    rng = np.random.default_rng(0)
    keys, x = rng.integers(-3, 3, 50).astype(np.int32), rng.standard_normal(50).astype(np.float32)

    @jax.jit
    def means(keys, x):
        names, groups = gm.group_by(keys, capacity=10)
        return dataclasses.replace(names, values=gm.segment_mean(x, groups))

    wanted = [x[keys == key].mean() for key in np.unique(keys)]
    got = means(keys, x)
    np.testing.assert_allclose(got.values[: len(wanted)], wanted, rtol=1e-5)
    assert int(got.count) == len(wanted)
    gradient = jax.grad(lambda x: means(keys, x).values.sum())(x)
    np.testing.assert_allclose(gradient, [1 / (keys == key).sum() for key in keys], rtol=1e-6)


def test_overflow_is_seen():
    keys, x = np.array([4.0, 1.0, 9.0, 4.0], np.float32), np.ones(4, np.float32)

    def sums(policy):
        def make(keys, x):
            names, groups = gm.group_by(keys, capacity=2, on_overflow=policy)
            return names, groups, gm.segment_sum(x, groups)

        return jax.jit(make)

    names, groups, totals = sums("flag")(keys, x)
    assert int(names.count) == 3
    assert bool(names.overflow)
    assert int(groups.outside) == 1
    assert names.values.tolist() == [1, 4]
    assert totals.tolist() == [1, 2]
    names, _, totals = sums("nan")(keys, x)
    assert np.isnan(names.values).all()
    assert np.isnan(totals).all()
    assert sums("nan")(keys * 0, x)[2].tolist() == [4, 0]
    with pytest.raises(Exception, match="group_by found 3 entries, and its capacity is 2"):
        jax.block_until_ready(sums("raise")(keys, x))
    _, groups, totals = jax.jit(sums("nan"))(keys.astype(np.int32), x)
    assert np.isnan(totals).all()


def test_keys_that_are_padded():
    lossy = gm.compact(jnp.array([5, 3, 5, 3]), jnp.array([True, False, True, True]), capacity=2)
    names, groups = gm.group_by(lossy, capacity=3)
    assert names.values[:1].tolist() == [5]
    assert groups.counts.tolist() == [2, 0, 0]
    assert int(groups.outside) == 1
    assert names.overflow
    assert names.valid.tolist() == [True, False, False]
    with pytest.raises(Exception, match="group_by found 2 entries"):
        jax.block_until_ready(gm.group_by(lossy, capacity=3, on_overflow="raise"))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_integers_of_any_width(dtype):
    with jax.enable_x64(True):
        limits = np.iinfo(dtype)
        keys = np.array([limits.max, limits.min, 1, limits.max], dtype)
        names, groups = gm.group_by(keys, capacity=4, valid=np.array([True, True, False, True]))
        assert names.values[:2].tolist() == [limits.min, limits.max]
        assert int(names.count) == 2
        assert groups.ids.tolist() == [1, 0, 4, 1]


def test_one_compilation_for_all_keys():
    traces = []

    @jax.jit
    def group(keys):
        traces.append(keys.shape)
        return gm.group_by(keys, capacity=3)

    for seed in range(4):
        group(np.random.default_rng(seed).integers(0, 5, 6))
    assert len(traces) == 1


BAD = {
    "keys of rank 2": (lambda: gm.group_by(jnp.ones((2, 2)), capacity=2), ValueError, r"keys is float32\[2, 2\]"),
    "complex keys": (lambda: gm.group_by(jnp.ones(2, complex), capacity=2), ValueError, "has no order"),
    "no capacity": (lambda: gm.group_by(jnp.ones(2), capacity=0), ValueError, "capacity is 0"),
    "a mask of numbers": (lambda: gm.group_by(jnp.ones(2), capacity=2, valid=jnp.ones(2)), ValueError, "valid has"),
    "an unknown policy": (lambda: gm.group_by(jnp.ones(2), capacity=2, on_overflow=""), ValueError, "on_overflow is"),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what, jitted):
    make, error, message = BAD[what]
    with pytest.raises(error, match=message):
        (jax.jit(make) if jitted else make)()
