"""Methods of `gm.Padded` against eager PyTorch on the dynamic `x[mask]`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import DTYPES, FLOATING, Differential, cases, is_caught, mask_of, padded, run, values_of
from flax import nnx
from hypothesis import strategies as st

import graphmode as gm

CHOICES = {
    "shape": st.sampled_from([(0,), (7,), (7, 2)]),
    # None: valid entries anywhere, NaN between them; else at the front, as compact leaves them
    "capacity": st.sampled_from([None, 4, 7]),
}


def rows_and_mask(rng, config, dtype, *, nan=False):
    x, mask = values_of(rng, config.shape, dtype), mask_of(rng, config.shape[0])
    if dtype in FLOATING:
        x[~mask] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
        if nan and rng.random() < 0.4:
            x[rng.random(x.shape) < 0.3] = np.nan
    return {"x": x, "mask": mask}


def rows_with_nan(rng, config, dtype):
    return rows_and_mask(rng, config, dtype, nan=True)


def rows_and_weight(rng, config, dtype):
    return {**rows_and_mask(rng, config, dtype), "weight": values_of(rng, (), dtype, special=False)}


def two_collections(rng, config, dtype):
    x, y = rows_and_mask(rng, config, dtype), rows_and_mask(rng, config, dtype)
    return {**x, "y": y["x"], "other": y["mask"]}


def collection(c, x, mask):
    if c.capacity is None:
        return gm.Padded(x, mask, jnp.sum(mask))
    return gm.compact(x, mask, capacity=c.capacity)


def held(c, x, mask):
    """The rows that our collection holds."""
    return x[mask] if c.capacity is None else x[mask][: c.capacity]


def in_slots(c, rows, mask, fill_value=0):
    """Dynamic rows where our collection has them, with its valid marks and count."""
    if c.capacity:
        out = padded(rows, c.capacity, fill_value)
        return out | {"count": mask.sum()}
    values = torch.full((len(mask), *rows.shape[1:]), fill_value, dtype=rows.dtype)
    # not in place, so that gradients come through
    slots = torch.cumsum(mask, 0) - 1
    if len(rows):
        shown = mask.reshape(-1, *[1] * (rows.ndim - 1))
        values = torch.where(shown, rows[slots.clamp(min=0)], values)
    return {"values": values, "valid": mask, "count": mask.sum()}


def at_front(c, rows, mask, fill_value=0):
    return padded(rows, c.capacity or c.shape[0], fill_value) | {"count": mask.sum()}


def of_rows(name, ours, eager, *, dtypes, arrays=rows_and_mask, exact=False, gradients=("x",), **more):
    return Differential(
        name=f"Padded.{name}",
        configs=st.fixed_dictionaries({**CHOICES, **more}),
        arrays=arrays,
        ours=ours,
        eager=eager,
        dtypes=dtypes,
        gradients=gradients,
        exact=exact,
    )


def extreme(rows, reduce, neutral):
    if len(rows):
        return reduce(rows)
    integer, boolean = (-(2**31), False) if neutral < 0 else (2**31 - 1, True)
    fill = {torch.int32: integer, torch.bool: boolean}.get(rows.dtype, neutral)
    return torch.full(rows.shape[1:], fill, dtype=rows.dtype)


def eager_argmax(c, x, mask):
    rows = held(c, x, mask)
    if not len(rows):
        return torch.full(c.shape[1:], c.capacity or c.shape[0])
    found = rows.argmax(0)
    return mask.nonzero()[:, 0][found] if c.capacity is None else found


def eager_variance(c, x, mask):
    rows = held(c, x, mask)
    return rows.var(0) if len(rows) > 1 else rows.var(0).detach()


def eager_argsort(c, x, mask):
    indices = held(c, x, mask).sort(dim=0, stable=True, descending=c.descending).indices
    indices = mask.nonzero()[:, 0][indices] if c.capacity is None else indices
    return at_front(c, indices, mask, c.capacity or c.shape[0])


def eager_map(c, x, mask, weight):
    rows = held(c, x, mask)
    found = [row.sum() * weight + 1 for row in rows]
    return in_slots(c, torch.stack(found) if found else torch.zeros(0, dtype=x.dtype), mask, 3)


def eager_concat(c, x, mask, y, other):
    rows = torch.cat([held(c, x, mask), held(c, y, other)])
    return padded(rows, 5, 1) | {"count": mask.sum() + other.sum()}


def eager_scatter(c, x, mask):
    dense = x.clone()
    places = mask.nonzero()[:, 0] if c.capacity is None else mask.nonzero()[: c.capacity, 0]
    if len(places):
        dense[places] = held(c, x, mask) * 2
    return dense


def eager_compact(c, x, mask):
    further = torch.arange(len(mask)) % 2 == 0
    if c.capacity is None:
        return padded(x[mask & further], 3) | {"count": (mask & further).sum()}
    rows = held(c, x, mask)
    lost = int(mask.sum()) - len(rows)
    rows = rows[torch.arange(len(rows)) % 2 == 0]
    return padded(rows, 3) | {"count": torch.tensor(len(rows) + lost)}


DIRECTION = {"descending": st.booleans()}
SORT = of_rows(
    "sort",
    lambda c, x, mask: collection(c, x, mask).sort(descending=c.descending, fill_value=1),
    lambda c, x, mask: at_front(c, held(c, x, mask).sort(dim=0, stable=True, descending=c.descending).values, mask, 1),
    dtypes=DTYPES,
    arrays=rows_with_nan,
    exact=True,
    **DIRECTION,
)
MAP = of_rows(
    "map",
    lambda c, x, mask, weight: collection(c, x, mask).map(lambda row: row.sum() * weight + 1, fill_value=3),
    eager_map,
    dtypes=FLOATING,
    arrays=rows_and_weight,
    gradients=("x", "weight"),
)
CONCAT = of_rows(
    "concat",
    lambda c, x, mask, y, other: collection(c, x, mask).concat(collection(c, y, other), capacity=5, fill_value=1),
    eager_concat,
    dtypes=("float32", "bool"),
    arrays=two_collections,
    exact=True,
    gradients=("x", "y"),
)
SCATTER = of_rows(
    "scatter",
    lambda c, x, mask: collection(c, x, mask).map(lambda row: row * 2).scatter(mask, into=x),
    eager_scatter,
    dtypes=("float32", "int32"),
    exact=True,
)
TABLE = [
    of_rows(
        "sum",
        lambda c, x, mask: collection(c, x, mask).sum(),
        lambda c, x, mask: held(c, x, mask).sum(0),
        dtypes=("float32", "bool"),
    ),
    of_rows(
        "mean",
        lambda c, x, mask: collection(c, x, mask).mean(),
        lambda c, x, mask: held(c, x, mask).mean(0),
        dtypes=("float32",),
    ),
    of_rows("var", lambda c, x, mask: collection(c, x, mask).var(), eager_variance, dtypes=("float32",)),
    of_rows(
        "max",
        lambda c, x, mask: collection(c, x, mask).max(),
        lambda c, x, mask: extreme(held(c, x, mask), lambda rows: rows.amax(0), -torch.inf),
        dtypes=("float32", "bool"),
        arrays=rows_with_nan,
        exact=True,
    ),
    of_rows(
        "min",
        lambda c, x, mask: collection(c, x, mask).min(),
        lambda c, x, mask: extreme(held(c, x, mask), lambda rows: rows.amin(0), torch.inf),
        dtypes=("float32", "bool"),
        arrays=rows_with_nan,
        exact=True,
    ),
    of_rows(
        "argmax",
        lambda c, x, mask: collection(c, x, mask).argmax(),
        eager_argmax,
        dtypes=("float32", "int32"),
        arrays=rows_with_nan,
        exact=True,
        gradients=(),
    ),
    of_rows(
        "softmax",
        lambda c, x, mask: collection(c, x, mask).softmax(),
        lambda c, x, mask: in_slots(c, held(c, x, mask).softmax(0), mask),
        dtypes=("float32",),
    ),
    SORT,
    of_rows(
        "argsort",
        lambda c, x, mask: collection(c, x, mask).argsort(descending=c.descending),
        eager_argsort,
        dtypes=DTYPES,
        arrays=rows_with_nan,
        exact=True,
        gradients=(),
        **DIRECTION,
    ),
    MAP,
    CONCAT,
    of_rows(
        "compact",
        lambda c, x, mask: collection(c, x, mask).compact(jnp.arange(c.capacity or c.shape[0]) % 2 == 0, capacity=3),
        eager_compact,
        dtypes=("float32", "bool"),
        exact=True,
    ),
    SCATTER,
]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def padding_sorted_in(c, x, mask):
    found = collection(c, x, mask)
    return dataclasses.replace(found, values=jnp.sort(found.values, axis=0, descending=c.descending))


def overflow_forgotten(c, x, mask, y, other):
    joined = collection(c, x, mask).concat(collection(c, y, other), capacity=5, fill_value=1)
    return dataclasses.replace(joined, count=jnp.sum(joined.valid))


def every_row_mapped(c, x, mask, weight):
    return collection(c, x, mask).map(lambda row: row.sum() * weight + 1)


def first_row_for_the_lost(c, x, mask):
    found = collection(c, x, mask).map(lambda row: row * 2)
    rank = jnp.clip(jnp.cumsum(mask) - 1, 0, found.capacity - 1)
    return jnp.where(mask.reshape(-1, *[1] * len(c.shape[1:])), found.values[rank], x) if found.capacity else x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (SORT, padding_sorted_in),
        (CONCAT, overflow_forgotten),
        (MAP, every_row_mapped),
        (SCATTER, first_row_for_the_lost),
    ],
    ids=["sort", "concat", "map", "scatter"],
)
def test_a_planted_fault_is_caught(one, fault):
    assert is_caught(dataclasses.replace(one, ours=fault))


def some(values=(3.0, 5.0, jnp.nan), valid=(True, True, False), count=2):
    return gm.Padded(jnp.array(values), jnp.array(valid), jnp.array(count))


@pytest.mark.parametrize("valid", [(True, True, False), (False, True, False), (False, False, False)])
@pytest.mark.parametrize("padding", [0.0, -1.0, jnp.nan])
def test_map_keeps_padding_from_the_gradient_of_weights(valid, padding):
    rows = np.where(valid, [4.0, 9.0, 0], padding)

    def loss(w, rows):
        return gm.Padded(rows, jnp.array(valid), sum(valid)).map(lambda v: jnp.sqrt(v * w)).sum()

    wanted = sum(row**0.5 / 2 for row, there in zip([4.0, 9.0, 0], valid, strict=True) if there)
    by_w, by_rows = jax.jit(jax.grad(loss, (0, 1)))(1.0, rows)
    assert by_w.item() == pytest.approx(wanted)
    assert np.isfinite(by_rows).all()
    assert by_rows[~np.array(valid)].tolist() == [0] * (3 - sum(valid))
    assert jax.jvp(loss, (1.0, rows), (1.0, rows * 0))[1].item() == pytest.approx(wanted)


def test_map_keeps_padding_from_gradients_under_vmap():
    valid = np.array([[True, True, False], [False, False, False], [False, True, False]])
    rows = np.where(valid, 4.0, 0.0)

    def loss(w):
        each = jax.vmap(lambda rows, valid: gm.Padded(rows, valid, valid.sum()).map(lambda v: jnp.sqrt(v * w)).sum())
        return each(rows, valid).sum()

    assert jax.grad(loss)(1.0).item() == 3
    one_by_one = jax.vmap(
        jax.grad(lambda w, r, v: gm.Padded(r, v, 0).map(lambda x: jnp.sqrt(x * w)).sum()), (None, 0, 0)
    )
    assert one_by_one(1.0, rows, valid).tolist() == [2, 0, 1]


def test_map_closes_over_nnx_modules():
    model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    found = gm.Padded(jnp.array([[1.0, 2.0], [jnp.nan, 0.0]]), jnp.array([True, False]), 1)
    mapped = nnx.jit(lambda model, found: found.map(model))(model, found)
    np.testing.assert_allclose(mapped.values[0], model(jnp.array([1.0, 2.0])), rtol=1e-6)
    assert mapped.values[1].tolist() == [0, 0, 0]
    gradients = nnx.grad(lambda model: found.map(model).sum().sum())(model)
    by_shape = {leaf.shape: leaf for leaf in jax.tree.leaves(gradients)}
    np.testing.assert_allclose(by_shape[2, 3], [[1.0] * 3, [2.0] * 3])
    np.testing.assert_allclose(by_shape[3,], [1.0] * 3)


def test_map_of_trees_changes_structure_and_dtype():
    found = gm.Padded({"box": jnp.ones((3, 4)), "id": jnp.arange(3)}, jnp.array([True, False, True]), 2)
    mapped = found.map(lambda row: (row["box"].sum() > 3, row["id"] + 1), fill_value=0)
    assert [leaf.tolist() for leaf in mapped.values] == [[True, False, True], [1, 0, 3]]


def test_reductions_and_lists_of_trees():
    found = gm.Padded({"x": jnp.array([1.0, 2.0, 9.0]), "n": jnp.array([[1], [2], [9]])}, jnp.array([1, 1, 0], bool), 2)
    assert {name: leaf.tolist() for name, leaf in found.sum().items()} == {"x": 3, "n": [3]}
    assert found.to_list() == [{"x": 1.0, "n": [1]}, {"x": 2.0, "n": [2]}]
    with pytest.raises(ValueError, match="floating"):
        found.mean()


def test_rows_are_sorted_by_a_key():
    score = jnp.array([0.5, jnp.nan, 0.5, 0.9])
    found = gm.Padded({"id": jnp.arange(4), "score": score}, jnp.array([True, False, True, True]), 3)
    best = found.sort(by=score, descending=True, fill_value=-7)
    assert best.values["id"].tolist() == [3, 0, 2, -7]
    assert best.valid.tolist() == [True, True, True, False]
    assert found.argsort(by=score).values.tolist() == [0, 2, 3, 4]


def test_integers_at_the_ends_of_their_range_are_no_padding():
    low, high = -(2**31), 2**31 - 1
    found = gm.Padded(jnp.array([0, high, low, high, low]), jnp.array([False, True, True, True, True]), 4)
    assert found.sort().values.tolist() == [low, low, high, high, 0]
    assert found.argsort().values.tolist() == [2, 4, 1, 3, 5]
    assert found.argsort(descending=True).values.tolist() == [1, 3, 2, 4, 5]


@pytest.mark.parametrize(
    "make", [lambda p: p.concat(some()), lambda p: p.compact(jnp.ones(3, bool)), lambda p: p.sort()]
)
def test_overflow_stays_seen(make):
    lossy = jax.jit(lambda x: gm.compact(x, x > 0, capacity=3))(jnp.arange(9.0))
    made = make(lossy.map(lambda v: v + 1))
    assert made.overflow
    assert int(made.count) - int(made.valid.sum()) == 5


@pytest.mark.parametrize("operation", ["concat", "compact"])
def test_more_than_the_capacity_is_flagged_or_raised_or_nan(operation):
    arguments = {"concat": (some(),), "compact": (jnp.array([True, True, False]),)}[operation]

    def made(found, on_overflow):
        return getattr(found, operation)(*arguments, capacity=1, on_overflow=on_overflow)

    true_count = {"concat": 4, "compact": 2}[operation]
    flagged = jax.jit(lambda found: made(found, "flag"))(some())
    assert (int(flagged.count), bool(flagged.overflow), flagged.values.tolist()) == (true_count, True, [3])
    assert jnp.isnan(made(some(), "nan").values).all()
    with pytest.raises(Exception, match=f"{operation} found {true_count} entries"):
        jax.block_until_ready(jax.jit(lambda found: made(found, "raise"))(some())), jax.effects_barrier()


def test_counts_do_not_wrap_around():
    huge = some(count=2**31 - 1)
    assert huge.concat(huge).overflow


def test_scatter_by_index_places_nothing_outside():
    found = some((1.0, 2.0, 3.0, 4.0), (True, True, True, False), 3)
    assert found.scatter(jnp.array([2, -1, 9, 0]), into=jnp.zeros(3)).tolist() == [0, 0, 1]
    places = gm.Padded(jnp.array([1, 0, 2, 2]), jnp.array([True, True, False, True]), 3)
    assert found.scatter(places, into=jnp.zeros(3)).tolist() == [2, 1, 0]
    assert found.scatter(jnp.array([0, 1, 127, 0], jnp.int8), into=jnp.zeros(300))[127] == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.scatter(jnp.array([True, False, True, True]), into=jnp.zeros(4), strict=True),
        lambda p: p.scatter(jnp.array([True, False]), into=jnp.zeros(2), strict=True),
        lambda p: p.scatter(jnp.array([-1, 0, 0]), into=jnp.zeros(2), strict=True),
        lambda p: dataclasses.replace(p, count=4).scatter(jnp.array([True, True]), into=jnp.zeros(2), strict=True),
    ],
)
def test_strict_scatter_loses_nothing(call):
    with pytest.raises(Exception, match="scatter: "):
        jax.block_until_ready(jax.jit(call)(some())), jax.effects_barrier()


def test_strict_scatter_of_what_fits():
    assert some().scatter(jnp.array([True, False, True]), into=jnp.zeros(3), strict=True).tolist() == [3, 0, 5]


def test_lists_are_never_cut_short():
    assert some().to_list() == [3, 5]
    with pytest.raises(ValueError, match="holds 2 of 9 entries"):
        some(count=9).to_list()
    with pytest.raises(TypeError, match="traced"):
        jax.jit(lambda found: found.to_list())(some())


BATCH = jax.vmap(lambda x: gm.compact(x, x > 1, capacity=2))(jnp.arange(8.0).reshape(2, 4))
CALLS = {
    **{name: (lambda p, name=name: getattr(p, name)()) for name in ("sum", "mean", "var", "max", "min", "argmax")},
    **{name: (lambda p, name=name: getattr(p, name)()) for name in ("softmax", "sort", "argsort", "to_list")},
    "map": lambda p: p.map(jnp.sin),
    "compact": lambda p: p.compact(jnp.ones((2, 2), bool)),
    "concat": lambda p: p.concat(p),
    "scatter": lambda p: p.scatter(jnp.ones((2, 4), bool), into=jnp.zeros((2, 4))),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_batch_of_collections_is_refused(name):
    assert (BATCH.capacity, BATCH.overflow.tolist()) == (2, [False, True])
    with pytest.raises(ValueError, match=rf"is a batch of them: valid has shape \(2, 2\), and {name}"):
        CALLS[name](BATCH)
    if name not in ("to_list", "compact", "concat", "scatter"):
        jax.vmap(CALLS[name])(BATCH)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: p.sort(by=jnp.zeros(2)), r"by has shape \(2,\)"),
        (lambda p: p.compact(jnp.zeros(2, bool)), r"mask has shape \(2,\)"),
        (lambda p: p.compact(jnp.zeros(3)), "bool was wanted"),
        (lambda p: p.concat(p.values), "a Padded was wanted"),
        (lambda p: p.concat(BATCH), "batch"),
        (lambda p: p.concat(p.map(lambda v: jnp.stack([v, v]))), r"rows of shape \(2,\)"),
        (lambda p: p.concat(p.map(lambda v: (v, v))), "structure"),
        (lambda p: p.concat(p, capacity=0), "capacity is 0"),
        (lambda p: p.concat(p, on_overflow="stop"), "on_overflow is 'stop'"),
        (lambda p: p.scatter(jnp.ones(3), into=jnp.zeros(4)), r"bool mask \[4\]"),
        (lambda p: p.scatter(jnp.ones(3, bool), into=jnp.zeros(4)), r"where has shape \(3,\)"),
        (lambda p: p.scatter(jnp.arange(4), into=jnp.zeros(4)), r"integers \[3\]"),
        (lambda p: p.scatter(p, into=jnp.zeros(4)), "Padded of other than integers"),
        (lambda p: p.scatter(jnp.arange(3), into=jnp.zeros(4, int)), "dtype int"),
        (lambda p: p.scatter(jnp.arange(3), into=jnp.zeros((4, 2))), r"rows of shape \(2,\)"),
        (lambda p: p.scatter(jnp.arange(3), into=(jnp.zeros(4),)), "structure"),
        (lambda p: p.map(lambda v: v > 0, fill_value=2), "fill_value is 2"),
        (lambda p: p.map(lambda v: v.astype(int), fill_value=0.5), "fill_value is 0.5"),
        (lambda p: p.map(lambda v: (v + 1j).real * 1j).sort(), "no order"),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_bad_input_says_what_is_wanted(call, words, compiled):
    with pytest.raises((ValueError, TypeError), match=words):
        (jax.jit(call) if compiled else call)(some())


def test_one_compilation_for_all_counts():
    traces = []

    @jax.jit
    def through(found):
        traces.append(found)
        return found.map(jnp.sin).sort().concat(found).mean(), found.scatter(jnp.arange(3), into=jnp.zeros(3))

    for valid in ([True, True, True], [False, False, True], [False, False, False]):
        through(gm.Padded(jnp.ones(3), jnp.array(valid), sum(valid)))
    assert len(traces) == 1


def test_a_collection_goes_through_export():
    def keep(found):
        return found.map(lambda v: v * 2).sort(descending=True)

    exported = jax.export.export(jax.jit(keep))(jax.eval_shape(lambda: some()))
    again = jax.export.deserialize(exported.serialize())
    wanted, got = keep(some(count=5)), again.call(some(count=5))
    assert isinstance(got, gm.Padded)
    assert (got.values.tolist(), int(got.count), bool(got.overflow)) == (wanted.values.tolist(), 5, True)


def test_a_collection_is_carried_by_scan_and_taken_by_donation():
    def grow(found, x):
        return found.concat(gm.Padded(x[None], x[None] > 0, (x > 0).astype(int)), capacity=3), found.sum()

    empty = gm.Padded(jnp.zeros(3), jnp.zeros(3, bool), 0)
    found, sums = jax.lax.scan(grow, empty, jnp.array([1.0, -1.0, 2.0, 3.0, 4.0]))
    assert (found.to_list() if not found.overflow else found.values.tolist()) == [1, 2, 3]
    assert int(found.count) == 4
    assert sums.tolist() == [0, 1, 1, 3, 6]
    doubled = jax.jit(lambda p: p.map(lambda v: 2 * v), donate_argnums=0)(found)
    assert doubled.values.tolist() == [2, 4, 6]
    assert "donated" in repr(found) or not found.values.is_deleted()


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (some(), "Padded(float32[3], capacity=3, count=2, [3.0, 5.0])"),
        (some(count=9), "Padded(float32[3], capacity=3, count=9, overflow, 2 held, [3.0, 5.0])"),
        (BATCH, "Padded(float32[2,2], batch=(2,), capacity=2, count=[2, 4], overflow, [2, 2] held)"),
        (some().map(lambda v: {"a": v}), "Padded({'a': float32[3]}, capacity=3, count=2)"),
        (jax.eval_shape(some), "Padded(float32[3], capacity=3, abstract)"),
        (jax.tree.map(lambda leaf: None, some()), "Padded(values=None, valid=None, count=None)"),
        (jax.tree.unflatten(jax.tree.structure(some()), [0, 1, 2]), "Padded(values=0, valid=1, count=2)"),
        (gm.Padded(jnp.arange(20), jnp.ones(20, bool), 20).map(lambda v: v), "... 12 more])"),
    ],
)
def test_its_text_tells_what_it_holds(found, text):
    assert repr(found).endswith(text)


def test_its_text_while_it_is_traced():
    texts = []
    jax.jit(lambda found: texts.append(repr(found)))(some())
    jax.vmap(lambda found: texts.append(repr(found)) or found.count)(BATCH)
    assert texts == ["Padded(float32[3], capacity=3, traced)", "Padded(float32[2], capacity=2, traced)"]
