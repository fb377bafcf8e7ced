"""Rows repeated, cut, split and appended by computed lengths, against eager PyTorch's dynamic forms."""

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


def configs(names, *choices):
    """Few, since each is compiled for itself."""
    return st.sampled_from([dict(zip(names.split(), choice, strict=True)) for choice in choices])


def rows_of(rng, config, dtype):
    return values_of(rng, (config.rows, *config.columns), dtype)


def rows_and_repeats(rng, config, dtype):
    repeats = rng.integers(0, rng.choice([1, 2, 4]) + 1, config.rows).astype(np.int32)
    return {"x": rows_of(rng, config, dtype), "repeats": repeats}


REPEAT = Differential(
    name="repeat_interleave",
    configs=configs("rows columns capacity fill_value", (0, (), 2, 1), (7, (), 1, 0), (7, (2,), 14, 1), (7, (), 30, 0)),
    arrays=rows_and_repeats,
    ours=lambda c, x, repeats: gm.repeat_interleave(x, repeats, capacity=c.capacity, fill_value=c.fill_value),
    eager=lambda c, x, repeats: padded(torch.repeat_interleave(x, repeats, dim=0), c.capacity, c.fill_value),
    gradients=("x",),
)
REPEAT_SECOND_AXIS = Differential(
    name="repeat_interleave axis 1",
    configs=configs("capacity axis", (1, 1), (14, -1)),
    arrays=lambda rng, config, dtype: {
        "x": values_of(rng, (3, 5), dtype),
        "repeats": rng.integers(0, 4, 5).astype(np.int32),
    },
    ours=lambda c, x, repeats: gm.repeat_interleave(x, repeats, capacity=c.capacity, axis=c.axis),
    eager=lambda c, x, repeats: padded(torch.repeat_interleave(x, repeats, dim=c.axis).movedim(1, 0), c.capacity),
    dtypes=("float32",),
    gradients=("x",),
)
REPEAT_INDICES = Differential(
    name="repeat_interleave of repeats alone",
    configs=configs("rows capacity", (0, 1), (7, 14), (7, 3)),
    arrays=lambda rng, config, dtype: {"repeats": rng.integers(0, 4, config.rows).astype(np.int32)},
    ours=lambda c, repeats: gm.repeat_interleave(repeats, capacity=c.capacity),
    eager=lambda c, repeats: padded(torch.repeat_interleave(repeats), c.capacity),
    dtypes=("int32",),
)
BOUNDS = (-(2**31), -9, -7, -3, -1, 0, 1, 3, 6, 7, 9, 2**31 - 1)
TAKE_SLICE = Differential(
    name="take_slice",
    configs=configs("rows columns capacity fill_value", (0, (), 2, 1), (7, (), 1, 0), (7, (2,), 4, 1), (7, (), 9, 0)),
    arrays=lambda rng, config, dtype: {
        "x": rows_of(rng, config, dtype),
        "start": np.int32(rng.choice(BOUNDS)),
        "stop": np.int32(rng.choice(BOUNDS)),
    },
    ours=lambda c, x, start, stop: gm.take_slice(x, start, stop, capacity=c.capacity, fill_value=c.fill_value),
    eager=lambda c, x, start, stop: padded(x[start:stop], c.capacity, c.fill_value),
    gradients=("x",),
)
HEAD_AND_TAIL = Differential(
    name="take_slice with one bound",
    configs=configs("rows columns capacity", (7, (), 4), (7, (), 9)),
    arrays=lambda rng, config, dtype: {"x": rows_of(rng, config, dtype), "n": np.int32(rng.choice(BOUNDS))},
    ours=lambda c, x, n: (gm.take_slice(x, stop=n, capacity=c.capacity), gm.take_slice(x, n, capacity=c.capacity)),
    eager=lambda c, x, n: (padded(x[:n], c.capacity), padded(x[n:], c.capacity)),
    dtypes=("float32",),
)


