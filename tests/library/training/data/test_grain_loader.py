"""Grain's loaders and datasets, by their own positions."""

import json

import grain
import numpy as np
import pytest

from graphmode.training.data import as_source, from_grain


def examples():
    return grain.MapDataset.source(np.arange(11)).seed(3).shuffle()


def loader(shuffle=True, seed=1, workers=0):
    sampler = grain.samplers.IndexSampler(
        11, shard_options=grain.sharding.NoSharding(), shuffle=shuffle, num_epochs=2, seed=seed
    )
    batch = grain.transforms.Batch(2, drop_remainder=False)
    return grain.DataLoader(data_source=np.arange(11), sampler=sampler, operations=[batch], worker_count=workers)


SOURCES = {
    "MapDataset": lambda: from_grain(examples().batch(2), epochs=2),
    "IterDataset": lambda: from_grain(examples().repeat(2).to_iter_dataset().batch(2)),
    "window": lambda: from_grain(
        grain.experimental.WindowShuffleIterDataset(examples().repeat(2).to_iter_dataset(), window_size=5, seed=1)
        .map(lambda x: x * 2)
        .batch(2)
    ),
    "DataLoader": lambda: from_grain(loader()),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_position_goes_on_as_the_run_without_a_break(name):
    source = SOURCES[name]()
    whole, states = [], [source.state()]
    for batch in source:
        whole.append(batch.tolist())
        states.append(json.loads(json.dumps(source.state())))
    rows = [row for batch in whole for row in batch]
    assert len(rows) == 22
    if name == "MapDataset":
        assert sorted(rows[:11]) == sorted(rows[11:]) == list(range(11))
        assert rows[:11] != rows[11:]
    for done, state in enumerate(states):
        fresh = SOURCES[name]()
        fresh.restore(state)
        assert [batch.tolist() for batch in fresh] == whole[done:]
    source.restore(states[3])
    assert next(source).tolist() == whole[3]
    source.close()
    assert [batch.tolist() for batch in source] == whole[4:]
    assert [batch.tolist() for batch in source] == whole


def test_epochs_of_a_map_dataset():
    source = as_source(examples().batch(2))
    assert (len(source), source.epochs) == (6, None)
    orders = [np.concatenate(list(source.one_epoch())).tolist() for _ in range(3)]
    assert [sorted(order) for order in orders] == [list(range(11))] * 3
    assert len({str(order) for order in orders}) == 3
    assert source.epoch == 3


def test_refused():
    for data in (loader(), examples().to_iter_dataset().batch(2)):
        with pytest.raises(ValueError, match="has its epochs in itself"):
            from_grain(data, epochs=2)
    with pytest.raises(TypeError, match=r"list, and a grain\.DataLoader"):
        from_grain([1])
    with pytest.raises(ValueError, match="no batch"):
        from_grain(examples()[:1].batch(2, drop_remainder=True))
    with pytest.raises(ValueError, match="no batch"):
        next(from_grain(examples()[:1].to_iter_dataset().batch(2, drop_remainder=True)))
    with pytest.raises(ValueError, match="Grain refuses the state's iterator"):
        from_grain(loader(seed=2)).restore(from_grain(loader()).state())
    with pytest.raises(ValueError, match="data is 'DataLoader' in the state and 'MapDataset' here"):
        SOURCES["MapDataset"]().restore(from_grain(loader()).state())
    with pytest.raises(ValueError, match="batches is 4 in the state and 6 here"):
        SOURCES["MapDataset"]().restore(from_grain(examples().batch(3), epochs=2).state())
