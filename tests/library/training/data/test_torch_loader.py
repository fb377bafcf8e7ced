"""PyTorch's loaders: what they give, in an order that a position is enough to go on with."""

import collections
import json
import random

import jax
import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from graphmode.training.data import as_source, from_torch

# JAX has threads by then; the workers use none of it
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")


class Augmented(Dataset):
    """Draws from every global generator, as augmentations do."""

    def __len__(self):
        return 11

    def __getitem__(self, index):
        return {"index": index, "noise": torch.rand(2), "numpy": np.random.rand(), "python": random.random()}


class Stream(IterableDataset):
    """Its length, as PyTorch allows, is an estimate; and too small."""

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        yield from (range(10) if worker is None else range(worker.id, 10, worker.num_workers))

    def __len__(self):
        return 4


class DrawingSampler(torch.utils.data.Sampler):
    """Draws at each index from PyTorch's global generator."""

    def __init__(self):
        self.epochs = []

    def __iter__(self):
        return (int(torch.randint(11, ())) for _ in range(11))

    def __len__(self):
        return 11

    def set_epoch(self, epoch):
        self.epochs.append(epoch)


LOADERS = {
    "shuffle": lambda: DataLoader(Augmented(), batch_size=2, shuffle=True),
    "generator": lambda: DataLoader(Augmented(), batch_size=2, shuffle=True, generator=torch.Generator()),
    "sampler": lambda: DataLoader(Augmented(), batch_size=2, sampler=DrawingSampler()),
    "weighted": lambda: DataLoader(
        Augmented(), batch_size=2, sampler=torch.utils.data.WeightedRandomSampler(torch.arange(11.0), 11)
    ),
    "stream": lambda: DataLoader(Stream(), batch_size=2),
    "workers": lambda: DataLoader(Augmented(), batch_size=2, shuffle=True, num_workers=2),
}
EPOCHS = 2


def listed(batches):
    return [jax.tree.map(lambda leaf: leaf.tolist(), batch) for batch in batches]


