"""A training that is killed again and again ends, bit by bit, as one that is not; no half checkpoint is ever listed."""

import importlib.util
import multiprocessing
import os
import random
import runpy
import time
from pathlib import Path

import pytest

import graphmode as gm

pytest.importorskip("orbax.checkpoint")

CHILD = Path(__file__).with_name("killed_child.py")
EVERY = 4
MANY = int(os.environ.get("GRAPHMODE_TEST_EXAMPLES", "20"))  # kills


@pytest.fixture(scope="module")
def start():
    """Starts a process that trains; forked from one that has imported everything and computed nothing."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["graphmode", "orbax.checkpoint.v1"])

    def start(folder: Path, steps: int, by: str = "train") -> multiprocessing.Process:
        folder.mkdir(exist_ok=True)
        arguments = {"folder": str(folder), "steps": steps, "every": EVERY, "by": by}
        process = processes.Process(target=runpy.run_path, args=(str(CHILD), {"arguments": arguments}))
        process.start()
        return process

    return start


@pytest.fixture(scope="module")
def child():
    spec = importlib.util.spec_from_file_location("killed_child", CHILD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kills", [1, pytest.param(MANY, marks=pytest.mark.slow)])
def test_killed_at_random_moments(kills, start, child, tmp_path):
    steps, chance = 12 * (kills + 1), random.Random(kills)
    whole = start(tmp_path / "whole", steps)
    whole.join()
    assert whole.exitcode == 0
    expected = _log(tmp_path / "whole")
    assert list(expected) == list(range(1, steps + 1))

    folder, step, in_the_middle = tmp_path / "killed", child.make_step(), 0
    for kill in range(kills):
        process = start(folder, steps)
        _wait_for_moment(process, folder, chance, saving=kill % 2 == 0)
        process.kill()
        process.join()
        assert process.exitcode == -9
        in_the_middle += any((folder / "checkpoints").glob("*tmp*"))
        checkpoints = gm.training.Checkpoints(folder / "checkpoints")
        for at in checkpoints.steps:
            state, _ = checkpoints.restore(step, at=at)
            assert child.hashed(state) == expected[at][1]
    assert in_the_middle, "no kill was in the middle of a save"
    last = start(folder, steps)
    last.join()
    assert last.exitcode == 0
    assert _log(folder) == expected
    assert gm.training.Checkpoints(folder / "checkpoints").steps == [steps - EVERY, steps]
    assert not any((folder / "checkpoints").glob("*tmp*"))


@pytest.mark.parametrize("kills", [1, pytest.param(MANY, marks=pytest.mark.slow)])
def test_the_loop_goes_on_from_where_it_was_killed(kills, start, tmp_path):
    steps, chance = 12 * (kills + 1), random.Random(kills)
    whole = start(tmp_path / "whole", steps, by="fit")
    whole.join()
    assert whole.exitcode == 0
    folder = tmp_path / "killed"
    for kill in range(kills):
        process = start(folder, steps, by="fit")
        _wait_for_moment(process, folder, chance, saving=kill % 2 == 0)
        process.kill()
        process.join()
        assert process.exitcode == -9
    last = start(folder, steps, by="fit")
    last.join()
    assert last.exitcode == 0
    assert _log(folder) == _log(tmp_path / "whole")
    assert (folder / "last").read_text() == (tmp_path / "whole" / "last").read_text()


def _wait_for_moment(process, folder: Path, chance: random.Random, *, saving: bool) -> None:
    """Until some steps after the start; and then until it is saving, or for some milliseconds."""
    lines, wanted = _lines(folder), chance.randint(1, 10)
    while _lines(folder) < lines + wanted:
        assert process.is_alive(), f"ended by itself, with {process.exitcode}"
        time.sleep(0.001)
    while saving and not any((folder / "checkpoints").glob("*tmp*")):
        assert process.is_alive(), f"ended by itself, with {process.exitcode}"
    time.sleep(chance.random() * (0.01 if saving else 0.1))


def _lines(folder: Path) -> int:
    log = folder / "log"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _log(folder: Path) -> dict[int, tuple[str, str]]:
    """Loss and hash by step; what was logged more than once must be the same each time."""
    found: dict[int, tuple[str, str]] = {}
    for line in (folder / "log").read_text().splitlines():
        number, *told = line.split()
        assert found.setdefault(int(number), tuple(told)) == tuple(told), f"step {number} came out otherwise again"
    return dict(sorted(found.items()))
