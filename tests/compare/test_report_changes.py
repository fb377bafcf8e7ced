"""Two runs of the same thing show no change; a slower row, a lost verdict and another machine are seen and told."""

from __future__ import annotations

import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphmode.compare.report import Results, changes_page, markdown
from graphmode.compare.report.changes import changes

SAMPLE = runpy.run_path(str(Path(__file__).with_name("sample_results.py")))


def again(results: Results, seed: int, *, slower: tuple[str, str, str] | None = None, factor: float = 1.1) -> Results:
    """Another run: every case drifts by up to 40 %, each row by 2 % on top, samples by 3 %; one row by `factor`."""
    rng = np.random.default_rng(seed)
    drift = {(c.case, c.mode): rng.uniform(0.8, 1.4) for c in results.cells}
    cells = []
    for cell in results.cells:
        if cell.median_s is not None:
            scale = cell.median_s * drift[cell.case, cell.mode] * rng.lognormal(sigma=0.02)
            scale *= factor if (cell.case, cell.mode, cell.row) == slower else 1
            samples = scale * rng.lognormal(sigma=0.03, size=len(cell.samples_s))
            cell = replace(cell, samples_s=samples.tolist(), median_s=float(np.median(samples)))
            cell = replace(cell, process_of=[i % 2 for i in range(len(samples))])
        cells.append(cell)
    return replace(results, cells=cells)


@pytest.fixture(scope="module")
def run() -> Results:
    return again(SAMPLE["sample_results"](), 0)


def test_two_runs_of_the_same_thing_show_no_change(run):
    alarms = [bool(changes(run, again(run, seed)).moved) for seed in range(1, 41)]
    assert sum(alarms) <= 6  # 2 of 40 are to be expected; more than 6 come once in 150 times


def test_no_change_at_all_where_nothing_differs(run):
    found = changes(run, run)
    assert [found.moved, found.turns, found.one_sided, found.circumstances] == [[], [], [], []]
    assert found.moved_together == []
    assert all(change.ratio.value == 1 for change in found.times)
    assert found.resolved(0.1) >= len([change for change in found.times if not change.before.noisy])
    assert found.untold == []  # a noisy row is compared too: its noise counts


@pytest.mark.parametrize("factor", [1.1, 0.9])
def test_a_row_that_moved_by_a_tenth_is_found_and_no_other(run, factor):
    key = ("efficientnet_lite0", "inference", "jax.graphed")
    cells = [
        replace(c, samples_s=[s * factor for s in c.samples_s], median_s=c.median_s * factor)
        if (c.case, c.mode, c.row) == key
        else c
        for c in run.cells
    ]
    (change,) = changes(run, replace(run, cells=cells)).moved
    assert (change.after.case, change.after.mode, change.after.row) == key
    assert change.verdict == ("slower" if factor > 1 else "faster")
    assert change.ratio.value == pytest.approx(factor, rel=0.02)


def test_a_row_that_moved_is_told_from_the_drift_of_its_case(run):
    key = ("resnet18", "forward_backward", "torch.compile")
    after = again(run, 1, slower=key, factor=1.3)
    assert [(c.after.case, c.after.mode, c.after.row) for c in changes(run, after).moved] == [key]


def test_a_row_of_one_process_may_have_moved(run):
    """What it drew at its start is in all of its repeats, and in no scatter that they show."""
    key = ("efficientnet_lite0", "inference", "jax.graphed")
    alone = [
        replace(c, process_of=[]) if (c.case, c.mode, c.row) == key else c
        for c in again(run, 1, slower=key, factor=1.3).cells
    ]
    found = changes(run, replace(run, cells=alone))
    assert found.moved == []
    (change,) = found.perhaps
    assert (change.after.case, change.after.mode, change.after.row) == key
    text = markdown.render_page(changes_page(run, replace(run, cells=alone), ("a", "b")))
    assert "1 row of one process may have moved." in text
    assert "What may have moved, timed in one process" in text