def rows_and_lengths(rng, config, dtype):
    cuts = np.sort(rng.integers(0, config.rows + 1, config.parts - 1))
    lengths = np.diff(cuts, prepend=0, append=config.rows).astype(np.int32)
    return {"x": rows_of(rng, config, dtype), "lengths": lengths}


def split_in_pytorch(c, x, lengths):
    parts = [padded(part, c.capacity, c.fill_value) for part in torch.split(x, lengths.tolist())]
    return {name: torch.stack([part[name] for part in parts]) for name in parts[0]}


SPLIT = Differential(
    name="split",
    configs=configs(
        "rows columns parts capacity fill_value",
        (0, (), 2, 2, 1),
        (7, (2,), 4, 2, 1),
        (7, (), 4, 7, 0),
        (7, (), 1, 7, 0),
    ),
    arrays=rows_and_lengths,
    ours=lambda c, x, lengths: gm.split(x, lengths, capacity=c.capacity, fill_value=c.fill_value),
    eager=split_in_pytorch,
    gradients=("x",),
)
APPEND = Differential(
    name="append",
    configs=configs("first second columns capacity", (0, 4, (), 1), (3, 4, (2,), 5), (3, 4, (), 9), (3, 0, (), 3)),
    arrays=lambda rng, config, dtype: {
        "x": values_of(rng, (config.first, *config.columns), dtype),
        "y": values_of(rng, (config.second, *config.columns), dtype),
        "picked": mask_of(rng, config.second),
    },
    ours=lambda c, x, y, picked: gm.append(
        gm.append(gm.full(0, jnp.zeros(c.columns, x.dtype), capacity=c.capacity), x), y, valid=picked
    ),
    eager=lambda c, x, y, picked: padded(torch.cat([x, y[picked]]), c.capacity),
    gradients=("x", "y"),
)
ARANGE = Differential(
    name="arange and full",
    configs=configs("capacity", (1,), (5,)),
    arrays=lambda rng, config, dtype: {
        "n": np.int32(rng.integers(0, 8)),
        "value": np.asarray(values_of(rng, (1,), dtype)),
    },
    ours=lambda c, n, value: (gm.arange(n, capacity=c.capacity), masked(gm.full(n, value, capacity=c.capacity))),
    eager=lambda c, n, value: (
        padded(torch.arange(int(n)), c.capacity),
        padded(value.expand(int(n), 1), c.capacity),
    ),
    gradients=("value",),
)


def masked(found):
    return dataclasses.replace(
        found, values=jnp.where(found.valid[:, None], found.values, 0).astype(found.values.dtype)
    )


TABLE = [REPEAT, REPEAT_SECOND_AXIS, REPEAT_INDICES, TAKE_SLICE, HEAD_AND_TAIL, SPLIT, APPEND, ARANGE]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def jax_repeat(c, x, repeats):
    values = jnp.repeat(x, repeats, axis=0, total_repeat_length=c.capacity)
    count = jnp.minimum(repeats.sum(), c.capacity)
    values = jnp.zeros((c.capacity, *x.shape[1:]), x.dtype) if not len(x) else values
    return gm.Padded(values, jnp.arange(c.capacity) < count, count)


def jax_dynamic_slice(c, x, start, stop):
    size = min(c.capacity, x.shape[0])
    values = jax.lax.dynamic_slice_in_dim(x, start, size)
    values = jnp.concatenate([values, jnp.zeros((c.capacity - size, *x.shape[1:]), x.dtype)])
    count = jnp.maximum(stop - start, 0)
    return gm.Padded(values, jnp.arange(c.capacity) < count, count)


def clamped_onto_the_last(c, x, y, picked):
    grown = APPEND.ours(c, x, y, picked)
    last = y[-1] if y.shape[0] else x[-1] if x.shape[0] else grown.values[-1]
    return dataclasses.replace(grown, values=grown.values.at[-1].set(jnp.where(grown.overflow, last, grown.values[-1])))


def parts_one_short(c, x, lengths):
    parts = SPLIT.ours(c, x, lengths)
    return jax.vmap(lambda part: dataclasses.replace(part, valid=part.valid.at[-1].set(False)))(parts)


