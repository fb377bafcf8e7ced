"""The benchmark of layers: what it times, and that it times nothing whose outputs differ."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from flax import nnx

from graphmode import nn

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "layers.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("layers_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["layers_benchmark"] = module
    spec.loader.exec_module(module)
    return module


def entry(benchmark, name):
    (found,) = [one for one in benchmark.ENTRIES if one.name == name]
    return found


@pytest.mark.parametrize("mode", ["forward", "forward and backward"])
def test_every_form_is_timed_and_the_fastest_counts(benchmark, mode):
    one = entry(benchmark, "Conv2d 1x1")
    measured = benchmark.measure(one, "small", mode, "cpu", 0.01, compiles=False)
    assert set(measured.samples_s) == {"graphmode", "eager", "channels_last"}, measured.reason
    fastest = min(("eager", "channels_last"), key=measured.median)
    assert measured.fastest(benchmark.PYTORCH) == fastest
    text = benchmark.table([measured], "a machine")
    assert f"- {mode}, small: geometric mean" in text
    assert text.splitlines()[-1].startswith(f"| Conv2d 1x1, {mode} | small |")


def test_what_differs_is_not_timed(benchmark, monkeypatch):
    class Wrong(nn.Linear):
        def __call__(self, input):
            return super().__call__(input) + 1

    monkeypatch.setattr(benchmark, "build", lambda entry: Wrong(*entry.args, rngs=nnx.Rngs(0)))
    measured = benchmark.measure(entry(benchmark, "Linear"), "small", "forward", "cpu", 0.01, compiles=False)
    assert measured.samples_s == {}
    assert "outputs differ" in measured.reason


def test_a_layer_that_fails_says_why(benchmark):
    one = dataclasses.replace(entry(benchmark, "Linear"), args=(3, 4))
    measured = benchmark.measure(one, "small", "forward", "cpu", 0.01, compiles=False)
    assert measured.samples_s == {}
    assert "shape" in measured.reason


def test_names_are_unique_and_every_class_is_here(benchmark):
    names = [one.name for one in benchmark.ENTRIES]
    assert len(set(names)) == len(names)
    assert not {one.cls for one in benchmark.ENTRIES if not hasattr(nn, one.cls)}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"names": ["no such layer"]}, "no layer is called"),
        ({"size": ["huge"]}, "there is no size 'huge'; choose small, medium, large"),
        ({"compile_at": ["huge"]}, "there is no size 'huge'"),
        ({"device": "tpu"}, "--device is 'tpu'"),
        ({"keep": True}, "nothing to keep"),
    ],
)
def test_what_it_does_not_know_is_refused(arguments, told, benchmark, tmp_path):
    with pytest.raises(typer.BadParameter, match=told):
        benchmark.main(tmp_path, **{"seconds": 0.01, "device": "cpu", **arguments})


def test_a_folder_that_cannot_be_written_to_is_refused(benchmark, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(typer.BadParameter, match="is a file"):
        benchmark.main(tmp_path / "file", device="cpu")


@pytest.mark.slow
def test_the_script_leaves_its_records(tmp_path):
    run = [sys.executable, str(SCRIPT), str(tmp_path)]
    small = ["Linear", "--size", "small", "--seconds", "0.01", "--no-compile"]
    subprocess.run([*run, *small], check=True, capture_output=True)
    record = json.loads((tmp_path / "layers.json").read_text())
    assert [layer["name"] for layer in record["layers"]] == ["Linear, forward", "Linear, forward and backward"]
    assert "geometric mean" in (tmp_path / "layers.md").read_text()
    medium = [*run, "Linear", "--size", "medium", "--seconds", "0.02", "--no-compile", "--keep"]
    subprocess.run(medium, check=True, capture_output=True)
    kept = json.loads((tmp_path / "layers.json").read_text())
    assert kept["layers"][:2] == [{**one, "revision": record["environment"]["revision"]} for one in record["layers"]]
    assert [one["size"] for one in kept["layers"][2:]] == ["medium", "medium"]
    assert "Of small size for 0.01 s a form" in (tmp_path / "layers.md").read_text()
