"""Rows in processes of their own: what hangs, crashes or exits costs its own cell; cases that cannot be sent."""

import dataclasses
import errno
import importlib.util
import sys
import textwrap
import time
from pathlib import Path

import cloudpickle
import pytest
from graphmode.compare import Plan, bench
from graphmode.compare.comparison import run
from graphmode.compare.locate import locate
from graphmode.compare.parity.examination import Examination
from graphmode.compare.report.headline import headline
from graphmode.compare.speed.bench import Budget
from graphmode.compare.speed.entrants import Entrant
from graphmode.compare.speed.forkserver import can_fork
from graphmode.compare.speed.preparation import Job, prepared
from graphmode.compare.speed.rooms import Rooms
from graphmode.compare.speed.rows import all_rows

pytestmark = pytest.mark.skipif(not can_fork(), reason="needs a system that can fork safely")

CASES = """
import ctypes
import os
import time

import jax.numpy as jnp
import torch
from flax import nnx
from graphmode.compare import Case


class Reference(torch.nn.Module):
    def __init__(self, trap):
        super().__init__()
        self.fc = torch.nn.Linear(5, 16)
        self.trap = trap

    def forward(self, x):
        if torch.jit.is_tracing():
            self.trap()
        return torch.relu(self.fc(x))


class Port(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(5, 16, rngs=rngs)

    def __call__(self, x):
        return nnx.relu(self.fc(x))


def hang():
    while True:
        pass


def crash():
    ctypes.string_at(0)


def case(name, trap):
    return Case(name=name, summary="", reference=lambda: Reference(trap), model=Port, modes=("inference",),
                inputs=lambda rng: (rng.standard_normal((20, 5)),))


HANG, CRASH, EXIT = case("hang", hang), case("crash", crash), case("exit", lambda: os._exit(7))
"""
PLAN = Plan(
    floors=False, rows=("torch.eager", "torch.trace", "jax.jit"), device="cpu", budget=Budget(prepare_s=8, time_s=0.02)
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("user") / "traps.py"
    path.write_text(textwrap.dedent(CASES))
    return path


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("HANG", "timeout", "not ready after its budget, 8 s"),
        ("CRASH", "failed", "died of SIGSEGV: Fatal Python error: Segmentation fault"),
        ("EXIT", "failed", "its process ended with exit code 7"),
    ],
)
def test_a_row_that_hangs_or_crashes_costs_its_own_cell_alone(file, name, status, reason):
    location = f"{file}:{name}"
    results = run([locate(location)], PLAN, locations=[location])
    cells = {cell.row: cell for cell in results.cells}
    assert cells["torch.trace"].status == status
    assert reason in cells["torch.trace"].reason
    assert str(file.parent) not in cells["torch.trace"].reason
    assert {row: cell.status for row, cell in cells.items() if row != "torch.trace"} == {
        "torch.eager": "ok",
        "jax.jit": "ok",
    }
    assert results.cases[0].notes == []
    assert results.complete


def test_a_contender_runs_in_two_processes_and_starts_again_from_a_warm_cache(file):
    location = f"{file}:EXIT"
    (cell,) = [c for c in run([locate(location)], PLAN, locations=[location]).cells if c.row == "jax.jit"]
    assert set(cell.process_of) == {0, 1}
    assert len(cell.process_of) == len(cell.samples_s)
    assert cell.cold.warm_start_s > 0
    parts = (cell.cold.build_s, cell.cold.trace_s, cell.cold.lower_s, cell.cold.compile_s, cell.cold.first_run_s)
    assert sum(parts) == pytest.approx(cell.compile_s, rel=0.01)
    assert cell.enqueue_s > 0
    assert cell.steady_s > 0


def test_who_leads_after_a_second_process_gets_one_too(file, monkeypatch):
    """Else whoever was lucky in its only one would be the fastest."""
    start, taken = Entrant.start_timing, {}
    times = {"torch.eager": [2.0, 2.0], "jax.jit": [1.0, 1.6], "jax.graphed": [1.2, 1.24], "jax.nnx_jit": [1.9]}

    def start_timing(entrant, patience_s):
        timed = start(entrant, patience_s)
        taken[id(timed)] = times[entrant.row.name][len(entrant.timed) - 1]
        return timed

    def interleave(competitors, **_):
        for one in competitors:
            one.samples += [taken[id(one)]] * 6

    monkeypatch.setattr(Entrant, "start_timing", start_timing)
    monkeypatch.setattr("graphmode.compare.speed.bench.interleave", interleave)
    location = f"{file}:EXIT"
    results = run([locate(location)], dataclasses.replace(PLAN, rows=tuple(times)), locations=[location])
    cells = {cell.row: cell for cell in results.cells}
    assert {row: len(set(cell.process_of)) for row, cell in cells.items()} == {
        "torch.eager": 2,
        "jax.jit": 2,
        "jax.graphed": 2,
        "jax.nnx_jit": 0,
    }
    assert cells["jax.graphed"].median_s == pytest.approx(1.22)
    assert all(cell.enqueue_s and cell.memory for cell in cells.values())


