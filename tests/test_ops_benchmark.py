"""The benchmark of building blocks: what it times, and that it times nothing whose results differ."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "ops.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("ops_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["ops_benchmark"] = module
    spec.loader.exec_module(module)
    return module


def test_every_form_is_timed_and_the_table_shows_it(benchmark):
    (block,) = [b for b in benchmark.BLOCKS if b.name == "compact"]
    measured = benchmark.measure(block, 100, "cpu", budget_s=0.01)
    assert set(measured.samples_s) == {"graphmode", "eager", "static"}
    assert measured.ratio("eager")[0] == pytest.approx(measured.median("graphmode") / measured.median("eager"))
    line = benchmark.table([measured], "a machine").splitlines()[-1]
    assert line.startswith("| compact | 100 |")
    assert line.count("|") == 10


def test_what_differs_is_not_timed(benchmark):
    (block,) = [b for b in benchmark.BLOCKS if b.name == "masked_fill"]
    wrong = dataclasses.replace(block, ours=lambda x, mask: block.ours(x, mask) + 1)
    measured = benchmark.measure(wrong, 100, "cpu", budget_s=0.01)
    assert measured.samples_s == {}
    assert "results differ: array 0 is off by up to 1" in measured.reason
    assert "results differ" in benchmark.table([measured], "a machine")
    reshaped = dataclasses.replace(block, ours=lambda x, mask: x[:-1])
    assert "shape (99,), and (100,)" in benchmark.measure(reshaped, 100, "cpu", budget_s=0.01).reason


def test_names_are_unique_and_inputs_differ_from_set_to_set(benchmark):
    names = [block.name for block in benchmark.BLOCKS]
    assert len(set(names)) == len(names)
    for block in benchmark.BLOCKS:
        rng = np.random.default_rng(0)
        first, second = block.make(rng, 1000), block.make(rng, 1000)
        assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True)), block.name


@pytest.mark.slow
def test_the_script_leaves_its_records_and_names_what_it_does_not_know(tmp_path):
    run = [sys.executable, str(SCRIPT), str(tmp_path)]
    subprocess.run([*run, "masked_fill", "--size", "100", "--seconds", "0.01"], check=True, capture_output=True)
    record = json.loads((tmp_path / "ops.json").read_text())
    assert [block["name"] for block in record["blocks"]] == ["masked_fill"]
    assert record["environment"]["device"] == "cpu"
    assert "masked_fill" in (tmp_path / "ops.md").read_text()
    refused = subprocess.run([*run, "no such block"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "no block is called" in refused.stderr
