"""`gm.isin` against `torch.isin`, and set operations against numpy's on what is not padding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, padded, run, values_of
from hypothesis import strategies as st

import graphmode as gm

SETS = {
    "intersect1d": (gm.intersect1d, np.intersect1d),
    "union1d": (gm.union1d, np.union1d),
    "setdiff1d": (gm.setdiff1d, np.setdiff1d),
    "setxor1d": (gm.setxor1d, np.setxor1d),
}
NUMERIC = ("float32", "float64", "bfloat16", "int32")
# Few and many test elements: the two ways in which isin compares.
PAIRS = [((), (3,)), ((5,), ()), ((0,), (3,)), ((7,), (0,)), ((7,), (5,)), ((3, 4), (2, 30)), ((60,), (40,))]
MEMBERSHIP = st.sampled_from(
    [{"shape": a, "test_shape": b, "invert": invert} for a, b in PAIRS for invert in (False, True)]
)
COLLECTIONS = st.sampled_from(
    [{"shape": a, "test_shape": b, "capacity": capacity} for a, b in PAIRS[2:] for capacity in (3, 100)]
)


def two(rng, config, dtype):
    return {"a": values_of(rng, config.shape, dtype), "b": values_of(rng, config.test_shape, dtype)}


def two_and_valid(rng, config, dtype):
    arrays = two(rng, config, dtype)
    for name in ("a", "b"):
        arrays[f"{name}_valid"] = rng.random(arrays[name].shape[0]) < rng.choice([0.0, 0.5, 1.0])
    return arrays


def two_padded(a, b, a_valid, b_valid):
    return gm.Padded(a, a_valid, a_valid.sum()), gm.Padded(b, b_valid, b_valid.sum())


def by_numpy(form, c, a, b):
    found = torch.from_numpy(form(a.to(torch.float64).numpy(), b.to(torch.float64).numpy()))
    return padded(found.to(a.dtype), c.capacity)


ISIN = Differential(
    name="isin",
    configs=MEMBERSHIP,
    arrays=two,
    ours=lambda c, a, b: gm.isin(a, b, invert=c.invert),
    eager=lambda c, a, b: torch.isin(a, b, invert=c.invert),
    dtypes=NUMERIC,
)
ISIN_PADDED = Differential(
    name="isin-of-padded",
    configs=st.sampled_from(
        [{"shape": a, "test_shape": b, "invert": invert} for a, b in PAIRS[2:] for invert in (False, True)]
    ),
    arrays=two_and_valid,
    ours=lambda c, **arrays: gm.isin(*two_padded(**arrays), invert=c.invert),
    eager=lambda c, a, b, a_valid, b_valid: (
        torch.isin(a, b[b_valid], invert=c.invert) & a_valid.reshape(-1, *(1 for _ in a.shape[1:]))
    ),
    dtypes=("float32", "int32"),
)
TABLE = [ISIN, ISIN_PADDED]
for name, (ours, theirs) in SETS.items():
    TABLE += [
        Differential(
            name=name,
            configs=COLLECTIONS,
            arrays=two,
            ours=lambda c, a, b, ours=ours: ours(a, b, capacity=c.capacity),
            eager=lambda c, a, b, theirs=theirs: by_numpy(theirs, c, a, b),
            dtypes=("float32",) if name != "intersect1d" else ("float32", "bfloat16", "int32"),
        ),
        Differential(
            name=f"{name}-of-padded",
            configs=COLLECTIONS,
            arrays=two_and_valid,
            ours=lambda c, ours=ours, **arrays: ours(*two_padded(**arrays), capacity=c.capacity),
            eager=lambda c, a, b, a_valid, b_valid, theirs=theirs: by_numpy(theirs, c, a[a_valid], b[b_valid]),
            dtypes=("int32",),
        ),
    ]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_the_dynamic_form(one, dtype, examples):
    run(one, dtype, examples)


def padding_matches(c, a, b, a_valid, b_valid):
    return gm.isin(jnp.where(a_valid.reshape(-1, *(1 for _ in a.shape[1:])), a, 0), b, invert=c.invert)


def inverted_padding(c, **arrays):
    found = gm.isin(*two_padded(**arrays))
    return ~found if c.invert else found


@pytest.mark.slow
@pytest.mark.parametrize("fault", [padding_matches, inverted_padding])
def test_a_planted_fault_of_isin_is_caught(fault):
    assert is_caught(dataclasses.replace(ISIN_PADDED, ours=fault), "int32")


def cut_silently(c, a, b):
    found = gm.union1d(a, b, capacity=c.capacity)
    return dataclasses.replace(found, count=jnp.minimum(found.count, c.capacity))


def not_distinct(c, a, b):
    kept = gm.isin(a, b).reshape(-1)
    return gm.compact(jnp.sort(jnp.where(kept, a.reshape(-1), 99)), kept, capacity=c.capacity)


@pytest.mark.slow
def test_a_planted_fault_of_set_operations_is_caught():
    tables = {one.name: one for one in TABLE}
    assert is_caught(dataclasses.replace(tables["union1d"], ours=cut_silently), "int32")
    assert is_caught(dataclasses.replace(tables["intersect1d"], ours=not_distinct), "int32")


@pytest.mark.parametrize("many", [2, 100])
def test_nan_is_in_nothing_and_each_is_kept(many):
    x = np.array([np.nan, 1.0, np.nan], np.float32)
    tested = np.concatenate([np.full(many, np.nan, np.float32), [1]]).astype(np.float32)
    assert gm.isin(x, tested).tolist() == torch.isin(torch.tensor(x), torch.tensor(tested)).tolist()
    assert int(gm.intersect1d(x, tested, capacity=4).count) == 1
    assert int(gm.setdiff1d(x, tested, capacity=4).count) == 2
    assert int(gm.union1d(x, x, capacity=9).count) == 5


def test_dtypes_are_promoted_together():
    found = gm.union1d(np.array([1, 2], np.int32), np.array([2.5], np.float32), capacity=3)
    assert found.values.dtype == jnp.float32
    assert found.values.tolist() == [1, 2, 2.5]
    assert gm.isin(np.array([1, 2], np.int32), np.array([2.0], np.float32)).tolist() == [False, True]


def finished(form, *arguments):
    jax.block_until_ready(form(*arguments))
    jax.effects_barrier()


@pytest.mark.parametrize("name", SETS)
def test_overflow_is_seen_raises_and_spoils_on_demand(name):
    ours, theirs = SETS[name]
    a, b = np.arange(9.0, dtype=np.float32), np.arange(3, 6, dtype=np.float32)
    found = jax.jit(lambda a, b: ours(a, b, capacity=2))(a, b)
    assert int(found.count) == len(theirs(a, b))
    assert bool(found.overflow)
    assert np.isnan(ours(a, b, capacity=2, on_overflow="nan").values).all()
    with pytest.raises(Exception, match="entries, and its capacity is 2"):
        finished(lambda a, b: ours(a, b, capacity=2, on_overflow="raise"), a, b)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("side", [0, 1])
def test_what_was_lost_before_stays_lost(name, side):
    arguments = [np.arange(3), np.arange(2, 9)]
    arguments[side] = gm.compact(arguments[side], np.ones_like(arguments[side], bool), capacity=2)
    assert bool(SETS[name][0](*arguments, capacity=20).overflow)


def test_each_number_of_a_lost_row_counts():
    rows = gm.compact(np.arange(6).reshape(3, 2), np.ones(3, bool), capacity=1)
    assert int(gm.union1d(rows, np.arange(2), capacity=9).count) == 2 + 4


@pytest.mark.parametrize(
    ("error", "settings", "words"),
    [
        (ValueError, {"capacity": 0}, ["capacity", "0"]),
        (TypeError, {"capacity": 1.5}, ["capacity", "1.5"]),
        (ValueError, {"on_overflow": "nan"}, ["on_overflow", "int32"]),
        (ValueError, {"fill_value": np.nan}, ["fill_value", "int32"]),
    ],
)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(error, settings, words, name, wrap):
    x = np.arange(3, dtype=np.int32)
    with pytest.raises(error) as raised:
        wrap(lambda a, b: SETS[name][0](a, b, **{"capacity": 2, **settings}))(x, x)
    assert all(word in str(raised.value) for word in words), raised.value


def test_a_collection_of_several_arrays_is_refused():
    several = gm.Padded({"a": np.zeros(2)}, np.ones(2, bool), np.int32(2))
    for arguments in [(several, np.zeros(2)), (np.zeros(2), several)]:
        for form in (gm.isin, lambda a, b: gm.union1d(a, b, capacity=3)):
            with pytest.raises(TypeError, match="Padded of dict"):
                form(*arguments)
