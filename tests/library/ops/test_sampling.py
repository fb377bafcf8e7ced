"""Random permutations and subsets of a computed size are uniform; the nucleus is that of eager PyTorch."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, run, values_of
from hypothesis import strategies as st

import graphmode as gm

NO_LENGTH = 2**31 - 1
DRAWS = 6000


def looks_uniform(outcomes, possible):
    """Pearson's chi-square against a bound that a uniform draw passes with probability above 0.9999."""
    counts = np.array([sum(outcome == one for outcome in outcomes) for one in possible])
    if counts.sum() != len(outcomes):
        return False
    expected = len(outcomes) / len(possible)
    freedom = len(possible) - 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    # Wilson and Hilferty's cube-root approximation of the quantile
    bound = freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3
    return statistic < bound


def drawn(draw):
    keys = jax.random.split(jax.random.key(0), DRAWS)
    values, valid = jax.jit(jax.vmap(lambda key: (draw(key).values, draw(key).valid)))(keys)
    return [tuple(row[mask].tolist()) for row, mask in zip(np.asarray(values), np.asarray(valid), strict=True)]


@pytest.mark.parametrize("n", [1, 3, 4])
def test_every_permutation_is_as_likely(n):
    outcomes = drawn(lambda key: gm.random_permutation(key, jnp.array(n), capacity=6))
    possible = list(itertools.permutations(range(n)))
    if n == 1:
        assert set(outcomes) == {(0,)}
    else:
        assert looks_uniform(outcomes, possible)


@pytest.mark.parametrize("size", [1, 2, 4, 9])
def test_every_subset_and_order_is_as_likely(size):
    mask = np.array([True, False, True, True, False, True])
    outcomes = drawn(lambda key: gm.random_subset(key, mask, jnp.array(size), capacity=5))
    assert looks_uniform(outcomes, list(itertools.permutations(np.flatnonzero(mask).tolist(), min(size, 4))))


def test_an_unfair_draw_is_caught():
    def one_swap(key):
        found = gm.random_permutation(key, jnp.array(3), capacity=3)
        return dataclasses.replace(found, values=jnp.where(found.values[0] == 2, jnp.arange(3), found.values))

    assert not looks_uniform(drawn(one_swap), list(itertools.permutations(range(3))))
    twice = [(0, 0, 1)] * DRAWS
    assert not looks_uniform(twice, list(itertools.permutations(range(3))))


def test_sizes_and_overflow():
    key = jax.random.key(1)
    mask = np.array([True, False, True, True])
    assert sorted(gm.random_subset(key, mask, capacity=4).values.tolist()) == [0, 2, 3, 4]
    none = gm.random_subset(key, np.zeros(4, bool), 2, capacity=3)
    assert int(none.count) == 0
    assert none.values.tolist() == [4, 4, 4]
    tight = gm.random_subset(key, mask, 3, capacity=2)
    assert int(tight.count) == 3
    assert tight.overflow
    assert set(tight.values.tolist()) <= {0, 2, 3}
    assert int(gm.random_subset(key, mask, 9, capacity=3).count) == 3
    assert int(gm.random_subset(key, mask, -1, capacity=3).count) == NO_LENGTH
    assert int(gm.random_permutation(key, 7, capacity=3).count) == 7
    assert gm.random_permutation(key, 7, capacity=3).overflow
    assert gm.random_permutation(key, -1, capacity=3).overflow
    assert not gm.random_permutation(key, 0, capacity=3).valid.any()
    for draw in (
        lambda: gm.random_permutation(key, 7, capacity=3, on_overflow="raise"),
        lambda: gm.random_subset(key, mask, capacity=2, on_overflow="raise"),
        lambda: gm.random_subset(key, mask, -1, capacity=2, on_overflow="raise"),
    ):
        with pytest.raises(Exception, match="random_"):
            jax.block_until_ready(jax.jit(draw)())


def filtered(c, logits, p):
    """The filter of Hugging Face's TopPLogitsWarper, from the most likely entry down, as a mask."""
    ranked, order = torch.sort(logits, descending=True, stable=True)
    wide = ranked.float() if ranked.dtype == torch.bfloat16 else ranked
    probabilities = wide.softmax(-1)
    remove = probabilities.cumsum(-1) - probabilities >= p[..., None]
    remove &= p[..., None] < 1
    remove[..., 0] = False
    return ~torch.zeros_like(remove).scatter(-1, order, remove)


TOP_P = Differential(
    name="top_p_mask",
    configs=st.sampled_from([{"shape": shape} for shape in [(1,), (9,), (2, 9)]]),
    arrays=lambda rng, config, dtype: {
        "logits": np.where(
            rng.random(config.shape) < 0.2, -np.inf, values_of(rng, config.shape, dtype, special=False).round(1)
        ).astype(values_of(rng, 1, dtype).dtype),
        "p": np.asarray(rng.choice([0.0, 0.1, 0.5, 0.83, 1.0], config.shape[:-1])).astype(np.float32),
    },
    ours=lambda c, logits, p: gm.top_p_mask(logits, p),
    eager=filtered,
    dtypes=("float32", "float64", "bfloat16"),
)