FAULTS = [
    (REPEAT, jax_repeat),
    (TAKE_SLICE, jax_dynamic_slice),
    (APPEND, clamped_onto_the_last),
    (SPLIT, parts_one_short),
]


@pytest.mark.slow
@pytest.mark.parametrize(("one", "fault"), FAULTS, ids=lambda value: getattr(value, "__name__", None))
def test_a_planted_fault_is_caught(one, fault):
    assert is_caught(dataclasses.replace(one, ours=fault))


def overflowing(policy):
    """Each operation, asked for 4 rows where there is room for 3; `n` says how many."""
    x, keep = jnp.arange(1.0, 9), {"capacity": 3, "on_overflow": policy}
    return {
        "repeat_interleave": lambda n: gm.repeat_interleave(x, jnp.array([n, 0, 0, 0, 0, 0, 0, 0]), **keep),
        "take_slice": lambda n: gm.take_slice(x, 2, 2 + n, **keep),
        "split": lambda n: jax.tree.map(lambda leaf: leaf[0], gm.split(x, jnp.array([n, 0, 3, 5 - n]), **keep)),
        "full": lambda n: gm.full(n, 1.0, **keep),
        "append": lambda n: gm.append(gm.full(1, 1.0, capacity=3), x, valid=jnp.arange(8) < n - 1, on_overflow=policy),
    }


@pytest.mark.parametrize("operation", overflowing("flag"))
def test_overflow_is_seen(operation):
    flagged = jax.jit(overflowing("flag")[operation])
    for asked in (2, 3, 4):
        found = flagged(asked)
        assert int(found.count) == asked
        assert found.valid.tolist() == [True, True, asked > 2]
        assert bool(found.overflow) == (asked > 3)
    assert np.isfinite(found.values).all()
    spoilt = jax.jit(overflowing("nan")[operation])
    assert np.isnan(spoilt(4).values).all()
    assert not np.isnan(spoilt(3).values).any()
    strict = jax.jit(overflowing("raise")[operation])
    assert int(strict(3).count) == 3
    with pytest.raises(Exception, match=f"{operation} found 4 entries, and its capacity is 3"):
        jax.block_until_ready(strict(4))


def refused(policy):
    """What eager PyTorch raises for: a length that is negative, or lengths that do not sum to the rows."""
    x, keep = jnp.arange(4.0), {"capacity": 9, "on_overflow": policy}
    return {
        "repeat_interleave": lambda n: gm.repeat_interleave(x, jnp.array([1, n, 0, 2]), **keep),
        "split": lambda n: gm.split(x, jnp.array([2, n, 2]), **keep),
        "arange": lambda n: gm.arange(n, **keep),
        "full": lambda n: gm.full(n, 1.0, **keep),
    }


@pytest.mark.parametrize("operation", refused("flag"))
def test_what_pytorch_refuses_is_an_overflow(operation):
    flagged = jax.jit(refused("flag")[operation])
    assert not flagged(0).overflow.any()
    assert flagged(-1).overflow.all()
    assert (flagged(-1).count == NO_LENGTH).all()
    strict = jax.jit(refused("raise")[operation])
    jax.block_until_ready(strict(0))
    with pytest.raises(Exception, match=f"{operation}: "):
        jax.block_until_ready(strict(-1))


@pytest.mark.parametrize("lengths", [[1, 1], [3, 3], [-1, 5], [2**31 - 1, 5]])
def test_lengths_that_do_not_split(lengths):
    x = torch.arange(4)
    with pytest.raises((RuntimeError, ValueError)):
        x.split(lengths)
    assert gm.split(jnp.arange(4), jnp.array(lengths), capacity=4).overflow.all()