@pytest.mark.parametrize("name", LOADERS)
def test_every_position_goes_on_as_the_run_without_a_break(name):
    source = from_torch(LOADERS[name](), seed=3, epochs=EPOCHS)
    whole, states = [], [source.state()]
    for batch in source:
        whole.append(batch)
        states.append(json.loads(json.dumps(source.state())))
        torch.rand(3), np.random.rand(2), random.random()  # what the user draws changes nothing
    whole = listed(whole)
    assert len(whole) == EPOCHS * (5 if name == "stream" else 6)
    assert (whole[: len(whole) // 2] == whole[len(whole) // 2 :]) == (name == "stream")
    few = (0, 3, 6, 8) if name == "workers" else range(len(states))
    for done in few:
        torch.manual_seed(done)
        random.seed(done)
        fresh = from_torch(LOADERS[name](), seed=3, epochs=EPOCHS)
        fresh.restore(states[done])
        assert listed(fresh) == whole[done:]


def test_persistent_workers_keep_the_order():
    def loader():
        return DataLoader(TensorDataset(torch.arange(11)), 2, shuffle=True, num_workers=2, persistent_workers=True)

    source = from_torch(loader(), epochs=3)
    whole = listed(source)
    fresh = from_torch(loader(), epochs=3)
    for done in (8, 2):
        fresh.restore({**fresh.state(), "epoch": done // 6, "batch": done % 6})
        assert listed(fresh) == whole[done:]


def test_another_seed_is_another_order():
    orders = {str([b["index"].tolist() for b in from_torch(LOADERS["shuffle"](), seed=s, epochs=1)]) for s in range(4)}
    assert len(orders) == 4
    own = set()
    for seed in range(4):
        loader = DataLoader(Augmented(), batch_size=11, shuffle=True, generator=torch.Generator().manual_seed(seed))
        own.add(str(next(from_torch(loader))["index"]))
    assert len(own) == 4


def test_every_example_once_an_epoch():
    source = from_torch(LOADERS["shuffle"]())
    orders = [[i for batch in source.one_epoch() for i in batch["index"].tolist()] for _ in range(3)]
    assert [sorted(order) for order in orders] == [list(range(11))] * 3
    assert len({str(order) for order in orders}) == 3


@pytest.mark.parametrize("name", ["shuffle", "sampler", "workers"])
def test_the_users_generators_are_left_alone(name):
    def drawn():
        return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()

    def seeded():
        torch.manual_seed(0), np.random.seed(0), random.seed(0)

    seeded()
    want = [drawn() for _ in range(6)]
    seeded()
    got = [drawn() for _ in from_torch(LOADERS[name](), epochs=1)]
    assert got == want


def test_set_epoch_is_called():
    loader = LOADERS["sampler"]()
    list(from_torch(loader, epochs=3))
    assert loader.sampler.epochs == [0, 1, 2]


def test_processes_by_a_distributed_sampler():
    data = TensorDataset(torch.arange(12))
    parts = []
    for rank in range(2):
        sampler = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=rank)
        source = from_torch(DataLoader(data, batch_size=3, sampler=sampler), epochs=2)
        parts.append([np.concatenate([x for (x,) in source.one_epoch()]).tolist() for _ in range(2)])
    assert [sorted(parts[0][e] + parts[1][e]) for e in range(2)] == [list(range(12))] * 2
    assert parts[0][0] != parts[0][1]


Point = collections.namedtuple("Point", "x y")


def test_batches_keep_their_structure_bits_and_memory():
    tensors = {
        "point": Point(torch.arange(6.0).reshape(2, 3).T, [torch.tensor([1, 2])]),
        "bfloat16": torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
        "float8": torch.tensor([1.5, -2.0], dtype=torch.float8_e4m3fn),
        "mapping": collections.UserDict(mask=torch.tensor([True, False])),
        "number": 3,
        "name": "a",
        "needs_grad": torch.ones(2, requires_grad=True),
    }
    batch = next(from_torch(DataLoader([0], collate_fn=lambda _: tensors)))
    assert type(batch["point"]) is Point
    assert batch["point"].x.tolist() == tensors["point"].x.tolist()
    assert batch["bfloat16"].dtype == ml_dtypes.bfloat16
    assert batch["bfloat16"].astype(np.float32).tolist() == [1.5, -2.25]
    assert batch["float8"].dtype == ml_dtypes.float8_e4m3fn
    assert batch["float8"].astype(np.float32).tolist() == [1.5, -2.0]
    assert batch["mapping"]["mask"].tolist() == [True, False]
    assert (batch["number"], batch["name"]) == (np.array(3), "a")
    for ours, theirs in ((batch["point"].x, tensors["point"].x), (batch["bfloat16"], tensors["bfloat16"])):
        assert ours.ctypes.data == theirs.data_ptr()


def test_refused():
    with pytest.raises(ValueError, match="no batch: batch_size is 12, drop_last is True"):
        from_torch(DataLoader(Augmented(), batch_size=12, drop_last=True))
    with pytest.raises(TypeError, match=r"list, and a torch\.utils\.data\.DataLoader was wanted"):
        from_torch([1, 2])
    source = as_source(LOADERS["shuffle"](), seed=1)
    with pytest.raises(ValueError, match="seed is 2 in the state and 1 here"):
        source.restore(from_torch(LOADERS["shuffle"](), seed=2).state())
    with pytest.raises(ValueError, match="batches is 2 in the state and 6 here"):
        source.restore(from_torch(DataLoader(Augmented(), batch_size=6), seed=1).state())
    stream = from_torch(LOADERS["stream"]())
    stream.restore({**stream.state(), "batch": 9})
    with pytest.raises(ValueError, match="batch 9 of its epoch, and the data ended after 5"):
        next(stream)


def test_an_error_in_the_data_is_raised_and_tried_again():
    class Once(Augmented):
        failed = False

        def __getitem__(self, index):
            if index == 4 and not self.failed:
                self.failed = True
                raise OSError("disk")
            return index

    source = from_torch(DataLoader(Once(), batch_size=2), epochs=1)
    assert [next(source).tolist(), next(source).tolist()] == [[0, 1], [2, 3]]
    with pytest.raises(OSError, match="disk"):
        next(source)
    assert source.state()["batch"] == 2
    assert listed(source) == [[4, 5], [6, 7], [8, 9], [10]]
