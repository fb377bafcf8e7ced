"""`gm.unique` and `gm.unique_consecutive` against PyTorch's."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import DTYPES, Differential, cases, is_caught, padded, run, values_of
from hypothesis import strategies as st

import graphmode as gm

FORMS = {"unique": (gm.unique, torch.unique), "unique_consecutive": (gm.unique_consecutive, torch.unique_consecutive)}
FLAT = st.sampled_from(
    [
        {"shape": shape, "capacity": capacity, "asked": asked, "dim": None}
        for shape, capacity in [((), 1), ((0,), 2), ((7,), 7), ((40,), 5), ((4, 5), 30)]
        for asked in [(), ("return_inverse",), ("return_counts",), ("return_inverse", "return_counts")]
    ]
)
SLICES = st.sampled_from(
    [
        {"shape": shape, "capacity": capacity, "asked": asked, "dim": dim}
        for shape, dim, capacity in [
            ((7,), 0, 4),
            ((9, 2), 0, 20),
            ((2, 9), 1, 3),
            ((3, 2, 8), -1, 8),
            ((12, 1, 2), 0, 12),
        ]
        for asked in [(), ("return_inverse", "return_counts")]
    ]
)
VALID = st.sampled_from(
    [
        {"shape": shape, "capacity": capacity, "dim": dim}
        for shape, dim, capacity in [
            ((7,), None, 3),
            ((40,), None, 50),
            ((6, 2), None, 6),
            ((0,), None, 1),
            ((9, 2), 0, 5),
        ]
    ]
)


def numbers(rng, config, dtype):
    """Few distinct ones, also in slices; NaN where all entries are compared on their own."""
    x = values_of(rng, config.shape, dtype)
    if config.dim is not None:
        return {"x": np.round(x.astype(np.float64)).clip(-1, 1).astype(x.dtype)}
    if np.issubdtype(x.dtype, np.floating) and rng.random() < 0.3:
        x = np.where(rng.random(config.shape) < 0.2, np.asarray(np.nan, x.dtype), x)
    return {"x": np.sort(x, axis=None).reshape(x.shape) if rng.random() < 0.3 else x}


def numbers_and_valid(rng, config, dtype):
    count = int(np.prod(config.shape[:1]))
    return {**numbers(rng, config, dtype), "valid": rng.random(count) < rng.choice([0.0, 0.5, 1.0])}


def ours(name):
    def form(c, x):
        asked = dict.fromkeys(c.asked, True)
        return FORMS[name][0](x, capacity=c.capacity, dim=c.dim, fill_value=1, **asked)

    return form


def in_order_of_nan(x, inverse):
    """PyTorch sorts NaN, each of its own, in any order; ours stand in the order that they had."""
    nan = torch.isnan(x).flatten()
    if inverse.shape != x.shape or not nan.any():
        return inverse
    return inverse.flatten().index_put((nan,), inverse.flatten()[nan].sort().values).reshape(x.shape)


def eager(name):
    def form(c, x):
        asked = dict.fromkeys(c.asked, True)
        found = FORMS[name][1](x, dim=c.dim, **asked)
        values, *others = found if asked else (found,)
        if c.dim is not None:
            values = values.movedim(c.dim, 0)
        if "return_inverse" in asked:
            others[0] = in_order_of_nan(x, others[0])
        if "return_counts" in asked:
            others[-1] = padded(others[-1], c.capacity)["values"]
        return [padded(values, c.capacity, 1), *others]

    return form


def ours_of_valid(name):
    def form(c, x, valid):
        x = gm.Padded(x, valid, valid.sum())
        found, inverse, counts = FORMS[name][0](
            x, capacity=c.capacity, dim=c.dim, return_inverse=True, return_counts=True
        )
        outside = inverse >= max(c.capacity, int(np.prod(inverse.shape)))
        mask = jnp.broadcast_to(valid.reshape(-1, *(1 for _ in inverse.shape[1:])), inverse.shape)
        return found, jnp.where(mask, inverse, -1), counts, outside

    return form


def eager_of_valid(name):
    def form(c, x, valid):
        values, inverse, counts = FORMS[name][1](x[valid], dim=c.dim, return_inverse=True, return_counts=True)
        all_of = torch.full(x.shape if c.dim is None else x.shape[:1], -1)
        all_of[valid] = in_order_of_nan(x[valid], inverse)
        mask = valid.reshape(-1, *(1 for _ in all_of.shape[1:])).expand(all_of.shape)
        return padded(values, c.capacity), all_of, padded(counts, c.capacity)["values"], ~mask

    return form


TABLE = [
    one
    for name, dtypes in (("unique", DTYPES), ("unique_consecutive", ("float32", "int32")))
    for one in [
        Differential(name=name, configs=FLAT, arrays=numbers, ours=ours(name), eager=eager(name), dtypes=dtypes),
        Differential(
            name=f"{name}-slices",
            configs=SLICES,
            arrays=numbers,
            ours=ours(name),
            eager=eager(name),
            dtypes=("float32",) if name != "unique" else ("float32", "int32"),
        ),
        Differential(
            name=f"{name}-of-padded",
            configs=VALID,
            arrays=numbers_and_valid,
            ours=ours_of_valid(name),
            eager=eager_of_valid(name),
            dtypes=("int32",) if name != "unique" else ("float32", "bool"),
        ),
    ]
]
UNIQUE, SLICED, OF_PADDED = TABLE[:3]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def as_jax_pads(c, x):
    values = jnp.unique(x, size=c.capacity, equal_nan=False)
    count = ours("unique")(type(c)(**{**vars(c), "asked": ()}), x).count
    return [gm.Padded(values, jnp.arange(c.capacity) < count, count), *ours("unique")(c, x)[1:]] if c.asked else values


def nan_is_one(c, x):
    found = gm.unique(jnp.where(jnp.isnan(x), jnp.inf, x), capacity=c.capacity, fill_value=1)
    return (found, *ours("unique")(c, x)[1:]) if c.asked else found


def unstable_inverse(c, x):
    if "return_inverse" not in c.asked:
        return ours("unique")(c, x)
    found, inverse, *others = ours("unique")(c, x)
    return (found, jnp.minimum(inverse, c.capacity - 1), *others)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [as_jax_pads, nan_is_one, unstable_inverse])
def test_a_planted_fault_is_caught(fault):
    assert is_caught(dataclasses.replace(UNIQUE, ours=fault))


def padding_counted(c, x, valid):
    return ours_of_valid("unique")(c, jnp.where(valid.reshape(-1, *(1 for _ in x.shape[1:])), x, 0), valid | True)


def columns_in_reverse(c, x):
    return ours("unique")(c, jnp.flip(x, [axis for axis in range(x.ndim) if axis != c.dim % x.ndim]))


@pytest.mark.slow
def test_planted_faults_of_padding_and_order_are_caught():
    assert is_caught(dataclasses.replace(OF_PADDED, ours=padding_counted))
    assert is_caught(dataclasses.replace(SLICED, ours=columns_in_reverse))


def finished(form, *arguments):
    jax.block_until_ready(form(*arguments))
    jax.effects_barrier()


@pytest.mark.parametrize("name", FORMS)
def test_overflow_is_seen_raises_and_spoils_on_demand(name):
    form, x = FORMS[name][0], np.arange(6.0)
    found, inverse, counts = form(x, capacity=4, return_inverse=True, return_counts=True)
    assert found.values.tolist() == [0, 1, 2, 3]
    assert int(found.count) == 6
    assert bool(found.overflow)
    assert inverse.tolist() == [0, 1, 2, 3, 4, 5]
    assert counts.tolist() == [1, 1, 1, 1]
    assert np.isnan(form(x, capacity=4, on_overflow="nan").values).all()
    with pytest.raises(Exception, match=f"{name} found 6 entries, and its capacity is 4"):
        finished(lambda x: form(x, capacity=4, on_overflow="raise"), x)


@pytest.mark.parametrize("name", FORMS)
def test_what_was_lost_before_stays_lost(name):
    picked = gm.compact(np.array([1, 1, 2, 3]), np.ones(4, bool), capacity=3)
    found = FORMS[name][0](picked, capacity=8)
    assert found.values[:2].tolist() == [1, 2]
    assert bool(found.overflow)
    assert int(found.count) == 3


def test_extreme_values_are_no_padding():
    limits = np.array([np.iinfo(np.int32).max, np.iinfo(np.int32).min], np.int32)
    assert gm.unique(limits, capacity=3).values.tolist() == [*limits[::-1].tolist(), 0]
    valid = np.array([True, False, True, False])
    x = gm.Padded(np.array([np.inf, np.nan, np.nan, -np.inf], np.float32), valid, np.int32(2))
    found = gm.unique(x, capacity=4, fill_value=-1)
    np.testing.assert_array_equal(found.values, np.array([np.inf, np.nan, -1, -1], np.float32))
    assert int(found.count) == 2


def test_the_gradient_of_the_filling_and_of_padding_is_zero():
    x = jnp.array([2.0, jnp.nan, 2.0, 1.0])
    padding = jnp.array([True, False, True, True])
    total = jax.grad(lambda x: jnp.log(gm.unique(gm.Padded(x, padding, 3), capacity=5, fill_value=1).values).sum())(x)
    assert float(total[3]) == 1
    assert float(total[1]) == 0
    assert float(total[0] + total[2]) == 0.5


def test_forward_and_reverse_mode_agree():
    x = jnp.array([3.0, -1.0, 3.0, jnp.inf, 0.5])

    def form(x):
        return gm.unique(x, capacity=5).values

    np.testing.assert_array_equal(jax.jacfwd(form)(x), jax.jacrev(form)(x))


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "float64", "int8", "uint8", "int32", "bool"])
def test_all_bit_patterns_of_note_are_sorted_and_found_again(dtype):
    """Against numpy's sort: signed zeros, NaN of both signs, infinities, extremes and subnormals, with padding."""
    with jax.enable_x64(dtype == "float64"):
        if dtype == "bool":
            x = np.array([True, False, True])
        elif "int" in dtype:
            limits = np.iinfo(dtype)
            x = np.array([limits.max, limits.min, 0, 1, limits.max], dtype)
        else:
            limits = jnp.finfo(dtype)
            special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, limits.max, limits.min, limits.tiny, 1.0, -1.0, 1.0]
            x = np.array(special, jnp.dtype(dtype))
        valid = np.arange(len(x)) != 2
        found, inverse = gm.unique(gm.Padded(x, valid, valid.sum()), capacity=len(x), return_inverse=True)
        kept = np.sort(x[valid].astype(np.float64))
        wanted = kept[[True, *(kept[1:] != kept[:-1])]]
        assert found.values.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(found.values, np.float64)[: len(wanted)], wanted)
        assert int(found.count) == len(wanted)
        again = np.asarray(found.values)[np.asarray(inverse)[valid]]
        np.testing.assert_array_equal(again.astype(np.float64), x[valid].astype(np.float64))
        assert inverse[2] >= len(x)