def finite(one):
    """At least one entry that can be drawn."""

    def arrays(rng, config, dtype):
        drawn = one.arrays(rng, config, dtype)
        drawn["logits"][..., -1] = 0.5
        return drawn

    return dataclasses.replace(one, arrays=arrays)


TOP_P = finite(TOP_P)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([TOP_P]))
def test_the_nucleus_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def without_the_one_that_passes_p(c, logits, p):
    probabilities = jax.nn.softmax(logits, axis=-1)
    order = jnp.argsort(-logits, axis=-1)
    kept = jnp.cumsum(jnp.take_along_axis(probabilities, order, -1), -1) <= p[..., None]
    return jnp.take_along_axis(kept, jnp.argsort(order, axis=-1), -1)


@pytest.mark.slow
def test_a_planted_fault_is_caught():
    assert is_caught(dataclasses.replace(TOP_P, ours=without_the_one_that_passes_p))


def test_draws_follow_the_nucleus():
    probabilities = np.array([0.1, 0.4, 0.05, 0.3, 0.15])
    draw = jax.jit(jax.vmap(gm.sample_top_p, in_axes=(0, None, None)))
    tokens = draw(jax.random.split(jax.random.key(0), DRAWS), np.log(probabilities), 0.8)
    frequencies = np.bincount(tokens, minlength=5) / DRAWS
    kept = np.where([False, True, False, True, True], probabilities, 0)
    np.testing.assert_allclose(frequencies, kept / kept.sum(), atol=0.03)
    assert not frequencies[[0, 2]].any()
    rows = gm.sample_top_p(jax.random.key(0), np.log(np.stack([probabilities, probabilities])), np.array([0.0, 1.0]))
    assert rows.shape == (2,)
    assert int(rows[0]) == 1


def test_one_compilation_for_all_sizes():
    traces = []

    @jax.jit
    def draw(key, n, p):
        traces.append(n)
        order = gm.random_permutation(key, n, capacity=4)
        return gm.random_subset(key, order.valid, n, capacity=2), gm.sample_top_p(key, jnp.arange(3.0), p)

    for n in range(4):
        draw(jax.random.key(n), n, n / 4)
    assert len(traces) == 1


KEY = jax.random.key(0)
BAD = {
    "a negative probability": (lambda: gm.top_p_mask(jnp.ones(3), -0.1), ValueError, "p is -0.1"),
    "no probability": (lambda: gm.sample_top_p(KEY, jnp.ones(3), float("nan")), ValueError, "p is nan"),
    "a float of entries": (lambda: gm.random_permutation(KEY, 2.0, capacity=3), TypeError, "n has dtype float"),
    "no capacity": (lambda: gm.random_permutation(KEY, 2, capacity=0), ValueError, "capacity is 0"),
    "a mask of numbers": (lambda: gm.random_subset(KEY, jnp.ones(2), capacity=3), ValueError, "mask has dtype"),
    "a mask of rank 2": (
        lambda: gm.random_subset(KEY, jnp.ones((2, 2), bool), capacity=3),
        ValueError,
        "mask has shape",
    ),
    "a float of draws": (lambda: gm.random_subset(KEY, jnp.ones(2, bool), 1.0, capacity=3), TypeError, "size has"),
    "logits that are integers": (lambda: gm.top_p_mask(jnp.arange(3), 0.5), ValueError, "logits is int32"),
    "one logit": (lambda: gm.top_p_mask(1.0, 0.5), ValueError, "logits is float32"),
    "a seed for a key": (lambda: gm.random_permutation(7, 2, capacity=3), TypeError, r"jax.random.key\(7\)"),
    "keys": (lambda: gm.sample_top_p(jax.random.split(KEY), jnp.ones(3), 0.5), ValueError, r"key has shape \(2,\)"),
    "old keys": (
        lambda: gm.random_subset(jax.random.split(jax.random.PRNGKey(0)), jnp.ones(2, bool), capacity=3),
        ValueError,
        r"key has shape \(2, 2\)",
    ),
    "floats for a key": (lambda: gm.sample_top_p(jnp.ones(2), jnp.ones(3), 0.5), TypeError, "key is a float32, and"),
    "as many p as logits": (lambda: gm.top_p_mask(jnp.ones(3), jnp.ones(3)), ValueError, r"p has shape \(3,\)"),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what, jitted):
    make, error, message = BAD[what]
    with pytest.raises(error, match=message):
        (jax.jit(make) if jitted else make)()


def test_keys_of_the_older_form_draw_as_they_did():
    old, new = jax.random.PRNGKey(3), jax.random.key(3)
    assert gm.random_permutation(old, 5, capacity=8).to_list() == gm.random_permutation(new, 5, capacity=8).to_list()
