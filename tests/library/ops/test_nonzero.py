"""`gm.nonzero` and its kin against `torch.nonzero`, and what its padding does to reads and writes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, run, values_of
from hypothesis import strategies as st

import graphmode as gm

SHAPES = st.sampled_from(
    [
        {"shape": shape, "capacity": capacity}
        for shape in [(), (0,), (7,), (40,), (3, 4), (2, 0, 3), (2, 3, 4)]
        for capacity in (1, 6, 30)
    ]
)


def numbers(rng, config, dtype):
    x = values_of(rng, config.shape, dtype)
    return {"x": np.where(rng.random(config.shape) < rng.choice([0.0, 0.5, 1.0]), x, np.zeros((), x.dtype))}


def padded_indices(indices, lengths, capacity):
    """Indices `[count, axes]`, cut or filled with the lengths of the axes."""
    held = indices[:capacity]
    filling = torch.tensor(lengths, dtype=torch.int64).expand(capacity - len(held), len(lengths))
    valid = torch.arange(capacity) < len(indices)
    return {"values": torch.cat([held, filling]), "valid": valid, "count": torch.tensor(len(indices))}


def by_column(c, x):
    rows = padded_indices(torch.nonzero(x.reshape(c.shape or (1,))), c.shape or (1,), c.capacity)
    return {**rows, "values": tuple(rows["values"].T)}


NONZERO = Differential(
    name="nonzero",
    configs=SHAPES,
    arrays=numbers,
    ours=lambda c, x: gm.nonzero(x, capacity=c.capacity),
    eager=lambda c, x: padded_indices(torch.nonzero(x), c.shape, c.capacity),
)
AS_TUPLE = dataclasses.replace(
    NONZERO,
    name="nonzero-as-tuple",
    dtypes=("int32",),
    ours=lambda c, x: gm.nonzero(x, capacity=c.capacity, as_tuple=True),
    eager=by_column,
)
ARGWHERE = dataclasses.replace(
    NONZERO,
    name="argwhere",
    ours=lambda c, x: gm.argwhere(x, capacity=c.capacity),
    eager=lambda c, x: padded_indices(torch.argwhere(x), c.shape, c.capacity),
    dtypes=("float32",),
)
FLATNONZERO = dataclasses.replace(
    NONZERO,
    name="flatnonzero",
    ours=lambda c, x: gm.flatnonzero(x, capacity=c.capacity),
    eager=lambda c, x: {
        **(rows := padded_indices(torch.nonzero(x.flatten()), (x.numel(),), c.capacity)),
        "values": rows["values"][:, 0],
    },
    dtypes=("float32",),
)
# One argument of `where` is `nonzero(as_tuple=True)`.
WHERE = dataclasses.replace(
    AS_TUPLE,
    name="where",
    eager=lambda c, x: {**by_column(c, x), "count": torch.tensor(len(torch.where(x)[0]))},
    dtypes=("bool",),
)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([NONZERO, AS_TUPLE, ARGWHERE, FLATNONZERO, WHERE]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def finished(form, *arguments):
    jax.block_until_ready(form(*arguments))
    jax.effects_barrier()


def wrapping(c, x):
    found = gm.nonzero(x, capacity=c.capacity)
    return dataclasses.replace(found, values=jnp.where(found.valid[:, None], found.values, -1))


def as_jax_pads(c, x):
    found = jnp.stack(jnp.nonzero(x, size=c.capacity), axis=1) if x.ndim else jnp.zeros((c.capacity, 0), jnp.int32)
    count = jnp.sum(x != 0)
    return gm.Padded(found, jnp.arange(c.capacity) < count, count)


def cut_silently(c, x):
    found = gm.nonzero(x, capacity=c.capacity)
    return dataclasses.replace(found, count=jnp.minimum(found.count, c.capacity))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [wrapping, as_jax_pads, cut_silently])
def test_a_planted_fault_is_caught(fault):
    assert is_caught(dataclasses.replace(NONZERO, ours=fault))


def test_nan_is_not_zero():
    x = np.array([np.nan, 0.0, -0.0, 1.0], np.float32)
    np.testing.assert_array_equal(gm.flatnonzero(x, capacity=2).values, torch.nonzero(torch.tensor(x))[:, 0])


def test_a_write_with_the_indices_drops_what_is_padding():
    x = jnp.array([[1.0, 0.0], [0.0, 0.0]])
    rows, columns = gm.nonzero(x, capacity=3, as_tuple=True).values
    assert x.at[rows, columns].add(5, mode="drop").tolist() == [[6, 0], [0, 0]]
    assert x.at[rows, columns].get(mode="fill", fill_value=-1).tolist() == [1, -1, -1]


def test_overflow_raises_on_demand_with_the_name_of_the_operation():
    found = jax.jit(lambda x: gm.nonzero(x, capacity=2))(np.ones(5))
    assert int(found.count) == 5
    assert bool(found.overflow)
    with pytest.raises(Exception, match="nonzero found 5 entries, and its capacity is 2"):
        finished(jax.jit(lambda x: gm.nonzero(x, capacity=2, on_overflow="raise")), np.ones(5))


def test_one_compilation_for_all_masks():
    traces = []

    @jax.jit
    def find(mask):
        traces.append(mask.shape)
        return gm.nonzero(mask, capacity=3)

    for seed in range(4):
        find(np.random.default_rng(seed).random((5, 2)) < 0.5)
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("error", "settings", "words"),
    [
        (TypeError, {"capacity": None}, ["capacity", "None"]),
        (ValueError, {"capacity": -1}, ["capacity", "-1"]),
        (ValueError, {"on_overflow": "nan"}, ["on_overflow", "nan", "int32"]),
        (ValueError, {"on_overflow": "no"}, ["on_overflow", "no"]),
    ],
)
@pytest.mark.parametrize("form", [gm.nonzero, gm.argwhere, gm.flatnonzero])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(error, settings, words, form, wrap):
    with pytest.raises(error) as raised:
        wrap(lambda x: form(x, **{"capacity": 2, **settings}))(np.ones(3))
    assert all(word in str(raised.value) for word in words), raised.value