@pytest.mark.parametrize("name", FORMS)
def test_no_rows_have_no_distinct_one(name):
    distinct, inverse, counts = FORMS[name][0](
        jnp.zeros((0, 3)), dim=0, capacity=2, return_inverse=True, return_counts=True
    )
    assert distinct.values.shape == (2, 3)
    assert int(distinct.count) == 0
    assert inverse.shape == (0,)
    assert counts.tolist() == [0, 0]


def test_complex_numbers_are_refused():
    with pytest.raises(TypeError, match="complex64"):
        gm.unique(np.zeros(3, np.complex64), capacity=2)


def test_one_compilation_for_all_values():
    traces = []

    @jax.jit
    def distinct(x):
        traces.append(x.shape)
        return gm.unique(x, capacity=3, return_inverse=True, return_counts=True)

    for seed in range(4):
        distinct(np.random.default_rng(seed).integers(0, 3, 7))
    assert len(traces) == 1


PADDED = gm.Padded(np.zeros((3, 2)), np.ones(3, bool), np.int32(3))


@pytest.mark.parametrize(
    ("error", "x", "settings", "words"),
    [
        (ValueError, np.zeros((3, 2)), {"dim": 2}, ["dim", "2", "(3, 2)"]),
        (ValueError, np.float32(0), {"dim": 0}, ["dim", "()"]),
        (TypeError, np.zeros((3, 2)), {"dim": "rows"}, ["dim", "rows"]),
        (ValueError, PADDED, {"dim": 1}, ["dim", "Padded", "0"]),
        (TypeError, dataclasses.replace(PADDED, values={"a": np.zeros(3)}), {}, ["x", "Padded", "dict"]),
        (ValueError, np.zeros(3), {"capacity": 0}, ["capacity", "0"]),
        (TypeError, np.zeros(3), {"capacity": "4", "return_inverse": True}, ["capacity", "4"]),
        (ValueError, np.zeros(3, np.int32), {"on_overflow": "nan"}, ["on_overflow", "int32"]),
        (ValueError, np.zeros(3, np.int32), {"fill_value": np.inf}, ["fill_value", "inf"]),
    ],
)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(error, x, settings, words, name, wrap):
    with pytest.raises(error) as raised:
        wrap(lambda x: FORMS[name][0](x, **{"capacity": 2, **settings}))(x)
    assert all(word in str(raised.value) for word in words), raised.value
