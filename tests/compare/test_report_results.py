"""The results file holds what was measured, refuses what cannot be true, and says what is wrong with a bad file."""

from __future__ import annotations

import json
import math
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from graphmode.compare.report.records import Cell
from graphmode.compare.report.results import VERSION, Results, ResultsError

SAMPLE = runpy.run_path(str(Path(__file__).with_name("sample_results.py")))
CELL = {"case": "c", "variant": "default", "row": "jax.jit", "mode": "inference", "device": "cpu", "dtype": "float32"}


@pytest.fixture
def results() -> Results:
    return SAMPLE["sample_results"]()


def nothing() -> Results:
    return Results(created="2025-06-30", seed=0, quick=True, environment=SAMPLE["environment"]())


@pytest.fixture
def file(tmp_path, results) -> Path:
    path = tmp_path / "results.json"
    results.save(path)
    return path


def edited(file: Path, **changes) -> Path:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return file


def test_round_trip(file, results):
    assert Results.load(file) == results
    assert [p.name for p in file.parent.iterdir()] == ["results.json"]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_cut_off_file(file, share):
    payload = file.read_bytes()
    file.write_bytes(payload[: int(share * len(payload))])
    with pytest.raises(ResultsError, match=r"results\.json is no whole JSON object.*run `graphmode compare` again"):
        Results.load(file)


@pytest.mark.parametrize("payload", [b"\xff\xfe\x00", b'{"schema": "\xff"}', b"[1, 2]", b"null", b"# report"])
def test_not_json(file, payload):
    file.write_bytes(payload)
    with pytest.raises(ResultsError, match=r"results\.json is no whole JSON object"):
        Results.load(file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "other.results"}, "schema 'other.results', and 'graphmode.results' was wanted"),
        ({"schema": None}, "schema None"),
        ({"version": VERSION + 1}, "upgrade graphmode"),
        ({"version": 0}, "run the comparison again"),
        ({"version": "1"}, "version '1'"),
        ({"cells": 3}, "does not hold to its schema.*cells"),
        ({"environment": None}, "does not hold to its schema.*environment"),
        ({"cells": [CELL | {"status": "splendid"}]}, "does not hold to its schema.*splendid"),
        ({"cells": [CELL | {"status": "wrong", "median_s": 0.1}]}, "does not hold to its schema.*has a speed"),
        ({"seed": float("nan")}, "does not hold to its schema.*seed is NaN"),
        ({"duration_s": float("inf")}, "duration_s is inf, and a finite number was wanted"),
    ],
)
def test_files_that_are_not_ours(file, changes, message):
    with pytest.raises(ResultsError, match=message):
        Results.load(edited(file, **changes))


def test_files_that_cannot_be_read_or_written(tmp_path, results):
    with pytest.raises(ResultsError, match=r"cannot read the results file .*absent\.json"):
        Results.load(tmp_path / "absent.json")
    with pytest.raises(ResultsError, match="cannot read"):
        Results.load(tmp_path)
    with pytest.raises(ResultsError, match=r"cannot write the results file .*results\.json"):
        results.save(tmp_path / "absent" / "results.json")
    (tmp_path / "results.json").mkdir()
    with pytest.raises(ResultsError, match="cannot write"):
        results.save(tmp_path / "results.json")
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


def test_fields_of_a_later_minor_change_are_ignored(file, results):
    assert Results.load(edited(file, remark="new")) == results


def test_a_reason_with_bytes_that_are_no_text_is_saved(tmp_path):
    results = nothing()
    results.cells = [Cell(**CELL, status="failed", reason="path \udcff")]
    results.save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json").cells[0].reason == "path ?"


@pytest.mark.parametrize(
    "measured",
    [
        *({name: value} for name in ("median_s", "samples_s") for value in (-1e-3, 0.0, 1e-320, 1e300)),
        *(
            {name: value}
            for name in ("iqr_s", "p95_s", "compile_s", "enqueue_s", "steady_s")
            for value in (-1.0, 1e300)
        ),
        {"process_of": [0]},
        {"process_of": [0] * 9},
        {"steps_per_call": 0},
        {"batch": 0},
        {"batch": -8},
    ],
    ids=str,
)
def test_what_cannot_have_been_measured_is_refused_by_its_name(file, measured):
    """It would reach logarithms and shares on the pages."""
    (name, value), *_ = measured.items()
    cell = CELL | {"status": "ok", "median_s": 1e-3, "samples_s": [1e-3] * 6, "process_of": [0, 1] * 3}
    cell |= {name: [value] * 6 if name == "samples_s" else value}
    with pytest.raises(ResultsError, match=r"does not hold to its schema: \$\.cells\[0\]: "):
        Results.load(edited(file, cells=[cell]))


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        *(("floors", {"bytes_per_s": value}) for value in (0.0, -1.0, 1e-320, 1e308)),
        *(("floors", {"flops_per_s": {"float32": value}}) for value in (0.0, -1.0)),
        ("floors", {"launch_s": {"empty": 0.0}}),
        *(("floors", {name: -1.0}) for name in ("cache_bytes", "cache_bytes_per_s")),
        *(("work", {name: value}) for name in ("flops", "bytes") for value in (-1.0, 1e308)),
    ],
    ids=str,
)
def test_floors_and_work_that_cannot_be_are_refused(file, part, changes):
    floors = {"bytes_per_s": 1e9, "flops_per_s": {"float32": 1e12}, "launch_s": {}}
    work = {"case": "c", "mode": "inference", "dtype": "float32", "flops": 1e6, "bytes": 0}
    Results.load(edited(file, floors=floors, work=[work]))
    changed = {"floors": floors | changes} if part == "floors" else {"work": [work | changes]}
    with pytest.raises(ResultsError, match="which cannot have been measured"):
        Results.load(edited(file, **changed))


