"""What `gm.Padded` keeps under every transform: no padding leaks, no loss is forgotten, bad input is named."""

import dataclasses

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import graphmode as gm


def some(values=(3.0, 5.0, jnp.nan), valid=(True, True, False), count=2):
    return gm.Padded(jnp.array(values), jnp.array(valid), jnp.array(count))


@pytest.mark.parametrize("valid", [(True, True, False), (False, True, False), (False, False, False)])
@pytest.mark.parametrize("padding", [0.0, -1.0, jnp.nan])
@pytest.mark.parametrize("how", [{}, {"chunk": 2}, {"sizes": (1, 2)}], ids=str)
@pytest.mark.parametrize("batched", [False, True])
def test_map_keeps_padding_from_the_gradient_of_weights(valid, padding, how, batched):
    rows = np.where(valid, [4.0, 9.0, 0], padding)

    def loss(w, rows):
        return (
            gm.Padded(rows, jnp.array(valid), sum(valid)).map(lambda v: jnp.sqrt(v * w), batched=batched, **how).sum()
        )

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


def test_a_batched_map_hands_on_as_many_rows_as_its_size():
    seen = []

    def rows(values):
        seen.append(len(values))
        return values + 1

    found = gm.Padded(jnp.arange(5.0), jnp.arange(5) < 2, 2)
    assert found.map(rows, batched=True, sizes=(2, 4)).to_list() == [1, 2]
    assert set(seen) == {2, 4, 5}


@pytest.mark.parametrize("capacity", [0, 1, 3])
def test_sizes_above_the_capacity_are_passed_over(capacity):
    found = gm.Padded(jnp.arange(float(capacity)), jnp.ones(capacity, bool), capacity)
    assert found.map(lambda v: v + 1, sizes=(1, 3, 9)).to_list() == [i + 1 for i in range(capacity)]


def test_map_of_trees_changes_structure_and_dtype():
    found = gm.Padded({"box": jnp.ones((3, 4)), "id": jnp.arange(3)}, jnp.array([True, False, True]), 2)
    mapped = found.map(lambda row: (row["box"].sum() > 3, row["id"] + 1), fill_value=0)
    assert [leaf.tolist() for leaf in mapped.values] == [[True, False, True], [1, 0, 3]]


@pytest.mark.parametrize(
    ("how", "held", "wanted"),
    [
        ({"chunk": 2}, 0, 0),
        ({"chunk": 2}, 1, 2),
        ({"chunk": 2}, 2, 2),
        ({"chunk": 2}, 3, 4),
        ({"chunk": 2}, 5, 6),
        ({"sizes": (1, 4)}, 0, 0),
        ({"sizes": (1, 4)}, 1, 1),
        ({"sizes": (1, 4)}, 2, 4),
        ({"sizes": (1, 4)}, 4, 4),
        ({"sizes": (1, 4)}, 5, 8),
        ({"sizes": (1, 4)}, 8, 8),
    ],
)
def test_map_runs_for_the_rows_that_there_are(how, held, wanted):
    seen = []

    def slow(row):
        jax.debug.callback(lambda row: seen.append(float(row)), row)
        return 2 * row

    valid = np.isin(np.arange(8), [7, 1, 4, 2, 6, 0, 3, 5][:held])
    mapped = jax.jit(lambda found: found.map(slow, fill_value=-1, **how))(gm.Padded(jnp.arange(8.0), valid, held))
    jax.effects_barrier()
    assert mapped.values.tolist() == [2 * i if there else -1 for i, there in enumerate(valid)]
    assert len(seen) == wanted
    assert set(seen) == set(np.flatnonzero(valid))


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
        (lambda p: p.map(jnp.sin, chunk=0), "chunk is 0"),
        (lambda p: p.map(jnp.sin, sizes=(0, 2)), r"sizes\[0\] is 0"),
        (lambda p: p.map(jnp.sin, sizes=(2, 1)), r"sizes are \[2, 1\]; give growing"),
        (lambda p: p.map(jnp.sin, sizes=(2,), chunk=2), "give one of the two"),
        (lambda p: p.map(jnp.sum, batched=True), r"shape \(\) for 3 rows; give one for each"),
        (lambda p: p.map(lambda v: v[:1], batched=True, sizes=(2,)), r"shape \(1,\) for 3 rows"),
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
