"""Runs that share a machine: one times, the others stand still, and no limit or cold cost counts it."""

import contextlib
import fcntl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from graphmode.compare.speed import cold, preparation, turn
from graphmode.compare.speed.turn import VARIABLE, Turn


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def assert_becomes(pids, stopped: bool):
    """A signal is there once the process has a processor."""
    end = time.monotonic() + 10
    while any((state(pid) == "T") != stopped for pid in pids) and time.monotonic() < end:
        time.sleep(0.01)
    assert [state(pid) == "T" for pid in pids] == [stopped] * len(pids)


@contextlib.contextmanager
def session(mine: Turn):
    """A process with a child, as a run with a row's process is."""
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        child = int(process.stdout.readline())
        mine.register(process.pid)
        try:
            yield process.pid, child
        finally:
            subprocess.run(["kill", "-9", str(child), str(process.pid)], check=True)
            process.wait()
            mine.unregister(process.pid)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "turn"))
    return Turn.begun(tmp_path / "turn")


def test_other_sessions_stand_still_with_all_that_they_started(mine):
    with session(mine) as pids:
        with turn.taken():
            assert [state(pid) for pid in pids] == ["T", "T"]
        assert_becomes(pids, stopped=False)


def test_those_that_wait_for_one_that_died_go_on(mine):
    with session(mine) as pids:
        subprocess.run(["kill", "-STOP", *map(str, pids)], check=True)  # as one that died in its turn leaves them
        assert_becomes(pids, stopped=True)
        mine.register(1 << 22)
        with mine._lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            mine.unregister(1 << 22)
            assert [state(pid) for pid in pids] == ["T", "T"]  # somebody has the turn
        mine.unregister(1 << 22)
        assert_becomes(pids, stopped=False)


def test_one_has_the_turn_at_a_time(mine):
    order = (
        "import os, time; from graphmode.compare.speed.turn import turn; print(0, flush=True); input()\n"
        "with turn().taken(): print(time.monotonic(), flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", order], stdin=-1, stdout=-1, text=True) as other:
        other.stdout.readline()
        with turn.taken():
            other.stdin.write("\n")
            other.stdin.flush()
            time.sleep(0.5)
            let_go = time.monotonic()
        assert float(other.stdout.readline()) > let_go


def test_what_stood_still_counts_against_no_limit_and_in_no_cold_cost(mine, monkeypatch):
    start = time.monotonic()
    with turn.taken():
        time.sleep(0.2)
    with turn.taken():
        time.sleep(0.1)
    end = time.monotonic()
    held = turn.stood_still(start, end)
    assert 0.3 <= held <= end - start
    assert turn.stood_still(end, end + 1) == turn.stood_still(start - 1, start) == 0
    assert cold._covered([(start, end)]) == pytest.approx(end - start - held)
    running = preparation._Running(None, None, since=start, limit_s=1.0)
    assert running.left_s == pytest.approx(1.0 - (time.monotonic() - start) + held, abs=0.05)
    monkeypatch.delenv(VARIABLE)
    assert turn.stood_still(start, end) == 0


def test_who_shares_with_nobody_any_more_has_the_machine(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
    with turn.taken():
        assert turn.stood_still(0.0, time.monotonic()) == 0