@pytest.mark.parametrize(
    "repeats", [[2**31 - 1, 1, 1], [2**31 - 1] * 3, [2**30, 2**30, 2**30, 2**30, 5], [0, 2**31 - 2, 1, 0]]
)
def test_a_count_that_no_int32_holds(repeats):
    found = gm.repeat_interleave(jnp.arange(len(repeats)), jnp.array(repeats), capacity=4)
    first = next(i for i, repeat in enumerate(repeats) if repeat)
    assert int(found.count) == min(sum(repeats), NO_LENGTH)
    assert found.values.tolist() == [first] * 4
    assert bool(found.overflow)


@pytest.mark.parametrize("dtype", [np.uint32, np.int64, np.uint64])
def test_a_length_that_no_int32_holds(dtype):
    with jax.enable_x64(True):
        wide = jnp.asarray(np.array(min(2**40, np.iinfo(dtype).max), dtype))
        assert gm.arange(wide, capacity=3).values.tolist() == [0, 1, 2]
        assert int(gm.arange(wide, capacity=3).count) == NO_LENGTH
        assert int(gm.take_slice(jnp.arange(5), wide, capacity=3).count) == 0
    assert bool(gm.arange(2**40, capacity=3).overflow)


def test_one_repeat_for_all():
    x = np.array([3, 4])
    for repeats in (2, np.array(2), np.array([2])):
        found = gm.repeat_interleave(x, repeats, capacity=5)
        assert found.values.tolist() == [3, 3, 4, 4, 0]
    tree = gm.repeat_interleave({"a": x, "b": np.ones((2, 3))}, np.array([0, 2]), capacity=2)
    assert tree.values["a"].tolist() == [4, 4]
    assert tree.values["b"].shape == (2, 3)


def test_slices_of_a_padded_end_at_its_count():
    some = gm.compact(jnp.arange(8), jnp.arange(8) % 2 == 1, capacity=6)
    assert gm.take_slice(some, -2, capacity=3).values.tolist() == [5, 7, 0]
    parts = gm.split(some, jnp.array([1, 3]), capacity=3)
    assert parts.values.tolist() == [[1, 0, 0], [3, 5, 7]]
    assert not parts.overflow.any()
    lossy = gm.compact(jnp.arange(8), jnp.arange(8) % 2 == 1, capacity=3)
    assert gm.split(lossy, jnp.array([1, 3]), capacity=3).overflow.tolist() == [False, True]
    assert not gm.take_slice(lossy, 0, 3, capacity=3).overflow
    assert gm.take_slice(lossy, 0, 4, capacity=4).overflow


def test_rows_of_a_padded_with_holes_are_its_valid_ones():
    rng = np.random.default_rng(0)

    @jax.jit
    def every(x, mask, start, stop, repeats):
        holed = gm.Padded(x, mask, jnp.sum(mask))
        lengths = jnp.array([stop, jnp.sum(mask) - stop])
        return (
            gm.take_slice(holed, start, stop, capacity=4),
            jax.tree.map(lambda leaf: leaf[1], gm.split(holed, lengths, capacity=6)),
            gm.repeat_interleave(holed, repeats, capacity=9),
            gm.repeat_interleave(holed, 2, capacity=12),
        )

    for _ in range(20):
        mask, repeats = rng.random(6) < 0.6, rng.integers(0, 3, 6)
        x = np.where(mask, rng.standard_normal(6), np.nan).astype(np.float32)
        rows, times = torch.from_numpy(x[mask]), torch.from_numpy(repeats[mask])
        stop = int(rng.integers(0, len(rows) + 1))
        start = int(rng.integers(0, stop + 1))
        wanted = (rows[start:stop], rows[stop:], rows.repeat_interleave(times), rows.repeat_interleave(2))
        for found, want in zip(every(x, mask, start, stop, repeats), wanted, strict=True):
            held = min(len(want), found.capacity)
            np.testing.assert_array_equal(found.values[:held], want[:held])
            assert not np.asarray(found.values[held:]).any()
            assert int(found.count) == len(want)
    x = jnp.array([1.0, jnp.nan, 3.0, 4.0])

    def weighed(x):
        return gm.take_slice(gm.Padded(x, ~jnp.isnan(x), 3), 1, 3, capacity=2).values @ jnp.array([1.0, 2.0])

    assert jax.jit(jax.vmap(jax.grad(weighed)))(jnp.stack([x, x[::-1]])).tolist() == [[0, 0, 1, 2], [0, 1, 0, 2]]


