"""Batches of arrays: every row, in an order by seed and epoch alone, and from any position on."""

import json

import jax
import numpy as np
import pytest

from graphmode.training.data import MaskedBatch, from_arrays, from_sequences, mapped, shard, stacked


def data(rows=11):
    return {"x": np.arange(rows * 2.0).reshape(rows, 2), "y": (np.arange(rows), np.arange(rows) % 2 == 0)}


def listed(batches):
    """Batches by value: comparable with ==."""
    return [jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), batch) for batch in batches]


def lengths(rows=23):
    return [np.arange(1, 1 + n % 9 + 1) for n in range(rows)]


SOURCES = {
    "dropped": lambda **k: from_arrays(data(), batch_size=4, epochs=3, **k),
    "smaller": lambda **k: from_arrays(data(), batch_size=4, drop_last=False, epochs=3, **k),
    "padded": lambda **k: from_arrays(data(), batch_size=4, pad_last=True, epochs=3, **k),
    "in order": lambda **k: from_arrays(data(), batch_size=4, shuffle=False, epochs=3, **k),
    "sequences": lambda **k: from_sequences(lengths(), batch_size=4, buckets=3, epochs=2, **k),
    "mapped": lambda **k: mapped(from_arrays(data(), batch_size=4, epochs=3, **k), lambda b: b["y"][0] * 2),
    "a part": lambda **k: shard(from_arrays(data(), batch_size=4, epochs=3, **k), index=1, count=2),
    "stacked": lambda **k: stacked(from_arrays(data(), batch_size=2, epochs=3, **k), 2),
    "stacked short": lambda **k: stacked(from_arrays(data(), batch_size=2, epochs=3, **k), 2, remainder="short"),
    "stacked drop": lambda **k: stacked(from_arrays(data(), batch_size=2, epochs=3, **k), 2, remainder="drop"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_position_goes_on_as_the_run_without_a_break(name):
    source = SOURCES[name]()
    whole, states = [], [source.state()]
    for batch in source:
        whole.append(batch)
        states.append(json.loads(json.dumps(source.state())))
    whole = listed(whole)
    assert len(whole) > 4
    for done, state in enumerate(states):
        fresh = SOURCES[name]()
        fresh.restore(state)
        assert fresh.state() == state
        assert listed(fresh) == whole[done:]
    source.restore(states[3])  # and back in the same one
    assert listed(source) == whole[3:]
    assert listed(source) == whole  # an iteration that came to its end begins again


@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_has_every_row_once(shuffle):
    for epoch in range(3):
        source = from_arrays(data(), batch_size=4, pad_last=True, shuffle=shuffle)
        source.restore({**source.state(), "epoch": epoch})
        rows = [row for batch, valid in source.one_epoch() for row in batch["y"][0][valid].tolist()]
        assert sorted(rows) == list(range(11))
        assert (rows == list(range(11))) != shuffle


def test_leaves_of_a_batch_are_of_the_same_rows():
    for batch in from_arrays(data(), batch_size=3, epochs=2):
        assert (batch["x"] == 2 * batch["y"][0][:, None] + [0, 1]).all()
        assert (batch["y"][1] == (batch["y"][0] % 2 == 0)).all()


def test_the_order_is_of_the_seed_and_the_epoch():
    def order(seed, epoch):
        source = from_arrays(np.arange(50), batch_size=10, seed=seed)
        source.restore({**source.state(), "epoch": epoch})
        return np.concatenate(list(source.one_epoch())).tolist()

    orders = {(seed, epoch): order(seed, epoch) for seed in (0, 1, 2**32) for epoch in (0, 1, 7)}
    assert len({tuple(rows) for rows in orders.values()}) == len(orders)
    source = from_arrays(np.arange(50), batch_size=10, seed=1, epochs=2)
    assert np.concatenate(list(source)).tolist() == orders[1, 0] + orders[1, 1]


def test_the_last_batch():
    rows = np.arange(5)
    given = {"batch_size": 3, "shuffle": False, "epochs": 1}
    assert listed(from_arrays(rows, **given)) == [[0, 1, 2]]
    assert listed(from_arrays(rows, **given, drop_last=False)) == [[0, 1, 2], [3, 4]]
    last = list(from_arrays(rows, **given, pad_last=True))[-1]
    assert isinstance(last, MaskedBatch)
    assert (last.batch.tolist(), last.valid.tolist()) == ([3, 4, 4], [True, True, False])
    assert [len(from_arrays(rows, **given, **last)) for last in ({}, {"drop_last": False}, {"pad_last": True})] == [
        1,
        2,
        2,
    ]
    assert listed(from_arrays(rows[:2], **given, pad_last=True)) == [([0, 1, 1], [True, True, False])]


@pytest.mark.parametrize("last", [{}, {"pad_last": True}, {"drop_last": False}])
@pytest.mark.parametrize("shuffle", [True, False])
def test_parts_of_the_processes_make_the_batch(last, shuffle):
    def source():
        return from_arrays(data(14), batch_size=4, shuffle=shuffle, epochs=2, **last)

    for of in (source, lambda: mapped(source(), lambda batch: batch)):  # by index, and by slices
        parts = [list(shard(of(), index=index, count=2)) for index in range(2)]
        joined = [jax.tree.map(lambda *rows: np.concatenate(rows), *batches) for batches in zip(*parts, strict=True)]
        assert listed(joined) == listed(source())


def test_a_part_goes_on_where_the_whole_was_and_with_another_count():
    whole = from_arrays(np.arange(16), batch_size=4)
    next(whole)
    part = shard(whole, index=0, count=4)
    want = next(whole)
    assert next(part).tolist() == want[:1].tolist()
    other = shard(from_arrays(np.arange(16), batch_size=4), index=1, count=2)
    other.restore(part.state())
    assert next(other).tolist() == next(whole)[2:].tolist()


def test_nested_loops_and_a_loop_that_was_left():
    source = from_arrays(np.arange(6), batch_size=2, shuffle=False, epochs=2)
    for _ in source:
        break
    assert listed(source.one_epoch()) == [[2, 3], [4, 5]]
    assert (source.epoch, source.state()["batch"]) == (1, 0)
    assert listed(source.one_epoch()) == [[0, 1], [2, 3], [4, 5]]
    assert source.finished
    assert len(listed(source.one_epoch())) == 3


def test_memory_maps_and_other_arrays(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(20.0))
    mapped_file = np.load(tmp_path / "x.npy", mmap_mode="r")
    batch = next(from_arrays({"x": mapped_file, "y": jax.numpy.arange(20)}, batch_size=20))
    assert (batch["x"] == batch["y"]).all()
    assert type(batch["y"]) is np.ndarray


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"arrays": {"x": np.ones(3), "y": np.ones(4)}}, r"arrays\['x'\] has 3, arrays\['y'\] has 4"),
        ({"arrays": {}}, "holds no array"),
        ({"arrays": {"x": [1, 2, 3]}}, r"arrays\['x'\]\[0\] is array\(1\).*np.array"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 4}, "batch_size is 4, and the arrays have 3 rows"),
        ({"arrays": np.ones((0, 2)), "drop_last": False}, "have 0 rows"),
        ({"seed": -1}, "seed is -1"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_refused_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        from_arrays(**{"arrays": np.ones(3), "batch_size": 2, **arguments})


def test_refused_parts():
    source = from_arrays(np.arange(10), batch_size=4, drop_last=False)
    with pytest.raises(ValueError, match="batch_size is 4, no multiple of count, 3"):
        shard(source, index=0, count=3)
    with pytest.raises(ValueError, match="index is 2, and count is 2"):
        shard(source, index=2, count=2)
    with pytest.raises(ValueError, match="last batch has 2 rows, no multiple of count, 4"):
        shard(source, index=0, count=4)
    with pytest.raises(ValueError, match=r"shape \(4,\), and count is 3"):
        next(shard(mapped(source, lambda batch: batch), index=0, count=3))
    with pytest.raises(ValueError, match="part already"):
        shard(shard(source, index=0, count=2), index=0, count=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "torch"}, "state is of a torch source, and this is a arrays source"),
        ({"seed": 5}, "seed is 5 in the state and 0 here"),
        ({"rows": 12, "batch_size": 3}, "rows is 12 in the state and 11 here; batch_size is 3 in the state and 4 here"),
        ({"batch": 2}, "batch 2 of its epoch, and here an epoch has 2 batches"),
        ({"batch": -1}, "state\\['batch'\\] is -1"),
        ({"epoch": 4}, "state is of epoch 4, batch 0, and this source has 3 epochs"),
    ],
)
def test_refused_states(change, message):
    source = SOURCES["dropped"]()
    next(source)
    before = source.state()
    with pytest.raises(ValueError, match=message):
        source.restore({**before, "batch": 0, **change})
    assert source.state() == before


def test_what_is_no_state_is_refused():
    for state in (None, {}, {"epoch": 1}):
        with pytest.raises(ValueError, match="a dict of state"):
            SOURCES["dropped"]().restore(state)
