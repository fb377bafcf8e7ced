"""`gm.topk` with a computed k against `torch.topk`, lowest index first among ties."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import FLOATING, Differential, cases, is_caught, run, values_of
from hypothesis import strategies as st

import graphmode as gm

NO_LENGTH = 2**31 - 1


def lanes_and_k(rng, config, dtype):
    x = values_of(rng, config.shape, dtype)
    if dtype in FLOATING and rng.random() < 0.5:
        x[rng.random(config.shape) < 0.3] = rng.choice([np.nan, -np.nan])
    if dtype == "int32" and rng.random() < 0.5:
        x[rng.random(config.shape) < 0.3] = rng.choice([-(2**31), 2**31 - 1])
    lanes = np.delete(config.shape, config.axis) if config.k_per_lane else ()
    return {"x": x, "k": rng.integers(0, config.k_max + 1, lanes).astype(np.int32)}


def stable(x, k, largest):
    """`torch.topk` of one lane; where it leaves the order open, a stable sort settles it."""
    values, _ = torch.topk(x, k, largest=largest) if x.dtype != torch.bool else x.sort(descending=largest)
    ranks, order = torch.sort(x, descending=largest, stable=True)
    assert torch.equal(ranks[:k].nan_to_num(7.0), values[:k].nan_to_num(7.0))
    return x[order[:k]], order[:k]


def in_pytorch(c, x, k):
    lanes = x.movedim(c.axis, -1)
    rows = lanes.reshape(-1, lanes.shape[-1])
    asked = torch.broadcast_to(k, lanes.shape[:-1])
    values, indices, valid = [], [], []
    for row, number in zip(rows, asked.reshape(-1).tolist(), strict=True):
        best, where = stable(row, number, c.largest)
        values.append(torch.cat([best, best.new_zeros(c.k_max - number)]))
        indices.append(torch.cat([where, where.new_zeros(c.k_max - number)]))
        valid.append(torch.arange(c.k_max) < number)
    placed = [torch.stack(part).reshape(*lanes.shape[:-1], -1).movedim(-1, c.axis) for part in (values, indices, valid)]
    return *placed, asked, torch.zeros_like(asked, dtype=torch.bool)


CONFIGS = [
    ((6,), 0, 6, True, False),
    ((6,), -1, 3, False, False),
    ((2, 9), 1, 4, True, True),
    ((9, 2), 0, 9, False, True),
    ((9, 1), 0, 1, True, False),
]
TOPK = Differential(
    name="topk",
    configs=st.sampled_from(
        [dict(zip(("shape", "axis", "k_max", "largest", "k_per_lane"), each, strict=True)) for each in CONFIGS]
    ),
    arrays=lanes_and_k,
    ours=lambda c, x, k: gm.topk(x, k, k_max=c.k_max, axis=c.axis, largest=c.largest),
    eager=in_pytorch,
    gradients=("x",),
)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([TOPK]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def one_too_many(c, x, k):
    found = gm.topk(x, jnp.minimum(k + 1, c.k_max), k_max=c.k_max, axis=c.axis, largest=c.largest)
    return dataclasses.replace(found, count=TOPK.ours(c, x, k).count)


def by_negation(c, x, k):
    if c.largest:
        return TOPK.ours(c, x, k)
    found = gm.topk(-x, k, k_max=c.k_max, axis=c.axis)
    return dataclasses.replace(found, values=-found.values)


def of_jax(c, x, k):
    """`jax.lax.top_k` tells zeros apart by their sign, and NaN too."""
    found = gm.topk(x, k, k_max=c.k_max, axis=c.axis, largest=c.largest)
    if not c.largest or c.k_per_lane:
        return found
    _, indices = jax.lax.top_k(jnp.moveaxis(x, c.axis, -1), c.k_max)
    return dataclasses.replace(found, indices=jnp.where(found.valid, jnp.moveaxis(indices, -1, c.axis), 0))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [one_too_many, by_negation, of_jax])
def test_a_planted_fault_is_caught(fault):
    assert is_caught(dataclasses.replace(TOPK, ours=fault))


def test_overflow_is_seen():
    x = np.array([3.0, 9.0, 7.0, 1.0], np.float32)
    flagged = jax.jit(lambda x, k: gm.topk(x, k, k_max=2))
    for k, overflow, count in (
        (1, False, 1),
        (2, False, 2),
        (3, True, 3),
        (-1, True, NO_LENGTH),
        (2**31 - 1, True, NO_LENGTH),
    ):
        found = flagged(x, k)
        assert bool(found.overflow) == overflow
        assert int(found.count) == count
        assert found.valid.tolist() == [k > 0, k > 1]
    spoilt = jax.jit(lambda x, k: gm.topk(x, k, k_max=2, on_overflow="nan"))
    lanes = spoilt(np.stack([x, x]), np.array([3, 2]))
    assert np.isnan(lanes.values).tolist() == [[True, True], [False, False]]
    strict = jax.jit(lambda x, k: gm.topk(x, k, k_max=2, on_overflow="raise"))
    assert int(strict(x, 2).count) == 2
    with pytest.raises(Exception, match="topk: k is 3, with room for 2"):
        jax.block_until_ready(strict(x, 3))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16", "bool"])
def test_only_valid_entries_of_a_padded_take_part(dtype, largest):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, mask = values_of(rng, 12, dtype), rng.random(12) < 0.6
        x[~mask] = (
            values_of(rng, 12, dtype)[~mask] if dtype in ("int32", "bool") else rng.choice([np.nan, np.inf, -np.inf])
        )
        holed = gm.Padded(jnp.asarray(x), jnp.asarray(mask), jnp.asarray(mask.sum()))
        found = gm.topk(holed, 4, k_max=5, largest=largest)
        here = np.flatnonzero(mask)
        number = min(4, len(here))
        tensor = torch.from_numpy(x[mask].astype(np.float32))
        wanted = torch.sort(tensor, descending=largest, stable=True).indices[:number].numpy()
        assert found.indices[:number].tolist() == here[wanted].tolist()
        assert found.valid.tolist() == (np.arange(5) < number).tolist()
        assert bool(found.overflow) == (len(here) < 4)


def test_what_a_padded_had_lost_might_have_been_the_best():
    x = jnp.array([1.0, 9.0, 3.0, 7.0, 8.0])
    for capacity, lost in ((2, True), (4, True), (5, False)):
        held = gm.compact(x, x > 0, capacity=capacity)
        found = jax.jit(lambda held: gm.topk(held, 2, k_max=2))(held)
        assert bool(found.overflow) == lost
        assert found.values.tolist() == sorted(x[:capacity].tolist(), reverse=True)[:2]
        spoilt = gm.topk(held, 2, k_max=2, on_overflow="nan")
        assert np.isnan(spoilt.values).tolist() == [lost, lost]
    held = gm.compact(x, x > 0, capacity=2)
    with pytest.raises(Exception, match="topk: x had lost 3 entries"):
        jax.block_until_ready(jax.jit(lambda held: gm.topk(held, 2, k_max=2, on_overflow="raise"))(held))
    mapped = jax.vmap(lambda mask: gm.topk(gm.compact(x, mask, capacity=2), 1, k_max=2).overflow)
    assert mapped(jnp.array([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]], bool)).tolist() == [False, True]


def test_one_compilation_for_all_k():
    traces = []

    @jax.jit
    def pick(x, k):
        traces.append(x.shape)
        return gm.topk(x, k, k_max=3)

    for k in range(4):
        pick(np.arange(5.0), k)
    assert len(traces) == 1


def test_padding_leaks_into_no_gradient():
    x = np.array([2.0, 1.0, np.nan, np.inf], np.float32)

    def loss(x, k):
        return (gm.topk(x, k, k_max=4, largest=False).values ** 2).sum()

    assert jax.jit(jax.grad(loss))(x, 2).tolist() == [4, 2, 0, 0]


X = np.arange(4.0)
BAD = {
    "k above k_max": (lambda: gm.topk(X, 3, k_max=2), ValueError, "k is 3, and k_max is 2; give a k of 0 to 2"),
    "a negative k": (lambda: gm.topk(X, -1, k_max=2), ValueError, "k is -1"),
    "k_max above the axis": (lambda: gm.topk(X, 2, k_max=5), ValueError, "k_max is 5, and axis -1 of x has 4"),
    "no k_max": (lambda: gm.topk(X, 2, k_max=0), ValueError, "k_max is 0"),
    "a k that is a float": (lambda: gm.topk(X, 2.0, k_max=2), TypeError, "k has dtype float"),
    "a k that does not broadcast": (lambda: gm.topk(X, np.array([1, 2]), k_max=2), ValueError, r"k has shape \(2,\)"),
    "an axis that is none": (lambda: gm.topk(X, 2, k_max=2, axis=1), ValueError, "axis is 1"),
    "an axis that is no integer": (lambda: gm.topk(X, 2, k_max=2, axis=0.0), TypeError, "axis is 0.0"),
    "a scalar": (lambda: gm.topk(1.0, 1, k_max=1), ValueError, "x is a scalar"),
    "complex": (lambda: gm.topk(X + 1j, 1, k_max=1), ValueError, "has no order"),
    "NaN among integers": (lambda: gm.topk(np.arange(3), 1, k_max=1, on_overflow="nan"), ValueError, "has no NaN"),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what, jitted):
    make, error, message = BAD[what]
    with pytest.raises(error, match=message):
        (jax.jit(make) if jitted else make)()
