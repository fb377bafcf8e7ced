"""`gm.partition` against boolean indexing in numpy, under every transform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphmode as gm


def boolean_indexing(x, mask):
    return np.concatenate([x[mask], x[~mask]])


@settings(max_examples=40, deadline=None)
@given(mask=st.lists(st.booleans(), max_size=12), columns=st.sampled_from([None, 1, 3]), dtype=st.sampled_from("fib"))
def test_agrees_with_boolean_indexing(mask, columns, dtype):
    mask = np.array(mask, bool)
    shape = mask.shape if columns is None else (*mask.shape, columns)
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype({"f": "float32", "i": "int32", "b": "int8"}[dtype])
    rows, count = gm.partition(x, mask)
    np.testing.assert_array_equal(rows, boolean_indexing(x, mask))
    assert rows.dtype == x.dtype
    assert count.dtype == jnp.int32
    assert int(count) == mask.sum()


@pytest.mark.parametrize(
    "mask",
    [np.zeros(7, bool), np.ones(7, bool), np.arange(7) == 6, np.arange(7) != 6, np.arange(7) % 2 == 0],
    ids=["none", "all", "last", "all but last", "every other"],
)
def test_under_jit_keeps_nan_and_the_bits_of_negative_zero(mask):
    x = np.array([-0.0, np.nan, 1.5, -np.inf, 0.0, -2.0, 7.0], np.float32)
    rows, count = jax.jit(gm.partition)(x, mask)
    assert np.asarray(rows).tobytes() == boolean_indexing(x, mask).tobytes()
    assert int(count) == mask.sum()


def test_under_vmap_each_lane_has_its_own_count():
    rng = np.random.default_rng(0)
    x, mask = rng.standard_normal((5, 9, 2)), rng.random((5, 9)) < [[0.0], [0.2], [0.5], [0.8], [1.0]]
    rows, count = jax.vmap(gm.partition)(x.astype(np.float32), mask)
    for lane in range(5):
        np.testing.assert_array_equal(rows[lane], boolean_indexing(x[lane].astype(np.float32), mask[lane]))
    np.testing.assert_array_equal(count, mask.sum(1))


def test_the_gradient_returns_to_the_row_that_it_came_from():
    rng = np.random.default_rng(1)
    x, weight = rng.standard_normal((2, 8, 3)).astype(np.float32)
    mask = x[:, 0] > 0
    gradient = jax.grad(lambda x: (gm.partition(x, mask)[0] * weight).sum())(x)
    wanted = np.empty_like(weight)
    wanted[np.concatenate([np.flatnonzero(mask), np.flatnonzero(~mask)])] = weight
    np.testing.assert_array_equal(gradient, wanted)


def test_forward_and_reverse_mode_agree():
    x = jnp.linspace(-1.0, 1.0, 6)
    forward, reverse = (jac(lambda x: gm.partition(x, x > 0)[0])(x) for jac in (jax.jacfwd, jax.jacrev))
    np.testing.assert_array_equal(forward, reverse)


@pytest.mark.parametrize(
    ("x", "mask", "words"),
    [
        (np.zeros(3), np.array([1, 0, 1]), ["mask", "int", "bool"]),
        (np.zeros(3), np.array([1.0, 0.0, 1.0]), ["mask", "float", "bool"]),
        (np.zeros(3), np.ones(4, bool), ["mask", "(4,)", "(3,)"]),
        (np.zeros((3, 2)), np.ones((3, 2), bool), ["mask", "(3, 2)", "(3,)", "vmap"]),
        (np.zeros(3), np.bool_(True), ["mask", "()", "(3,)"]),
        (np.float32(3), np.ones(1, bool), ["x", "scalar"]),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(x, mask, words, wrap):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        wrap(gm.partition)(x, mask)
    assert all(word in str(error.value) for word in words)


def test_a_padded_is_named():
    with pytest.raises(TypeError, match=r"x is a Padded.*x\.compact"):
        gm.partition(gm.Padded(np.zeros(3), np.ones(3, bool), 3), np.ones(3, bool))


def test_lowered_form_holds_no_sort():
    x = jnp.zeros(64)
    assert "stablehlo.sort" not in jax.jit(gm.partition).lower(x, x > 0).as_text()
    assert "stablehlo.sort" in jax.jit(jnp.argsort).lower(x).as_text()
