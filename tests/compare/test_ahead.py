"""The process that finds parity ahead: the same verdicts and the same errors as without it, whatever becomes of it."""

import contextlib
import inspect
import os
import signal
import time
from dataclasses import replace

import pytest
from graphmode.compare import CaseError
from graphmode.compare.ahead import AHEAD, Ahead, Lost
from graphmode.compare.comparison import run
from graphmode.compare.findings import Findings
from graphmode.compare.locate import locate
from graphmode.compare.plan import Plan
from graphmode.compare.speed.forkserver import can_fork, server

from graphmode.weights import WeightsError

pytestmark = pytest.mark.skipif(not can_fork(), reason="needs a system that can fork safely")

CASES = """
import dataclasses
import os
import time
from pathlib import Path

import numpy as np
import torch
from flax import nnx
from graphmode.compare import Case


MARK = Path(__file__).with_name("had one thread")


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(5, 16)

    def forward(self, x):
        return self.fc(x)


class Port(nnx.Module):
    def __init__(self, rngs, name="fc"):
        self.layers = nnx.Dict({name: nnx.Linear(5, 16, rngs=rngs)})

    def __call__(self, x):
        (layer,) = self.layers.values()
        return layer(x)


class Good(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(5, 16, rngs=rngs)

    def __call__(self, x):
        return self.fc(x)


def fails(*_):
    raise KeyError("an error of the model's own")


def case(name, model):
    return Case(name=name, summary="", reference=Reference, model=model, modes=("inference",),
                inputs=lambda rng: (rng.standard_normal((20, 5)),))


def patient(rng):  # until PyTorch has had one thread, and then all of them
    if not MARK.exists():
        until(lambda: torch.get_num_threads() == 1)
        MARK.touch()
        until(lambda: torch.get_num_threads() == len(os.sched_getaffinity(0)))
    return (rng.standard_normal((20, 5)),)


def gated(rng):
    Path(__file__).with_name("began").touch()
    until(Path(__file__).with_name("gate").exists)
    return (rng.standard_normal((20, 5)),)


FIRST, SECOND = case("first", Good), case("second", Good)
PATIENT = dataclasses.replace(FIRST, name="patient", inputs=patient)
GATED = dataclasses.replace(FIRST, name="gated", inputs=gated)
WEIGHTS, BROKEN = case("weights", Port), case("broken", fails)
LOST = dataclasses.replace(FIRST, name="lost", pretrained=fails)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("ahead") / "cases.py"
    path.write_text(CASES + inspect.getsource(until))  # which serves both
    return path


def until(is_so):
    deadline = time.monotonic() + 240  # a loaded machine imports for a minute
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


@contextlib.contextmanager
def ahead(path, *names):
    wanted = [(f"{path}:{name}", "float32") for name in names]
    with contextlib.closing(Ahead(server("cpu"), wanted, seed=3, device="cpu")) as process:
        yield process


@pytest.mark.slow
def test_findings_are_those_of_the_main_process(path):
    with ahead(path, "FIRST", "SECOND") as process:
        found = [Findings.read(process.findings(number)) for number in range(2)]
    plan = Plan(seed=3, speed=False)
    for name, findings in zip(("FIRST", "SECOND"), found, strict=True):
        (expected,) = run([locate(f"{path}:{name}")], plan).parity
        (verdict,) = findings.verdicts
        assert verdict.passed
        assert replace(verdict, duration_s=0) == replace(expected, duration_s=0)


def test_errors_arrive_as_they_are_and_others_are_left_to_the_main_process(path):
    with ahead(path, "WEIGHTS", "BROKEN", "LOST", "FIRST") as process:
        with pytest.raises(WeightsError, match="add Rename") as raised:
            process.findings(0)
        assert len(raised.value.problems) == 1
        with pytest.raises(CaseError, match="building the model 'default' fails: KeyError"):
            process.findings(1)
        with pytest.raises(Lost):
            process.findings(2)
        assert Findings.read(process.findings(3)).verdicts[0].passed


def test_what_is_left_out_is_not_taken_for_another(path):
    with ahead(path, "WEIGHTS", "FIRST", "SECOND") as process:
        until(lambda: len(list(process._folder.iterdir())) == 2)  # of both that can be compared: nothing is begun then
        (verdict,) = Findings.read(process.findings(2)).verdicts
        assert verdict.case == "second"
        for passed_over in (1, 2, 3):
            with pytest.raises(Lost):
                process.findings(passed_over)


def test_nobody_waits_for_what_is_left_out(path):
    with ahead(path, "GATED", "FIRST", "SECOND") as process:
        until(path.with_name("began").exists)
        with pytest.raises(Lost):
            process.findings(1)
        path.with_name("gate").touch()
        until(process._child.connection.poll)
        assert Findings.read(process.findings(2)).verdicts[0].case == "second"


def test_a_case_that_fails_in_one_dtype_leaves_its_other_findings_to_nobody(path):
    locations = [f"{path}:{name}" for name in ("FIRST", "WEIGHTS", "SECOND")]
    plan = Plan(rows=("torch.eager",), dtypes=("float32", "bfloat16"), quick=True, floors=False)
    results = run(map(locate, locations), plan, locations=locations)
    assert [(info.name, bool(info.problem)) for info in results.cases] == [
        ("first", False),
        ("weights", True),
        ("second", False),
    ]
    assert [(p.case, p.dtype) for p in results.parity if p.case == "second"] == [
        ("second", "float32"),
        ("second", "bfloat16"),
    ]


def test_a_killed_process_costs_no_case(path, monkeypatch):
    findings = Ahead.findings

    def killed(self, number):
        os.kill(self._child.pid, signal.SIGKILL)
        return findings(self, number)

    monkeypatch.setattr(Ahead, "findings", killed)
    locations = [f"{path}:FIRST", f"{path}:SECOND"]
    plan = Plan(rows=("torch.eager", "jax.jit"), quick=True, floors=False)
    results = run(map(locate, locations), plan, locations=locations)
    assert [(p.case, p.passed) for p in results.parity] == [("first", True), ("second", True)]
    assert {cell.status for cell in results.cells} == {"ok"}


def test_what_it_has_found_is_there_when_it_has_nothing_left_to_find(path):
    with ahead(path, *["FIRST"] * 4) as process:
        until(lambda: len(list(process._folder.glob("*.head"))) == 4)
        for number in range(4):
            time.sleep(0.3)  # in which it may end
            assert Findings.read(process.findings(number)).verdicts[0].passed


def test_it_has_all_threads_only_while_it_is_waited_for(path):
    with ahead(path, "FIRST", "PATIENT") as process:
        process.findings(0)
        until(path.with_name("had one thread").exists)
        assert Findings.read(process.findings(1)).verdicts[0].passed


def test_it_leaves_no_files_and_no_process(path):
    with ahead(path, "FIRST") as process:
        with process.paused():
            pass
        folder, pid = process._folder, process._child.pid
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_finds_no_more_than_so_many_ahead_of_who_asks(path):
    with ahead(path, *["FIRST"] * (AHEAD + 3)) as process:
        process.findings(0)
        until(lambda: len(list(process._folder.glob("*.head"))) >= AHEAD)
        time.sleep(1.0)
        assert len(list(process._folder.glob("*.head"))) <= AHEAD + 1
        for number in range(1, AHEAD + 3):
            assert Findings.read(process.findings(number)).verdicts[0].passed