def scaled(results: Results, factor: float, *wanted: str) -> Results:
    """With the times of the cells whose case, mode and framework are these multiplied."""
    cells = [
        replace(c, samples_s=[s * factor for s in c.samples_s], median_s=c.median_s * factor)
        if c.median_s is not None and (c.case, c.mode, c.framework) == wanted
        else c
        for c in results.cells
    ]
    return replace(results, cells=cells)


def test_a_port_that_became_faster_is_told_of_all_its_rows_together(run):
    wanted = ("resnet18", "inference", "jax")
    found = changes(run, scaled(again(run, 1), 0.7, *wanted))
    (one,) = found.moved_together
    assert {(c.case, c.mode, c.framework) for c in one.cells} == {wanted}
    assert one.ratio.verdict == "faster"
    assert one.ratio.value == pytest.approx(0.7, rel=0.08)
    assert found.moved == []  # none by more than its like
    page = markdown.render_page(changes_page(run, scaled(again(run, 1), 0.7, *wanted), ("a", "b")))
    assert "JAX's rows of resnet18 all got faster." in page


def test_what_did_not_move_is_not_told_where_its_like_did(run):
    wanted = ("resnet18", "inference", "jax")
    kept = next(c for c in run.cells if (c.case, c.mode, c.framework) == wanted and c.median_s is not None)
    moved = scaled(run, 0.5, *wanted)
    moved = replace(
        moved, cells=[kept if c.row == kept.row and (c.case, c.mode, c.framework) == wanted else c for c in moved.cells]
    )
    (change,) = [c for c in changes(run, moved).times if c.before is kept]
    assert (change.plain, change.verdict) == (1, "level")


def test_a_row_by_itself_is_told_by_its_own_times(run):
    alone = replace(run, cells=[c for c in run.cells if (c.case, c.row) == ("resnet18", "jax.jit")])
    slower = scaled(alone, 1.2, "resnet18", "inference", "jax")
    found = {c.after.mode: c for c in changes(alone, slower).times}
    assert found["inference"].plain == pytest.approx(1.2)
    assert found["inference"].ratio.value == pytest.approx(1.2)
    assert found["inference"].verdict == "slower"


def test_what_turned_is_told(run):
    lost = next(i for i, c in enumerate(run.cells) if c.row == "jax.jit" and c.case == "resnet18")
    cells = list(run.cells)
    cells[lost] = SAMPLE["_plain"]("resnet18", "jax.jit", cells[lost].mode, "failed", "out of memory")
    parity = [replace(p, equal=False) if p.case == "lstm" else p for p in run.parity]
    cells = [c for c in cells if c.row != "torch.script"]
    there = replace(run.environment, threads=64)
    after = replace(run, cells=cells, parity=parity, environment=there, complete=False)
    found = changes(run, after)
    assert [(t.before, t.after, t.is_worse) for t in found.turns if "resnet18" in t.what] == [("ok", "failed", True)]
    assert any("lstm: parity of the port" in t.what and t.is_worse for t in found.turns)
    assert all("torch.script" in line and line.endswith("only before") for line in found.one_sided)
    assert any("64 threads" in line for line in found.circumstances)
    assert "the run after was interrupted" in found.circumstances
    text = markdown.render_page(changes_page(run, after, ("a.json", "b_*.json")))
    for part in ("for the worse", "out of memory", "64 threads", r"b\_\*.json"):
        assert (part in text) == (part != "out of memory")


def test_runs_with_nothing_in_common_are_not_told_to_be_the_same(run):
    elsewhere = replace(run.environment, device="gpu", device_name="a GPU", threads=64)
    other = replace(run, cells=[replace(c, device="gpu") for c in run.cells], parity=[], environment=elsewhere)
    page = changes_page(run, other, ("a", "b"))
    assert page.headline.verdict == "Nothing could be compared: no row or verdict is in both runs."
    assert page.headline.tone == "warn"
    assert page.headline.lines == ("The runs differ in device, cpu: what moved may be due to that.",)


