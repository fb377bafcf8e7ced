"""Anything that gives batches: counted where it has no position, refused where it is a batch itself."""

import numpy as np
import pytest

from graphmode.training.data import EpochSource, as_host, as_source, from_arrays


class Pipeline:
    """Re-iterable, of unknown length."""

    def __iter__(self):
        return iter(np.arange(12).reshape(4, 3))


REITERABLE = {
    "list": lambda: list(np.arange(12).reshape(4, 3)),
    "iterable": Pipeline,
    "function": lambda: lambda: iter(Pipeline()),
}


@pytest.mark.parametrize("name", REITERABLE)
def test_positions_count(name):
    source = as_source(REITERABLE[name](), epochs=2)
    whole, states = [], [source.state()]
    for batch in source:
        whole.append(batch.tolist())
        states.append(source.state())
    assert whole == np.arange(12).reshape(4, 3).tolist() * 2
    for done, state in enumerate(states):
        fresh = as_source(REITERABLE[name](), epochs=2)
        fresh.restore(state)
        assert [batch.tolist() for batch in fresh] == whole[done:]


def test_an_iterator_counts_and_goes_nowhere_else():
    source = as_source(iter(Pipeline()))
    next(source)
    assert (source.state()["epoch"], source.state()["batch"]) == (0, 1)
    source.restore(source.state())
    with pytest.raises(ValueError, match=r"state is of batch 3, and this iterator, which .* stands at batch 1"):
        source.restore({**source.state(), "batch": 3})
    assert [batch.tolist() for batch in source] == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]
    with pytest.raises(ValueError, match="read only once"):
        list(source)


def test_what_shrank_is_noticed():
    source = as_source(Pipeline())
    source.restore({**source.state(), "batch": 6})
    with pytest.raises(ValueError, match="batch 6 of its epoch, and the data ended after 4"):
        next(source)


def test_a_source_stays_itself_and_anything_else_is_refused():
    source = from_arrays(np.ones(3), batch_size=1, epochs=2)
    assert as_source(source) is source
    for data, error, message in [
        ((np.ones(3), np.ones(3)), TypeError, "is a tuple, which is one batch"),
        (np.ones(3), TypeError, "is a ndarray, which is one batch"),
        ({"x": np.ones(3)}, TypeError, "is a dict, which is one batch"),
        (3, TypeError, "is a int, and something that gives batches"),
        ([], ValueError, "empty list"),
    ]:
        with pytest.raises(error, match=message):
            as_source(data)
    for data in (source, iter([np.ones(3)])):
        with pytest.raises(ValueError, match=r"epochs is 1, and a .* has its own number"):
            as_source(data, epochs=1)


@pytest.mark.parametrize("data", [lambda: iter(()), iter(())], ids=["function", "iterator"])
def test_an_epoch_without_batches_is_no_endless_loop(data):
    with pytest.raises(ValueError, match=r"epoch 0 of the .* source has no batch"):
        next(as_source(data))


def test_a_function_that_gives_the_same_iterator_is_noticed():
    running = iter(Pipeline())
    source = as_source(lambda: running)
    assert len([next(source) for _ in range(4)]) == 4
    with pytest.raises(ValueError, match=r"epoch 1 of the iterable source has no batch.* begins anew"):
        next(source)


def test_a_source_of_ones_own():
    class Squares(EpochSource):
        kind, epochs = "squares", 2

        def batches(self, epoch, start):
            for number in range(start, 3):
                yield np.array([epoch, number**2])

    source = Squares()
    assert [batch.tolist() for batch in source] == [[0, 0], [0, 1], [0, 4], [1, 0], [1, 1], [1, 4]]
    source.restore({"kind": "squares", "epoch": 1, "batch": 2})
    assert [batch.tolist() for batch in source] == [[1, 4]]
    with pytest.raises(TypeError, match="does not know how many"):
        len(source)


def test_leaves_of_a_host_batch():
    array = np.ones(3)
    batch = as_host({"a": array, "b": (1, 2.5), "c": None, "d": "text"})
    assert batch["a"] is array
    assert (batch["b"][0].dtype, batch["b"][1].dtype) == (np.int64, np.float64)
    assert (batch["c"], batch["d"]) == (None, "text")
