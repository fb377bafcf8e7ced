"""The unattended comparison: most telling first, within its time, resumable, and no case costs another."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from graphmode.compare.report import Results, ResultsError

ROOT = Path(__file__).parent.parent
BARE = {
    "jax",
    "flax",
    "optax",
    "chex",
    "numpy",
    "scipy",
    "jaxtyping",
    "rich",
    "typer",
    "cloudpickle",
    "torch",
    "jinja2",
}
LAYOUT = {"ruff"}  # by which drafts are laid out, and which they do without
INFERENCE = ("--mode", "inference")
ROWS = ("--row", "torch.eager", "--row", "torch.cudagraph", "--row", "jax.jit")


def suite(folder, *arguments, at=None, **environment):
    return subprocess.run(
        [
            sys.executable,
            ROOT / "benchmarks" / "suite.py",
            at or folder,
            *arguments,
            "--quick",
            "--device",
            "cpu",
            *ROWS,
        ],
        cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_it_needs_nothing_that_a_machine_with_a_gpu_and_no_network_lacks():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [
        *project["dependencies"],
        *(n for e in ("compare", "report") for n in project["optional-dependencies"][e]),
    ]
    assert {re.split("[<>=]", each)[0] for each in needed} - LAYOUT <= BARE


@pytest.mark.slow
def test_it_runs_each_case_and_goes_on_where_it_was(tmp_path):
    """What is prepared at a time is timed in turns; every case in float32 comes before any in another dtype."""
    options = ("--dtype", "float32", "--dtype", "bfloat16", "--at-once", "2", "--minutes", "8", *INFERENCE)
    first = suite(tmp_path, "-c", "scale_add", *options)
    assert first.returncode == 0, first.stdout + first.stderr
    assert re.search(r"in \d+ s, one case or another was timed for [1-9]\d* s", first.stdout)
    both = suite(tmp_path, "-c", "scale_add", "-c", "double_sine", "--sweep", "2,64", *options)
    assert both.returncode == 0, both.stdout + both.stderr
    lines = sorted(line for line in both.stdout.splitlines() if " of 4, " in line)
    wanted = ("1 of 4, scale_add: there", "2 of 4, double_sine: passed")
    wanted += ("3 of 4, scale_add-bfloat16: there", "4 of 4, double_sine-bfloat16: passed")
    assert [line.startswith(each) for line, each in zip(lines, wanted, strict=True)] == [True] * 4, lines
    results = Results.load(tmp_path / "results.json")
    assert results.complete
    assert [case.name for case in results.cases] == ["scale_add", "double_sine"]
    assert {parity.dtype for parity in results.parity} == {"float32", "bfloat16"}
    swept = {(cell.case, cell.dtype, cell.batch) for cell in results.cells if cell.batch is not None}
    assert swept == {("double_sine", "float32", 2), ("double_sine", "float32", 64)}
    assert {c.status for c in results.cells if c.row == "torch.cudagraph"} == {"unavailable"}
    assert {c.status for c in results.cells if c.row != "torch.cudagraph"} == {"ok"}
    assert "double_sine" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_no_run_outlives_it(tmp_path):
    command = [sys.executable, ROOT / "benchmarks" / "suite.py", tmp_path, "-c", "scale_add", "-c", "double_sine"]
    with subprocess.Popen([*command, "--at-once", "2", "--device", "cpu", *ROWS], stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + 60
        while len(of_folder(tmp_path)) < 3 and time.monotonic() < end:  # it, and both runs
            time.sleep(0.2)
        process.terminate()
        assert process.wait(60) != 0
    assert of_folder(tmp_path) == []


def of_folder(folder):
    """Processes whose command names it."""
    return [p for p in Path("/proc").glob("[0-9]*") if str(folder) in commandline(p)]


def commandline(process):
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:  # it has ended
        return ""


@pytest.mark.slow
def test_a_process_that_dies_costs_its_case_alone(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "if sys.orig_argv[3:5] == ['compare', 'scale_add']: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    finished = suite(
        tmp_path, "-c", "scale_add", "-c", "double_sine", "--minutes", "3", *INFERENCE, PYTHONPATH=str(tmp_path)
    )
    assert finished.returncode == 1, finished.stdout + finished.stderr
    data = json.loads((tmp_path / "results.json").read_text())
    problems = {c["name"]: c["problem"] for c in data["cases"]}
    assert problems == {"double_sine": "", "scale_add": "its process died of SIGKILL; it left no results"}
    assert not data["complete"]


@pytest.mark.slow
def test_no_case_is_begun_without_time_and_none_unknown(tmp_path):
    late = suite(tmp_path, "-c", "scale_add", "--minutes", "0.1")
    assert late.returncode == 2
    assert "not begun: the time is over" in late.stdout
    assert "give more --minutes" in late.stderr
    (tmp_path / "file").touch()
    unwritable = suite(tmp_path, "-c", "scale_add", at=tmp_path / "file")
    assert unwritable.returncode == 2
    assert "is a file" in unwritable.stderr
    assert "Traceback" not in unwritable.stderr
    for wrong in (("-c", "resnet81"), ("--dtype", "float8"), ("--mode", "dreaming")):
        unknown = suite(tmp_path, *wrong)
        assert unknown.returncode == 2
        assert wrong[1] in unknown.stderr


@pytest.fixture
def module(monkeypatch):
    spec = importlib.util.spec_from_file_location("suite", ROOT / "benchmarks" / "suite.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "suite", module)
    spec.loader.exec_module(module)
    return module


def results_of(case: str, sample: Results, *, complete: bool, **environment) -> Results:
    alone = [each for each in sample.cases if each.name == case]
    other = replace(sample.environment, **environment)
    return replace(sample, cases=alone, parity=[], cells=[], floors=None, complete=complete, environment=other)


def test_what_is_broken_off_at_its_share_begins_anew_when_all_have_had_theirs(tmp_path, monkeypatch, module):
    sample = Results.load(ROOT / "benchmarks/results/cpu-2-threads/results.json")
    ran = []

    def run_case(place, arguments, limit_s, turn):
        ran.append((place.name, limit_s))
        whole = place.name != "lstm" or limit_s > 60
        facts = {"device_name": "another"} if place.name == "bert" else {}
        place.mkdir(parents=True, exist_ok=True)
        left = replace(results_of(arguments[0], sample, complete=whole, **facts), duration_s=min(limit_s, 100.0))
        left.save(place / "results.json")
        return "passed" if whole else f"broken off after {limit_s:.0f} s"

    monkeypatch.setattr(module, "run_case", run_case)
    monkeypatch.setattr(module, "revision", lambda: sample.environment.revision)
    units = [module.Unit(name, "float32") for name in ("lstm", "scale_add", "bert")]
    options = {"share_s": 60.0, "end": time.monotonic() + 500, "seed": 0, "quick": False}
    results = module.Runs(tmp_path, units, [], "", (), **options).run()
    assert [name for name, _ in ran] == ["lstm", "scale_add", "bert", "lstm"]
    assert [limit_s == 60 for _, limit_s in ran] == [True, True, True, False]
    assert [(case.name, "left out" in case.problem) for case in results.cases] == [
        ("lstm", False),
        ("scale_add", False),
        ("bert", True),
    ]
    ran.clear()
    module.Runs(tmp_path, units, [], "", (), **options).run()
    assert [name for name, _ in ran] == ["bert"]


def test_a_later_start_goes_on_with_what_an_earlier_one_broke_off(tmp_path, monkeypatch, module):
    """Where it has more time for it, also where no case takes less than all of it, as on a CPU."""
    sample = Results.load(ROOT / "benchmarks/results/cpu-2-threads/results.json")
    ran = []

    def run_case(place, arguments, limit_s, turn):
        ran.append(place.name)
        place.mkdir(parents=True, exist_ok=True)
        left = results_of(arguments[0], sample, complete=limit_s > 200)
        replace(left, duration_s=limit_s).save(place / "results.json")
        return "passed" if left.complete else f"broken off after {limit_s:.0f} s"

    monkeypatch.setattr(module, "run_case", run_case)
    monkeypatch.setattr(module, "revision", lambda: sample.environment.revision)
    for seconds, wanted, complete in ((150, ["lstm"], False), (140, [], False), (300, ["lstm"], True)):
        ran.clear()
        options = {"share_s": seconds, "end": time.monotonic() + seconds, "seed": 0, "quick": False}
        results = module.Runs(tmp_path, [module.Unit("lstm", "float32")], [], "", (), **options).run()
        assert (ran, results.complete) == (wanted, complete), seconds


def test_for_what_there_was_no_time_is_no_failure(tmp_path, monkeypatch, module):
    sample = Results.load(ROOT / "benchmarks/results/cpu-2-threads/results.json")
    units = [module.Unit(name, dtype) for dtype in ("float32", "bfloat16") for name in ("lstm", "bert", "gpt2")]
    left = dict.fromkeys((unit.name for unit in units), None)
    left["lstm"] = results_of("lstm", sample, complete=True)
    notes = dict.fromkeys(left, module.NOT_BEGUN) | {"lstm": "passed", "gpt2": "its process died of SIGKILL"}
    for _ in range(2):  # it is called after every unit
        whole = module.gather(units, left, notes)
    assert whole.left_out == ["bert", "gpt2"]
    assert [(case.name, case.problem) for case in whole.cases] == [
        ("lstm", ""),
        ("gpt2", "its process died of SIGKILL; it left no results"),
    ]
    assert whole.cases[0].notes == ["for want of time not compared in bfloat16"]
    assert not whole.complete


def test_cases_without_their_weights_come_last(monkeypatch, module):
    monkeypatch.setattr(module, "how_to_install", lambda name: "" if name == "minilm" else f"pip install {name}")
    names = module.ordered([])
    assert names[0] == "conditional_scale"
    lacking = [module.lacks_weights(name) for name in names]
    assert lacking == sorted(lacking)
    assert "efficientnet_lite0" in names[lacking.index(True) :]
    assert "minilm" in names[: lacking.index(True)]


@pytest.mark.parametrize(("limit_s", "told"), [(0.1, "broken off after 0 s"), (100.0, "timed")])
def test_parts_of_the_library_are_timed_within_their_time(limit_s, told, tmp_path, monkeypatch, module):
    (script, *_), _ = module.PARTS["layers"]
    few = (script, "ReLU", "--size", "small", "--no-compile", "--seconds", "0.01")
    monkeypatch.setitem(module.PARTS, "layers", (few, limit_s))
    assert module.time_part("layers", tmp_path / "layers", "cpu") == told
    assert (tmp_path / "layers" / "layers.md").exists() == (told == "timed")


def test_results_of_different_runs_are_not_made_one(tmp_path):
    sample = json.loads((ROOT / "benchmarks" / "results" / "cpu-2-threads" / "results.json").read_text())
    sample["seed"] = 1
    (tmp_path / "other.json").write_text(json.dumps(sample))
    runs = [Results.load(ROOT / "benchmarks/results/cpu-2-threads/results.json"), Results.load(tmp_path / "other.json")]
    with pytest.raises(ResultsError, match="seed is 0 in one and 1 in another"):
        Results.merged(runs)
