"""What is sampled from is what transformers' processors leave, and the draws follow it."""

import importlib.util
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from small_decoder import SmallDecoder

import graphmode as gm

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="transformers is not installed: pip install 'graphmode[huggingface]'",
)


def processed(logits, temperature, top_k, top_p):
    """By the classes of transformers."""
    from transformers.generation import logits_process as processors

    steps = [processors.TemperatureLogitsWarper(temperature)]
    steps += [processors.TopKLogitsWarper(top_k)] if top_k is not None else []
    steps += [processors.TopPLogitsWarper(top_p)] if top_p is not None else []
    scores = torch.tensor(logits)
    for step in steps:
        scores = step(None, scores)
    return scores.numpy()


def lowest_stay(found, logits):
    """Whether what stays of equals comes before what goes."""
    stays = [found[logits == one] > -np.inf for one in np.unique(logits)]
    return all((np.diff(kept.astype(int)) <= 0).all() for kept in stays)


@needs_transformers
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("top_k", [None, 1, 3, 40, 99])
@pytest.mark.parametrize("top_p", [None, 1e-9, 0.7, 0.987, 1.0])
def test_logits_are_those_of_transformers(dtype, top_k, top_p):
    rng = np.random.default_rng(0)
    distinct = 3 * rng.standard_normal((30, 41))
    distinct[rng.random(distinct.shape) < 0.1] = -np.inf
    with jax.enable_x64(dtype == "float64"):
        for temperature in (1.0, 0.37, 2.5):
            options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
            for ties in (False, True):
                logits = (distinct.round() if ties else distinct).astype(dtype)
                found, wanted = np.asarray(gm.warp_logits(logits, **options)), processed(logits, **options)
                assert found.dtype == dtype
                if ties:  # how many of equals are cut is said there, and which ones is not
                    assert all(lowest_stay(*rows) for rows in zip(found, logits, strict=True))
                    found, wanted = np.sort(found), np.sort(wanted)
                # XLA multiplies by the reciprocal of a constant: a last digit
                np.testing.assert_allclose(found, wanted, rtol=2 * np.finfo(dtype).eps)


@needs_transformers
def test_each_row_may_have_its_own_numbers():
    logits = np.random.default_rng(1).standard_normal((3, 9)).astype(np.float32)
    temperature, top_p = np.float32([0.5, 1, 2]), np.float32([0.3, 1, 0.8])
    found = jax.jit(gm.warp_logits)(logits, temperature=temperature, top_p=top_p)
    wanted = [
        processed(one[None], float(t), None, float(p))[0] for one, t, p in zip(logits, temperature, top_p, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, rtol=3e-7)


def test_half_precision_is_sampled_in_single():
    assert gm.warp_logits(jnp.ones((2, 3), jnp.bfloat16), top_k=2).dtype == jnp.float32


def looks_drawn_from(outcomes, probabilities):
    """Pearson's chi-square against a bound that true draws pass with probability above 0.9999."""
    counts = np.bincount(outcomes, minlength=len(probabilities))
    possible = probabilities > 0
    if counts[~possible].any():
        return False
    expected = len(outcomes) * probabilities[possible]
    assert expected.min() > 5
    freedom = possible.sum() - 1
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    # Wilson and Hilferty's cube-root approximation of the quantile
    return statistic < freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3


DRAWS = 20_000
TABLE = np.random.default_rng(5).standard_normal((4, 4)).astype(np.float32)
FILTERS = [
    {},
    {"temperature": 0.6},
    {"top_k": 3},
    {"top_p": 0.8},
    {"temperature": 1.7, "top_k": 3, "top_p": 0.9},
]


def two_tokens(**options):
    """Pairs that were drawn one after another, as numbers, and the log-probabilities that were reported."""

    def step(state, tokens, position):
        return jnp.asarray(TABLE)[tokens], state

    drawn = jax.jit(
        lambda key: gm.sample(key, step, None, np.zeros(DRAWS, int), max_new_tokens=2, **options),
    )(jax.random.key(0))
    return np.asarray(drawn.tokens) @ [4, 1], np.asarray(drawn.scores)


def probabilities_of_pairs(temperature=1.0, top_k=None, top_p=None):
    rows = torch.tensor(processed(TABLE, temperature, top_k, top_p)).softmax(-1).double().numpy()
    return (rows[0][:, None] * rows).reshape(-1)


@needs_transformers
@pytest.mark.parametrize("options", FILTERS, ids=str)
def test_draws_follow_the_distribution(options):
    pairs, scores = two_tokens(**options)
    probabilities = probabilities_of_pairs(**options)
    assert looks_drawn_from(pairs, probabilities)
    np.testing.assert_allclose(scores, np.log(probabilities[pairs]), rtol=0, atol=1e-6)


@needs_transformers
@pytest.mark.parametrize(("drawn", "meant"), [(FILTERS[0], FILTERS[1]), (FILTERS[1], {"temperature": 0.65})], ids=str)
def test_draws_from_another_distribution_are_caught(drawn, meant):
    assert not looks_drawn_from(two_tokens(**drawn)[0], probabilities_of_pairs(**meant))


def test_draws_that_repeat_would_be_caught():
    """Each step draws anew, and each sequence for itself."""
    flat = gm.sample(
        jax.random.key(3),
        lambda state, tokens, position: (jnp.zeros((tokens.shape[0], 50)), state),
        None,
        np.zeros(40, int),
        max_new_tokens=30,
    ).tokens
    assert len({tuple(row) for row in flat.tolist()}) == 40
    assert len({tuple(column) for column in flat.T.tolist()}) == 30


def test_a_key_says_what_is_drawn():
    model = SmallDecoder(0, dtype=np.float32)

    def drawn(seed):
        found = gm.sample(jax.random.key(seed), model.step, model.start(2), [0, 1], max_new_tokens=12)
        return found.tokens.tolist()

    assert drawn(1) == drawn(1) != drawn(2)


def test_of_the_likeliest_alone_sampling_is_greedy():
    model = SmallDecoder(0, dtype=np.float32)
    options = {"max_new_tokens": 9, "eos_id": 2}
    drawn = gm.sample(jax.random.key(0), model.step, model.start(3), [0, 5, 1], top_k=1, **options)
    likeliest = gm.greedy(model.step, model.start(3), [0, 5, 1], **options)
    assert drawn.tokens.tolist() == likeliest.tokens.tolist()
    assert drawn.scores.tolist() == [0, 0, 0]