@pytest.mark.parametrize("status", ["wrong", "unsupported", "unavailable", "failed", "timeout"])
@pytest.mark.parametrize("speed", [{"median_s": 0.1}, {"samples_s": [0.1]}])
def test_a_cell_that_is_not_ok_has_no_speed(status, speed):
    with pytest.raises(ValueError, match="has a speed though its status is"):
        Cell(**CELL, status=status, **speed)


def test_a_cell_that_is_not_equal_is_not_ok():
    with pytest.raises(ValueError, match="'ok' though its function is not equal"):
        Cell(**CELL, status="ok", equal=False)


def test_infinities_are_dropped_before_json_does(tmp_path):
    results = nothing()
    bad = SAMPLE["tensor"]("output[1]", equal=False, precise=False, error=math.inf, ratio=math.nan)
    worse_than_any = SAMPLE["parity"](
        "c", equal=False, precise=False, tensors=[SAMPLE["tensor"](error=1e9, ratio=1e9), bad]
    )
    results.parity = [worse_than_any]
    results.cells = [Cell(**CELL, status="wrong", reason="not finite", error_ratio=math.inf)]
    results.save(tmp_path / "results.json")
    loaded = Results.load(tmp_path / "results.json")
    assert loaded == results
    assert loaded.parity[0].worst_error.name == "output[1]"
    assert loaded.parity[0].worst_ratio.name == "output[1]"


@pytest.mark.parametrize(
    ("row", "status", "expected", "fails"),
    [
        ("jax.jit", "ok", None, False),
        ("jax.jit", "wrong", None, True),
        ("jax.jit", "wrong", "the case says why", False),
        ("jax.jit", "failed", None, True),
        ("jax.jit", "unsupported", None, True),
        ("jax.jit", "unsupported", "the case says why", False),
        ("jax.jit", "timeout", None, True),
        ("jax.eager", "timeout", None, False),
        ("jax.eager", "unsupported", None, True),
        ("jax.graphed.no_command_buffers", "unavailable", None, False),
        ("torch.trace", "wrong", None, True),
        ("torch.trace", "wrong", "records one branch", False),
        ("torch.compile", "failed", None, True),
        ("torch.aoti", "timeout", None, False),
        ("torch.cudagraph", "unavailable", None, False),
        ("onnxruntime", "unsupported", None, False),
    ],
)
def test_which_cells_fail_a_run(row, status, expected, fails):
    results = nothing()
    results.cells = [Cell(**CELL | {"row": row}, status=status, reason="why" * (status != "ok"), expected=expected)]
    assert results.passed is not fails
    assert len(list(results.failures())) == fails


@pytest.mark.parametrize("side", ["jax", "torch"])
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, None),
        ({"equal": False}, "is not equal"),
        ({"precise": False}, "is not precise"),
        ({"equal": False, "precise": False}, "is not equal and not precise"),
        ({"error": "KeyError: 'fc.bias'"}, "could not be judged: KeyError: 'fc.bias'"),
    ],
)
def test_which_verdicts_fail_a_run(side, changes, line):
    results = nothing()
    results.parity = [SAMPLE["parity"]("c", "v", side=side, **changes)]
    who = "the port" if side == "jax" else "this variant of the reference"
    assert list(results.failures()) == ([f"c (v): {who} {line}"] if line else [])
    assert results.passed is (line is None)


def test_a_problem_of_a_case_fails_a_run(results):
    assert results.passed
    results.cases[0] = replace(results.cases[0], problem="inputs raised TypeError")
    assert not results.passed
    assert results.problems == ["conditional_scale: inputs raised TypeError"]


def test_nothing_compared_is_no_pass():
    assert not nothing().passed