def test_what_was_not_timed_is_not_told_to_be_as_it_was(run):
    few = replace(run, cells=[replace(c, samples_s=c.samples_s[:3], process_of=[]) for c in run.cells])
    assert changes_page(run, few, ("a", "b")).headline.verdict == (
        "No verdict and no status turned, and no row could be compared in time."
    )


def test_a_machine_that_was_busy_is_told(run):
    busy = replace(run.environment, threads=2, moment={"load average": "3.10 2 1"})
    found = changes(replace(run, environment=replace(busy, moment={})), replace(run, environment=busy))
    assert found.circumstances == ["other programs were busy on the machine when the run after began"]


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("2025-06-30T12:00:00Z", "2025-06-30T12:00:01+00:00", False),
        ("2025-06-30T12:00:01+00:00", "2025-06-30T12:00:00Z", True),
        ("2025-07-01", "2025-06-30T12:00:00Z", True),
        ("", "2025-06-30", False),
    ],
)
def test_runs_in_the_wrong_order_are_told(run, first, second, told):
    page = changes_page(replace(run, created=first), replace(again(run, 1), created=second), ("a", "b"))
    assert ('called "before" is the later one' in " ".join(page.headline.lines)) == told


def test_one_run_compared_with_itself_is_told(run):
    assert "Both files hold the same run" in changes_page(run, run, ("a", "b")).headline.lines[0]
    assert "same run" not in changes_page(run, again(run, 1), ("a", "b")).headline.lines[0]


def test_a_case_that_only_one_run_has_is_one_line(run):
    gone = [c for c in run.cells if c.case != "lstm" and (c.case, c.mode) != ("resnet18", "inference")]
    found = changes(run, replace(run, cells=gone, parity=[p for p in run.parity if p.case != "lstm"]))
    rows = sum(c.case == "lstm" for c in run.cells)
    modes = sum((c.case, c.mode) == ("resnet18", "inference") for c in run.cells)
    assert found.one_sided == [
        f"lstm, {rows} rows: only before",
        f"resnet18, inference (cpu, float32), {modes} rows: only before",
    ]
    assert (
        changes(replace(run, cells=gone), run).one_sided[0]
        == f"lstm, inference (cpu, float32), {rows // 2} rows: only after"
    )


def test_the_command_tells_what_changed(run, tmp_path):
    key = ("lstm", "inference", "torch.eager")
    for name, results in (("a", run), ("b", again(run, 1, slower=key, factor=2))):
        results.save(tmp_path / f"{name}.json")

    def report(*arguments):
        command = [sys.executable, "-m", "graphmode", "report", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)

    finished = report("a.json", "b.json", "-o", "changed")
    assert finished.returncode == 0, finished.stderr
    assert "1 row got slower." in finished.stdout
    assert "torch.eager" in (tmp_path / "changed" / "changes.md").read_text()
    assert report("a.json", "b.json").stdout == finished.stdout.replace("wrote changed/changes.md\n", "")
    refused = report("a.json", "b.json", "a.json")
    assert refused.returncode == 2
    assert "3 results files came" in refused.stderr


def test_a_batch_size_is_compared_with_itself(run):
    swept = [replace(c, batch=batch) for c in run.cells for batch in (1, 64) if c.case == "resnet18"]
    before = replace(run, cells=[*run.cells, *swept])
    key = ("resnet18", "inference", "torch.compile", 64)
    cells = [
        replace(c, samples_s=[s * 1.3 for s in c.samples_s], median_s=c.median_s * 1.3)
        if (c.case, c.mode, c.row, c.batch) == key
        else c
        for c in before.cells
    ]
    found = changes(before, replace(before, cells=cells))
    assert [c.after.batch for c in found.moved] == [64]
    assert len(found.times) == len(changes(run, run).times) + 2 * sum(
        c.case == "resnet18" and c.median_s is not None for c in run.cells
    )
    moved = replace(before, cells=[c for c in before.cells if c.batch != 64])
    assert all("batch 64" in line for line in changes(before, moved).one_sided)
