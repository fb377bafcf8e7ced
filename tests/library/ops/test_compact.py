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

# Narrow, wide, and many for their capacity: the forms that compact chooses among, and both sides of a word of 32.
ROWS = st.sampled_from(
    [
        {"lead": lead, "columns": columns, "capacity": capacity, "fill_value": fill_value}
        for lead, columns, capacity, fill_value in [
            ((0,), (), 5, 0),
            ((0,), (2,), 5, 1),
            ((1,), (), 1, 1),
            ((6,), (), 6, 0),
            ((6,), (2,), 5, 1),
            ((17,), (), 1, 1),
            ((17,), (2,), 2, 1),
            ((17,), (3, 6), 7, 1),
            ((17,), (3, 0), 7, 1),
            ((40,), (), 20, 0),
            ((40,), (), 5, 0),
            ((40,), (3, 6), 50, 1),
            ((64,), (2,), 33, 0),
        ]
    ]
)
LEADING = st.sampled_from(
    [
        {"lead": lead, "columns": columns, "capacity": capacity, "fill_value": 1}
        for lead, columns, capacity in [((3, 4), (), 6), ((3, 4), (2,), 20), ((2, 3, 2), (5,), 4), ((2, 0), (3,), 2)]
    ]
)


def rows_and_mask(rng, config, dtype):
    return {"x": values_of(rng, (*config.lead, *config.columns), dtype), "mask": mask_of(rng, config.lead)}


COMPACT = Differential(
    name="compact",
    configs=ROWS,
    arrays=rows_and_mask,
    ours=lambda c, x, mask: gm.compact(x, mask, capacity=c.capacity, fill_value=c.fill_value),
    eager=lambda c, x, mask: padded(x[mask], c.capacity, c.fill_value),
    gradients=("x",),
)
COMPACT_LEADING = dataclasses.replace(COMPACT, name="compact-leading-axes", configs=LEADING)
PARTITION = Differential(
    name="partition",
    configs=ROWS,
    arrays=rows_and_mask,
    ours=lambda c, x, mask: gm.partition(x, mask),
    eager=lambda c, x, mask: (torch.cat([x[mask], x[~mask]]), mask.sum()),
    gradients=("x",),
)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([COMPACT, COMPACT_LEADING, PARTITION]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def finished(form, *arguments):
    jax.block_until_ready(form(*arguments))
    jax.effects_barrier()


def one_short(c, x, mask):
    picked = gm.compact(x, mask, capacity=c.capacity, fill_value=c.fill_value)
    return dataclasses.replace(picked, valid=picked.valid & (jnp.arange(c.capacity) < c.capacity - 1))


def silent(c, x, mask):
    picked = gm.compact(x, mask, capacity=c.capacity, fill_value=c.fill_value)
    return dataclasses.replace(picked, count=jnp.minimum(picked.count, c.capacity))


def leaking(c, x, mask):
    picked = gm.compact(x, mask, capacity=c.capacity, fill_value=c.fill_value)
    return dataclasses.replace(picked, values=picked.values + x.sum(0).astype(x.dtype) * jnp.asarray(0, x.dtype))


def out_of_order(c, x, mask):
    return gm.compact(x[::-1], mask[::-1], capacity=c.capacity, fill_value=c.fill_value)


def gradient_of_all(c, x, mask):
    picked = gm.compact(x, mask, capacity=c.capacity, fill_value=c.fill_value)
    spread = jnp.zeros_like(picked.values) + (x - jax.lax.stop_gradient(x)).sum()
    return dataclasses.replace(picked, values=picked.values + jnp.where(jnp.isfinite(spread), spread, 0))


@pytest.mark.parametrize("fault", [one_short, silent, leaking, out_of_order, gradient_of_all])
def test_a_planted_fault_is_caught(fault):
    assert is_caught(dataclasses.replace(COMPACT, ours=fault))


def test_the_sound_form_is_not_accused():
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


@pytest.mark.parametrize("size", [5, 200])
def test_overflow_raises_and_spoils_on_demand(size):
    x = jnp.ones(size)
    spoilt = jax.jit(lambda x: gm.compact(x, x > 0, capacity=4, on_overflow="nan"))(x)
    assert bool(jnp.isnan(spoilt.values).all())
    assert int(spoilt.count) == size
    loud = jax.jit(lambda x: gm.compact(x, x > 0, capacity=4, on_overflow="raise"))
    assert int(loud(jnp.arange(size) < 4).count) == 4
    with pytest.raises(Exception, match=f"compact found {size} entries, and its capacity is 4"):
        finished(loud, x)


@pytest.mark.parametrize("columns", [(), (20,)])
@pytest.mark.parametrize("capacity", [2, 40])
def test_nothing_of_an_unpicked_nan_or_infinity_reaches_values_or_gradients(columns, capacity):
    x = jnp.broadcast_to(jnp.array([jnp.nan, 2.0, jnp.inf, 3.0]).reshape(4, *(1 for _ in columns)), (4, *columns))

    def total(x):
        mask = jnp.isfinite(x.reshape(4, -1)[:, 0])
        picked = gm.compact(x, mask, capacity=capacity)
        return jnp.sum(jnp.log(jnp.where(picked.valid.reshape(-1, *(1 for _ in columns)), picked.values, 1)))

    value, gradient = jax.value_and_grad(total)(x)
    wanted = np.broadcast_to(np.array([0, 0.5, 0, 1 / 3], np.float32).reshape(4, *(1 for _ in columns)), x.shape)
    assert np.isfinite(value)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "form", [lambda x: gm.compact(x, x > 0, capacity=8).values, lambda x: gm.partition(x, x > 0)[0]]
)
@pytest.mark.parametrize("size", [7, 70])
def test_forward_reverse_and_second_derivatives_agree(form, size):
    x = jnp.sin(jnp.arange(1.0, size + 1))
    np.testing.assert_array_equal(jax.jacfwd(form)(x), jax.jacrev(form)(x))
    hessian = jax.hessian(lambda x: (form(x) ** 3).sum())(x)
    kept = np.asarray(jax.jacrev(form)(x)).sum(0)
    np.testing.assert_allclose(hessian, np.diag(6 * np.asarray(x) * kept), rtol=1e-5)