def test_rows_that_a_padded_had_lost_are_not_repeated_unseen():
    lossy = gm.compact(jnp.arange(4), jnp.arange(4) > 0, capacity=2)
    repeated = gm.repeat_interleave(lossy, jnp.array([1, 2]), capacity=4)
    assert repeated.values.tolist() == [1, 2, 2, 0]
    assert int(repeated.count) == NO_LENGTH
    with pytest.raises(Exception, match=r"repeat_interleave: .* a Padded that had lost rows"):
        jax.block_until_ready(gm.repeat_interleave(lossy, 2, capacity=4, on_overflow="raise"))


@pytest.mark.parametrize("padding", [np.nan, np.inf])
def test_padding_leaks_into_no_gradient(padding):
    x = np.array([1.0, 2.0, padding], np.float32)

    def loss(x, n):
        parts = gm.split(x, jnp.array([n, 3 - n]), capacity=2).values[0]
        rows = [
            gm.take_slice(x, 0, n, capacity=3).values,
            gm.repeat_interleave(x, jnp.array([n, 1, 0]), capacity=4).values,
        ]
        return sum((part**2).sum() for part in [*rows, parts])

    value, gradient = jax.jit(jax.value_and_grad(loss))(x, 2)
    assert float(value) == 5 + 6 + 5
    assert gradient.tolist() == [2 + 4 + 2, 4 + 4 + 4, 0]


def test_a_cache_of_keys_grows_in_a_scan():
    steps, room, heads = 6, 4, 3
    new = np.random.default_rng(0).standard_normal((steps, 2, heads)).astype(np.float32)
    lives = np.array([[True, True], [False, True], [True, True], [True, True], [False, True], [True, True]])

    @jax.jit
    def decode(new, lives):
        empty = gm.full(0, jnp.zeros(heads), capacity=room)
        caches = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), empty)

        def step(caches, inputs):
            rows, alive = inputs
            caches = jax.vmap(lambda cache, row, alive: gm.append(cache, row[None], valid=alive[None]))(
                caches, rows, alive
            )
            return caches, caches.overflow

        return jax.lax.scan(step, caches, (new, lives))

    caches, overflow = decode(new, lives)
    for lane in range(2):
        cache = torch.empty(0, heads)
        for row, alive in zip(new[:, lane], lives[:, lane], strict=True):
            cache = torch.cat([cache, torch.from_numpy(row)[None]]) if alive else cache
        wanted = padded(cache, room)
        np.testing.assert_array_equal(caches.values[lane], wanted["values"])
        assert int(caches.count[lane]) == len(cache)
    assert overflow.T.tolist() == [[False] * 6, [False] * 4 + [True] * 2]


def test_append_joins_what_is_padded():
    x = jnp.arange(6)
    odd, small = gm.compact(x, x % 2 == 1, capacity=4), gm.compact(x, x < 2, capacity=4)
    joined = gm.append(gm.append(gm.full(0, 0, capacity=6), odd), small)
    assert joined.values.tolist() == [1, 3, 5, 0, 1, 0]
    assert int(joined.count) == 5
    lossy = gm.compact(x, x % 2 == 1, capacity=2)
    assert gm.append(gm.full(0, 0, capacity=6), lossy).overflow
    full = gm.append(gm.full(0, 0, capacity=2), x)
    assert int(gm.append(full, x).count) == 12
    holed = gm.Padded(x[:3], jnp.array([False, True, False]), jnp.array(1))
    after = gm.append(holed, jnp.array([9, 9]))
    assert after.values.tolist() == [0, 1, 9]
    assert after.overflow


