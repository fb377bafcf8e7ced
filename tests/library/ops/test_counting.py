"""`gm.bincount` and `gm.one_hot` against PyTorch's forms that size themselves by the values."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, mask_of, padded, run, values_of
from hypothesis import strategies as st

import graphmode as gm

NO_LENGTH = 2**31 - 1
CONFIGS = st.sampled_from(
    [{"rows": r, "capacity": c, "minlength": m} for r, c, m in [(0, 3, 0), (0, 3, 2), (9, 4, 0), (9, 12, 0), (9, 6, 6)]]
)


def numbers(rng, config, dtype):
    x = rng.integers(0, rng.integers(1, 9), config.rows).astype(np.int32)
    return {"x": x, "valid": mask_of(rng, config.rows)}


BINCOUNT = Differential(
    name="bincount",
    configs=CONFIGS,
    arrays=numbers,
    ours=lambda c, x, valid: gm.bincount(x, capacity=c.capacity, minlength=c.minlength, valid=valid),
    eager=lambda c, x, valid: padded(torch.bincount(x[valid], minlength=c.minlength), c.capacity),
    dtypes=("int32",),
)


def summed(x, weights, minlength):
    """`torch.bincount` has no gradient; this is its sum."""
    counts = torch.bincount(x, weights.detach(), minlength)
    added = torch.zeros(len(counts), dtype=weights.dtype).index_add(0, x.long(), weights)
    torch.testing.assert_close(counts.nan_to_num(7).to(weights.dtype), added.detach().nan_to_num(7))
    return added


WEIGHTED = Differential(
    name="bincount with weights",
    configs=CONFIGS,
    arrays=lambda rng, config, dtype: {**numbers(rng, config, dtype), "weights": values_of(rng, config.rows, dtype)},
    ours=lambda c, x, valid, weights: gm.bincount(x, weights, capacity=c.capacity, minlength=c.minlength, valid=valid),
    eager=lambda c, x, valid, weights: padded(summed(x[valid], weights[valid], c.minlength), c.capacity),
    dtypes=("float32", "float64"),
    gradients=("weights",),
    exact=False,
)
ONE_HOT = Differential(
    name="one_hot",
    configs=st.sampled_from([{"shape": s, "capacity": c} for s, c in [((4,), 3), ((4,), 9), ((2, 3), 9), ((1,), 1)]]),
    arrays=lambda rng, config, dtype: {"x": rng.integers(0, rng.integers(1, 9), config.shape).astype(np.int32)},
    ours=lambda c, x: gm.one_hot(x, capacity=c.capacity),
    eager=lambda c, x: padded(torch.nn.functional.one_hot(x.long()).movedim(-1, 0), c.capacity),
    dtypes=("int32",),
)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([BINCOUNT, WEIGHTED, ONE_HOT]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def of_jax(c, x, valid):
    counts = jnp.bincount(jnp.where(valid, x, c.capacity), length=c.capacity)
    return gm.Padded(counts, jnp.ones(c.capacity, bool), jnp.array(c.capacity))


def padding_counts(c, x, valid):
    return gm.bincount(x * valid, capacity=c.capacity, minlength=c.minlength)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [of_jax, padding_counts])
def test_a_planted_fault_is_caught(fault):
    assert is_caught(dataclasses.replace(BINCOUNT, ours=fault), "int32")


def one_class_short(c, x):
    hot = gm.one_hot(x, capacity=c.capacity)
    return dataclasses.replace(hot, count=hot.count - 1)


@pytest.mark.slow
def test_a_planted_fault_in_one_hot_is_caught():
    assert is_caught(dataclasses.replace(ONE_HOT, ours=one_class_short), "int32")


@pytest.mark.parametrize("operation", [gm.bincount, gm.one_hot])
def test_overflow_is_seen(operation):
    flagged = jax.jit(lambda x: operation(x, capacity=3))
    for largest, count, overflow in ((1, 2, False), (2, 3, False), (3, 4, True), (2**31 - 1, NO_LENGTH, True)):
        found = flagged(np.array([0, largest], np.int32))
        assert int(found.count) == count
        assert bool(found.overflow) == overflow
    with pytest.raises((RuntimeError, ValueError)):
        torch.bincount(torch.tensor([0, -1]))
    negative = flagged(np.array([2, -1], np.int32))
    assert bool(negative.overflow)
    assert negative.values.sum() == 1
    strict = jax.jit(lambda x: operation(x, capacity=3, on_overflow="raise"))
    assert int(strict(np.array([0, 2])).count) == 3
    with pytest.raises(Exception, match=f"{operation.__name__} found 4 entries, and its capacity is 3"):
        jax.block_until_ready(strict(np.array([0, 3])))
    with pytest.raises(Exception, match=f"{operation.__name__}: x has negative entries"):
        jax.block_until_ready(strict(np.array([0, -1])))


def test_overflow_spoils_weighted_counts():
    spoilt = jax.jit(lambda x, w: gm.bincount(x, w, capacity=3, on_overflow="nan"))
    assert np.isnan(spoilt(np.array([0, 3]), np.ones(2)).values).all()
    assert spoilt(np.array([0, 2]), np.ones(2)).values.tolist() == [1, 0, 1]


def test_entries_that_are_padded():
    x = jnp.array([1, 7, 1, 2])
    some = gm.compact(x, x < 5, capacity=4)
    assert gm.bincount(some, capacity=4).values.tolist() == [0, 2, 1, 0]
    assert not gm.bincount(some, capacity=4).overflow
    assert gm.bincount(gm.compact(x, x < 5, capacity=2), capacity=4).overflow
    weights = jnp.array([1.0, jnp.nan, 2.0])
    valid = jnp.array([True, False, True])
    gradient = jax.grad(lambda w: gm.bincount(jnp.array([0, 1, 1]), w, capacity=3, valid=valid).values.sum())(weights)
    assert gradient.tolist() == [1, 0, 1]
    assert gm.bincount(jnp.array([0, 1, 1]), weights, capacity=3, valid=valid).values.tolist() == [1, 2, 0]
    assert gm.one_hot(jnp.array([0, 9]), capacity=2, valid=jnp.array([True, False])).values.tolist() == [[1, 0], [0, 0]]


def test_one_compilation_for_all_values():
    traces = []

    @jax.jit
    def count(x):
        traces.append(x.shape)
        return gm.bincount(x, capacity=3), gm.one_hot(x, capacity=3)

    for seed in range(4):
        count(np.random.default_rng(seed).integers(0, 5, 6))
    assert len(traces) == 1


X = np.array([0, 2])
BAD = {
    "floats": (lambda: gm.bincount(np.ones(2), capacity=3), TypeError, "x has dtype float"),
    "rank 2": (lambda: gm.bincount(X[None], capacity=3), ValueError, r"x has shape \(1, 2\)"),
    "weights too long": (lambda: gm.bincount(X, np.ones(3), capacity=3), ValueError, r"weights has shape \(3,\)"),
    "minlength above capacity": (lambda: gm.bincount(X, capacity=3, minlength=4), ValueError, "minlength is 4"),
    "NaN among integers": (lambda: gm.bincount(X, capacity=3, on_overflow="nan"), ValueError, "int32 has no NaN"),
    "no capacity": (lambda: gm.one_hot(X, capacity=0), ValueError, "capacity is 0"),
    "bools": (lambda: gm.one_hot(X > 0, capacity=3), TypeError, "x has dtype bool"),
    "a mask of numbers": (lambda: gm.one_hot(X, capacity=3, valid=X), ValueError, "valid is int"),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what, jitted):
    make, error, message = BAD[what]
    with pytest.raises(error, match=message):
        (jax.jit(make) if jitted else make)()