def test_a_process_stands_still_while_nothing_is_asked_of_it(file):
    exam = Examination(locate(f"{file}:EXIT"), seed=0, device="cpu")
    verdicts = list(exam.verdicts())
    exam.ask_timed(exam.case.timed_modes(()))
    (row,) = (row for row in all_rows() if row.name == "torch.eager")
    with Rooms(isolate=True, seed=0, device="cpu") as rooms, rooms.of(exam, verdicts, location=f"{file}:EXIT") as seats:
        seat = seats.open(row, "default")
        ((_, _, ready),) = prepared([Job(row, "default", 60)], "inference", lambda _: seat, lambda _: None, 60)
        assert ready.warm_s > 0
        states = []
        for calls in (1, 3):
            states.append(_state(seat._child.pid))
            assert seat.sample(0, calls, 60) > 0
        assert [*states, _state(seat._child.pid)] == ["T"] * 3
        seat.close()
        assert not Path(f"/proc/{seat._child._pid}").exists()


def _state(pid):
    """The letter that Linux has for what a process does; one that was just told to stop may still be about to."""
    for _ in range(100):
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if letter == "T":
            break
        time.sleep(0.01)
    return letter


class Unsendable:
    def __reduce__(self):
        raise TypeError("it cannot leave this process")


class Unloadable:
    def __reduce__(self):
        return int, ("no number",)


def test_a_module_that_another_process_would_not_find_is_sent_with_its_code(file, tmp_path, monkeypatch):
    shadow = tmp_path / "installed" / "shadowed"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(shadow.parent))
    spec = importlib.util.spec_from_file_location("shadowed.test_case", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    results = bench(module.case("whole", bool), dataclasses.replace(PLAN, rows=("torch.eager", "jax.jit")))
    assert results.cases[0].notes == []
    assert {c.status for c in results.cells} == {"ok"}
    assert cloudpickle.list_registry_pickle_by_value() == set()


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (Unsendable(), "the case cannot be pickled (TypeError: it cannot leave this process)"),
        (Unloadable(), "another process cannot load the case (ValueError: invalid literal for int"),
    ],
)
def test_a_case_that_cannot_be_sent_runs_in_this_process_and_the_report_says_so(file, held, reason):
    case = locate(f"{file}:HANG")
    inputs = case.inputs
    unsent = dataclasses.replace(case, inputs=lambda rng: inputs(rng) if held else None)
    plan = Plan(floors=False, rows=("torch.eager", "jax.jit"), device="cpu", budget=Budget(prepare_s=8, time_s=0.02))
    results = bench(unsent, plan)
    assert {cell.status for cell in results.cells} == {"ok"}
    assert f"all rows ran in one process: {reason}" in results.cases[0].notes[0]
    assert results.cases[0].notes[0] in str(headline(results).remarks)


def test_without_isolation_everything_runs_here(file):
    plan = Plan(
        floors=False,
        rows=("torch.eager", "jax.jit"),
        device="cpu",
        budget=Budget(prepare_s=8, time_s=0.02),
        isolate=False,
    )
    results = bench(locate(f"{file}:HANG"), plan)
    assert {cell.status for cell in results.cells} == {"ok"}
    assert results.cases[0].notes == []


def test_a_full_disk_puts_all_rows_into_one_process_and_the_report_says_so(file, monkeypatch):
    def full(self, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("graphmode.compare.findings.Findings.write", full)
    location = f"{file}:HANG"
    plan = Plan(floors=False, rows=("torch.eager", "jax.jit"), device="cpu", budget=Budget(prepare_s=8, time_s=0.02))
    results = run([locate(location)], plan, locations=[location])
    assert {cell.status for cell in results.cells} == {"ok"}
    (note,) = results.cases[0].notes
    assert "No space left on device" in note
    assert "TMPDIR" in note