def test_a_pytree_is_compacted_alike():
    tree = {"boxes": np.arange(8.0).reshape(4, 2), "labels": np.arange(4)}
    picked = gm.compact(tree, np.array([False, True, False, True]), capacity=3, fill_value=-1)
    assert picked.values["boxes"].tolist() == [[2, 3], [6, 7], [-1, -1]]
    assert picked.values["labels"].tolist() == [1, 3, -1]


MASK = np.ones(3, bool)


@pytest.mark.parametrize(
    ("error", "x", "mask", "settings", "words"),
    [
        (ValueError, np.zeros(3), np.ones(3), {}, ["mask", "float", "bool"]),
        (ValueError, np.zeros(3), np.ones(4, bool), {}, ["mask", "(4,)", "(3,)"]),
        (ValueError, np.zeros((3, 2)), np.ones((2, 3), bool), {}, ["mask", "(2, 3)", "(3, 2)"]),
        (ValueError, np.zeros(3), np.ones((3, 2), bool), {}, ["mask", "(3, 2)", "(3,)"]),
        (ValueError, np.zeros(3), np.bool_(True), {}, ["mask", "()", "(3,)"]),
        (ValueError, np.float32(1), np.bool_(True), {}, ["mask", "rows"]),
        (ValueError, {}, MASK, {}, ["x", "no array"]),
        (ValueError, {"a": np.zeros(3), "b": np.zeros(4)}, MASK, {}, ["x['b']", "(4,)"]),
        (ValueError, np.zeros(3), MASK, {"capacity": 0}, ["capacity", "0"]),
        (ValueError, np.zeros(3), MASK, {"capacity": 2**31 - 2}, ["capacity", "2**31"]),
        (TypeError, np.zeros(3), MASK, {"capacity": 2.0}, ["capacity", "2.0"]),
        (TypeError, gm.Padded(np.zeros(3), MASK, np.int32(2)), MASK, {}, ["x is a Padded", "x.compact(mask)"]),
        (ValueError, np.zeros(3, np.int32), MASK, {"fill_value": np.nan}, ["fill_value", "nan", "int32"]),
        (ValueError, np.zeros(3, np.int32), MASK, {"fill_value": 2**40}, ["fill_value", "int32"]),
        (ValueError, np.zeros(3, np.float16), MASK, {"fill_value": -1e9}, ["fill_value", "float16"]),
        (ValueError, np.zeros(3), MASK, {"fill_value": np.zeros(2)}, ["fill_value", "(2,)"]),
        (ValueError, np.zeros(3), MASK, {"on_overflow": "clip"}, ["on_overflow", "clip", "flag"]),
        (ValueError, np.zeros(3, np.int32), MASK, {"on_overflow": "nan"}, ["on_overflow", "int32"]),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(error, x, mask, settings, words, wrap):
    with pytest.raises(error) as raised:
        wrap(lambda x, mask: gm.compact(x, mask, **{"capacity": 2, **settings}))(x, mask)
    assert all(word in str(raised.value) for word in words), raised.value


def test_a_traced_capacity_is_refused():
    with pytest.raises(TypeError, match=r"capacity is traced.*static"):
        jax.jit(lambda x, n: gm.compact(x, x > 0, capacity=n))(np.zeros(3), 2)
