"""Reading ahead changes no batch, no order and no position, and its thread never outlives its use."""

import gc
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback

import grain
import jax
import numpy as np
import pytest
import torch

from graphmode.training.data import as_source, from_arrays, from_grain, from_torch, mapped, read_ahead, shard, stacked

pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "read_ahead"]


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    gc.collect()
    deadline = time.monotonic() + 10
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not threads()


def arrays(epochs=2, **arguments):
    return from_arrays(np.arange(10, dtype=np.int32), batch_size=3, epochs=epochs, **arguments)


def dataloader(**arguments):
    return torch.utils.data.DataLoader(list(range(10)), batch_size=3, shuffle=True, **arguments)


SOURCES = {
    "arrays": arrays,
    "unknown length": lambda: as_source(lambda: iter(np.arange(12).reshape(4, 3)), epochs=2),
    "stacked": lambda: stacked(arrays(), 2),
    "mapped": lambda: mapped(arrays(), lambda batch: batch * 2),
    "part": lambda: shard(arrays(), index=1, count=3),
    "torch": lambda: from_torch(dataloader(), epochs=2),
    "torch, workers": lambda: from_torch(dataloader(num_workers=2), epochs=2),
    "grain": lambda: from_grain(grain.MapDataset.source(np.arange(10)).seed(0).shuffle().batch(3), epochs=2),
}


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", SOURCES)
def test_batches_and_positions_are_the_sources(name, size):
    want, states = [], [SOURCES[name]().state()]
    source = SOURCES[name]()
    for batch in source:
        want.append(batch.tolist())
        states.append(source.state())
    ahead = read_ahead(SOURCES[name](), size=size)
    got = []
    assert ahead.state() == states[0]
    for batch in ahead:
        assert isinstance(batch, jax.Array)
        got.append(batch.tolist())
        assert ahead.state() == states[len(got)]
        time.sleep(0.005)  # it reads beyond
    assert got == want
    for done in (len(want) // 2, 0):
        fresh = read_ahead(SOURCES[name](), size=size)
        fresh.restore(json.loads(json.dumps(states[done])))
        assert [batch.tolist() for batch in fresh] == want[done:]
    ahead.restore(states[2])
    assert next(ahead).tolist() == want[2]
    ahead.close()
    assert not threads()
    assert [batch.tolist() for batch in ahead] == want[3:]  # a closed one goes on where it was


def test_it_reads_while_the_consumer_works_and_no_more_than_size():
    made = []
    source = mapped(arrays(epochs=None), lambda batch: made.append(0) or batch)
    with read_ahead(source, size=3) as ahead:
        for taken in range(1, 5):
            next(ahead)
            deadline = time.monotonic() + 5
            while len(made) < taken + 3 and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(0.02)
            assert len(made) == taken + 3


def test_epochs_of_an_evaluation():
    valid = arrays(epochs=None, pad_last=True, shuffle=False)
    for _ in range(3):  # another reader each time, closed after its epoch, though the source goes on
        with read_ahead(valid, size=3) as ahead:
            rows = [np.asarray(batch)[np.asarray(valid)].tolist() for batch, valid in ahead.one_epoch()]
        assert [row for batch in rows for row in batch] == list(range(10))
    once = arrays(epochs=1)
    assert [len(list(read_ahead(once))) for _ in range(2)] == [3, 3]
    with pytest.raises(ValueError, match="may reach into the next epoch"):
        read_ahead(stacked(arrays(), 2)).one_epoch()


@pytest.mark.parametrize("where", ["source", "place"])
def test_an_error_comes_in_its_place_with_its_traceback(where):
    left = [KeyError("once more"), KeyError("broken")]

    def a_function_of_the_users(batch):
        if 3 in batch and left:
            raise left.pop()
        return batch

    source = arrays(epochs=1, shuffle=False)
    if where == "source":
        ahead = read_ahead(mapped(source, a_function_of_the_users))
    else:
        ahead = read_ahead(source, place=a_function_of_the_users)
    assert next(ahead).tolist() == [0, 1, 2]
    for message in ("broken", "once more"):
        with pytest.raises(KeyError, match=message) as caught:
            next(ahead)
        assert "a_function_of_the_users" in "".join(traceback.format_tb(caught.value.__traceback__))
        assert ahead.state()["batch"] == 1
        assert not threads()
    assert [batch.tolist() for batch in ahead] == [[3, 4, 5], [6, 7, 8]]


def leave_by_an_error(ahead):
    with ahead:
        for _ in ahead:
            raise ZeroDivisionError


@pytest.mark.parametrize("end", ["close", "with", "error", "collected", "break"])
@pytest.mark.parametrize("name", ["arrays", "torch, workers", "grain"])
def test_an_early_stop_leaves_no_thread(name, end):
    ahead = read_ahead(SOURCES[name]())
    next(ahead)
    assert len(threads()) == 1
    if end == "close":
        ahead.close()
        assert not threads()
    elif end == "with":
        with ahead:
            next(ahead)
        assert not threads()
    elif end == "error":
        with pytest.raises(ZeroDivisionError):
            leave_by_an_error(ahead)
        assert not threads()
    elif end == "break":
        for _ in ahead:
            break
    del ahead  # the fixture looks for the thread


def test_of_an_iterator_what_was_read_ahead_is_lost_and_said_so():
    ahead = read_ahead(iter(np.arange(8)[:, None]), size=2)
    assert next(ahead).tolist() == [0]
    state = ahead.state()
    time.sleep(0.05)
    ahead.close()
    assert ahead.state() == state
    with pytest.raises(ValueError, match="read only once"):
        next(ahead)
    whole = read_ahead(iter(np.arange(4)[:, None]))
    assert [batch.tolist() for batch in whole] == [[0], [1], [2], [3]]
    with pytest.raises(ValueError, match="read only once"):
        list(whole)


def test_places():
    mesh = jax.make_mesh((1,), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    device = jax.devices()[0]
    for place in (sharding, lambda batch: jax.make_array_from_process_local_data(sharding, batch)):
        assert next(read_ahead(arrays(), place=place)).sharding == sharding
    assert next(read_ahead(arrays(), place=device)).devices() == {device}
    assert type(next(read_ahead(arrays(), place=lambda batch: batch))) is np.ndarray
    floats = from_arrays(np.ones(4), batch_size=2)
    assert next(read_ahead(floats)).dtype == np.float32
    with jax.enable_x64(True):
        assert next(read_ahead(floats)).dtype == np.float64


TWO_DEVICES = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, numpy as np
from graphmode.training.data import from_arrays, read_ahead
first, second = jax.devices("cpu")
source = from_arrays(np.arange(8), batch_size=4, shuffle=False)
with jax.default_device(second), read_ahead(source) as ahead:
    assert next(ahead).devices() == {second}
sharding = jax.sharding.NamedSharding(jax.make_mesh((2,), ("data",)), jax.sharding.PartitionSpec("data"))
with read_ahead(source, place=sharding) as ahead:
    shards = next(ahead).addressable_shards
    assert [shard.data.tolist() for shard in shards] == [[4, 5], [6, 7]], shards
"""


ENDLESS = """
import sys
sys.modules["torch"] = sys.modules["grain"] = None  # as where they are not installed
import numpy as np
from graphmode.training.data import from_arrays, from_grain, from_torch, read_ahead
for of, extra in ((from_torch, "graphmode[compare]"), (from_grain, "graphmode[train]")):
    try:
        of([1])
    except ImportError as error:
        assert extra in str(error)
    else:
        raise AssertionError(of)
ahead = read_ahead(from_arrays(np.arange(8), batch_size=2))
next(ahead)
"""
WORKERS = """
import torch
from graphmode.training.data import read_ahead
ahead = read_ahead(torch.utils.data.DataLoader(list(range(64)), batch_size=2, num_workers=2))
next(ahead)
"""
STUCK = """
import time, numpy as np
from graphmode.training.data import as_source, read_ahead
def batches():
    yield np.zeros(1)
    time.sleep(600)
ahead = read_ahead(batches)
next(ahead)
"""


def started(code):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.slow
@pytest.mark.parametrize("code", [ENDLESS, WORKERS, TWO_DEVICES], ids=["without torch", "workers", "two devices"])
def test_the_interpreter_ends(code):
    process = started(code)
    _, error = process.communicate(timeout=90)
    assert process.returncode == 0, error
    assert "Traceback" not in error


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_it_waits_for_a_source_that_is_stuck():
    process = started(STUCK + "print('waiting', flush=True)\nnext(ahead)")
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)  # at its exit the source sleeps on
    assert "KeyboardInterrupt" in error
    assert process.returncode in (-signal.SIGINT, 1, 130)


def test_refused():
    with pytest.raises(ValueError, match="size is 0"):
        read_ahead(arrays(), size=0)
    with pytest.raises(TypeError, match="data is a dict, which is one batch"):
        read_ahead({"x": np.ones(3)})
    with pytest.raises(ValueError, match="seed is 1 in the state and 0 here"):
        read_ahead(arrays()).restore(arrays(seed=1).state())


def test_endless():
    with read_ahead(arrays(epochs=None)) as ahead:
        batches = [batch.tolist() for batch in itertools.islice(ahead, 20)]
    assert batches == [batch.tolist() for batch in itertools.islice(arrays(epochs=None), 20)]