def test_one_compilation_for_all_lengths():
    traces = []

    @jax.jit
    def cut(x, n):
        traces.append(x.shape)
        buffer = gm.append(gm.arange(n, capacity=4), jnp.arange(2))
        return (
            gm.take_slice(x, n, capacity=3),
            gm.repeat_interleave(x, n, capacity=3),
            buffer,
            gm.split(x, jnp.array([n, 5 - n]), capacity=2),
        )

    for n in range(4):
        cut(np.arange(5.0), n)
    assert len(traces) == 1


X = np.arange(4.0)
HELD = gm.Padded(np.zeros((3, 2)), np.ones(3, bool), np.int32(3))
BAD = {
    "repeats too short": (lambda: gm.repeat_interleave(X, np.array([1, 2]), capacity=3), ValueError, "repeats has"),
    "repeats that are floats": (lambda: gm.repeat_interleave(X, np.ones(4), capacity=3), TypeError, "dtype"),
    "repeats that are bools": (lambda: gm.repeat_interleave(X, X > 1, capacity=3), TypeError, "dtype bool"),
    "repeats alone, of rank 0": (lambda: gm.repeat_interleave(3, capacity=3), ValueError, "repeats has shape"),
    "an axis that is none": (lambda: gm.repeat_interleave(X, 2, capacity=3, axis=1), ValueError, "axis is 1"),
    "an axis of a padded": (lambda: gm.repeat_interleave(HELD, 2, capacity=3, axis=1), ValueError, "axis is 1.*Padded"),
    "a scalar": (lambda: gm.repeat_interleave(1.0, 2, capacity=3), ValueError, "x is a scalar"),
    "no capacity": (lambda: gm.take_slice(X, 1, capacity=0), ValueError, "capacity is 0"),
    "a filling that no integer is": (
        lambda: gm.take_slice(np.arange(3), 1, capacity=4, fill_value=np.inf), ValueError, "fill_value is inf",
    ),
    "a filling of parts": (
        lambda: gm.split(np.arange(3), np.array([1, 2]), capacity=4, fill_value=0.5), ValueError, "fill_value is 0.5",
    ),
    "a filling of repeats": (
        lambda: gm.repeat_interleave(np.arange(3), 1, capacity=4, fill_value=np.nan), ValueError, "fill_value is nan",
    ),
    "a filling of row numbers": (
        lambda: gm.repeat_interleave(np.arange(3), capacity=4, fill_value=0.5), ValueError, "fill_value is 0.5",
    ),
    "a start that is a float": (lambda: gm.take_slice(X, 1.0, capacity=2), TypeError, "start has dtype float"),
    "a start that is a bool": (lambda: gm.take_slice(X, True, capacity=2), TypeError, "start has dtype bool"),
    "two stops": (lambda: gm.take_slice(X, 0, np.array([1, 2]), capacity=2), ValueError, r"stop has shape \(2,\)"),
    "one length": (lambda: gm.split(X, 4, capacity=4), ValueError, "lengths has shape"),
    "no lengths": (lambda: gm.split(X, np.zeros(0, int), capacity=4), ValueError, "lengths has shape"),
    "a float of entries": (lambda: gm.arange(2.0, capacity=4), TypeError, "n has dtype float"),
    "NaN among integers": (lambda: gm.arange(2, capacity=4, on_overflow="nan"), ValueError, "int32 has no NaN"),
    "a buffer that is an array": (lambda: gm.append(X, X), TypeError, "buffer is a ndarray"),
    "rows of another dtype": (lambda: gm.append(gm.full(0, 1, capacity=3), jnp.ones(2)), ValueError, "rows are"),
    "a row without its axis": (lambda: gm.append(gm.full(0, jnp.ones(3), capacity=3), jnp.ones(3)), ValueError, "None"),
    "another structure": (lambda: gm.append(gm.full(0, 1, capacity=3), {"a": X}), ValueError, "structure"),
    "a mask too short": (
        lambda: gm.append(gm.full(0, 1.0, capacity=3), jnp.ones(2), valid=jnp.array([True])), ValueError, "valid has",
    ),
}  # fmt: skip


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what, jitted):
    make, error, message = BAD[what]
    with pytest.raises(error, match=message):
        (jax.jit(make) if jitted else make)()
