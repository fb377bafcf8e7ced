"""The speed side: timing, the gate before it, and what each cell says."""

import contextlib
import errno
import os
import signal
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, Plan, bench, errors
from graphmode.compare.comparison import run
from graphmode.compare.errors import describe, describe_briefly
from graphmode.compare.interrupt import remembered
from graphmode.compare.plan import Listener
from graphmode.compare.report import ResultsError
from graphmode.compare.report import results as report_results
from graphmode.compare.speed import bench as speed_bench
from graphmode.compare.speed.bench import Budget
from graphmode.compare.speed.gate import Gate, Wrong
from graphmode.compare.speed.rows import ROW_NAMES, RowError, all_rows, selected

BUDGET = Budget(prepare_s=60, time_s=0.02)
SLOW_TO_BUILD = ("torch.compile", "torch.aoti", "onnxruntime")
CHEAP = tuple(name for name in ROW_NAMES if name not in SLOW_TO_BUILD)


class Scale(torch.nn.Module):
    def forward(self, x):
        return x * 2 if bool(x.sum() > 0) else x + 2


class ScalePort(nnx.Module):
    def __init__(self, rngs):
        pass

    def __call__(self, x):
        return jnp.where(x.sum() > 0, x * 2, x + 2)


def scale_case(**fields) -> Case:
    settings = {
        "name": "scale",
        "summary": "",
        "reference": Scale,
        "model": ScalePort,
        "inputs": lambda rng: (rng.standard_normal(256),),
        "edge_inputs": {
            "positive": lambda rng: (np.abs(rng.standard_normal(256)),),
            "negative": lambda rng: (-np.abs(rng.standard_normal(256)),),
        },
    }
    return Case(**{**settings, **fields})


class DoubleAndParts(NamedTuple):
    double: Any
    parts: tuple


class TupleReference(torch.nn.Module):
    def forward(self, x):
        return DoubleAndParts(x * 2, (x + 1, x - 1))


class TuplePort(ScalePort):
    def __call__(self, x):
        return DoubleAndParts(x * 2, (x + 1, x - 1))


@pytest.fixture(scope="module")
def results():
    return bench(scale_case(), Plan(floors=False, rows=CHEAP, budget=BUDGET, device="cpu"))


def by_row(results, mode="inference"):
    return {cell.row: cell for cell in results.cells if cell.mode == mode}


def test_a_trace_is_judged_by_the_names_of_what_the_module_gives():
    case = scale_case(reference=TupleReference, model=TuplePort, edge_inputs={})
    results = bench(case, Plan(floors=False, rows=("torch.eager", "torch.trace"), budget=BUDGET, device="cpu"))
    for mode in ("inference", "forward_backward"):
        assert {cell.status for cell in by_row(results, mode).values()} == {"ok"}


class Telling(torch.nn.Module):
    def forward(self, x):
        print("largest", x.max().item())
        print("a warning", file=sys.stderr)
        return x * 2


class TellingPort(ScalePort):
    def __call__(self, x):
        jax.debug.print("largest {}", x.max())
        return x * 2


def test_a_row_that_leaves_out_what_the_reference_prints_is_told():
    case = scale_case(reference=Telling, model=TellingPort, edge_inputs={})
    rows = ("torch.eager", "torch.trace", "jax.jit")
    results = bench(case, Plan(floors=False, rows=rows, modes=("inference",), budget=BUDGET, device="cpu"))
    cells = by_row(results)
    assert {row: (cell.status, cell.unprinted) for row, cell in cells.items()} == {
        "torch.eager": ("ok", 0),
        "torch.trace": ("ok", 1),
        "jax.jit": ("ok", 0),
    }
    assert cells["torch.trace"].reason == "it leaves out 1 line that the reference prints in a call"


@pytest.mark.slow
def test_every_row_that_was_asked_for_has_a_cell_in_each_mode(results):
    wanted = set(CHEAP)
    for mode in ("inference", "forward_backward"):
        assert by_row(results, mode).keys() == wanted


def test_a_branch_makes_trace_wrong_and_only_trace(results):
    cells = by_row(results)
    assert cells["torch.trace"].status == "wrong"
    assert "output" in cells["torch.trace"].reason
    assert {row for row, c in cells.items() if c.status == "wrong"} == {"torch.trace"}
    assert not results.passed


def test_no_speed_without_a_passed_check(results):
    for cell in results.cells:
        timed = cell.median_s is not None or bool(cell.samples_s)
        assert timed == (cell.status == "ok")
        assert cell.reason or cell.status == "ok"
        if timed:
            assert 0 < cell.median_s <= cell.p95_s <= max(cell.samples_s)
            assert cell.compile_s > 0
            assert len(cell.samples_s) >= 5 or (cell.noisy and len(cell.samples_s) >= 3)


def test_cuda_rows_and_channels_last_say_why_they_are_not_there(results):
    cells = by_row(results)
    assert (cells["torch.cudagraph"].status, "CUDA" in cells["torch.cudagraph"].reason) == ("unavailable", True)
    assert cells["torch.channels_last"].status == "unavailable"
    assert "rank 4" in cells["torch.channels_last"].reason


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ((10.189145137967795, False, ""), "output y: error ratio 10.2, at most 5 was wanted"),
        ((None, False, "3 of 10 elements differ"), "output y: 3 of 10 elements differ"),
        ((0.9, False, "3 of 10 elements differ"), "output y: 3 of 10 elements differ"),
    ],
)
def test_a_row_that_is_wrong_is_told_by_what_tells_against_it(monkeypatch, verdict, told):
    monkeypatch.setattr(Gate, "_gross_fault", lambda *_: "")
    answer = SimpleNamespace(find=lambda key: 0, tensors=lambda: [("output", "y", 0)])
    truth = SimpleNamespace(torch=answer, reference=answer)
    exam: Any = SimpleNamespace(truths=[truth], precision=SimpleNamespace(verdict=lambda *_: verdict))
    with pytest.raises(Wrong) as wrong:
        Gate(exam).judge("inference", [0], {0: answer})
    assert str(wrong.value) == told


def test_expected_rows_do_not_fail_a_run():
    case = scale_case(expected={"torch.trace": "records one branch"})
    results = bench(
        case, Plan(floors=False, rows=("torch.eager", "torch.trace", "jax.jit"), budget=BUDGET, device="cpu")
    )
    assert by_row(results)["torch.trace"].expected == "records one branch"
    assert results.passed


def test_a_port_that_is_wrong_gets_no_number():
    class Wrong(ScalePort):
        def __call__(self, x):
            return x * 2

    results = bench(
        scale_case(model=Wrong), Plan(floors=False, rows=("torch.eager", "jax.*"), budget=BUDGET, device="cpu")
    )
    cells = by_row(results)
    ports = [c for c in cells.values() if c.framework == "jax" and c.status != "unavailable"]
    assert {(c.status, c.equal) for c in ports} == {("wrong", False)}
    assert cells["torch.eager"].status == "ok"
    assert not results.passed


def test_a_row_that_cannot_run_says_why():
    class Unscriptable(torch.nn.Module):
        def forward(self, x):
            return x * {"two": lambda: 2}["two"]()

    class Port(ScalePort):
        def __call__(self, x):
            return x * 2

    case = scale_case(reference=Unscriptable, model=Port)
    cells = by_row(bench(case, Plan(floors=False, rows=("torch.eager", "torch.script"), budget=BUDGET, device="cpu")))
    assert cells["torch.script"].status == "unsupported"
    assert "Error" in cells["torch.script"].reason
    assert cells["torch.eager"].status == "ok"


def test_a_row_out_of_its_budget_is_a_timeout():
    class Slow(torch.nn.Module):
        def forward(self, x):
            if torch.jit.is_tracing():
                time.sleep(5)
            return x * 2

    class Port(ScalePort):
        def __call__(self, x):
            return x * 2

    plan = Plan(
        floors=False, rows=("torch.eager", "torch.trace"), budget=Budget(prepare_s=0.5, time_s=0.02), device="cpu"
    )
    start = time.perf_counter()
    cells = by_row(bench(scale_case(reference=Slow, model=Port, modes=("inference",)), plan))
    assert cells["torch.trace"].status == "timeout"
    assert "0.5 s" in cells["torch.trace"].reason
    assert time.perf_counter() - start < 60


@pytest.mark.slow
def test_compile_runs_and_is_gated():
    case = scale_case(modes=("inference",))
    cells = by_row(bench(case, Plan(floors=False, rows=("torch.eager", "torch.compile"), budget=BUDGET, device="cpu")))
    assert cells["torch.compile"].status == "ok", cells["torch.compile"].reason


class Named(torch.nn.Module):
    """Inputs by name, and nested outputs with an integer among them."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 16)

    def forward(self, *, left, right):
        h = torch.relu(self.fc(left)) + right
        return {"hidden": (h, h.argmax(-1)), "sum": h.sum()}


class NamedPort(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 16, rngs=rngs)

    def __call__(self, *, left, right):
        h = nnx.relu(self.fc(left)) + right
        return {"hidden": (h, h.argmax(-1)), "sum": h.sum()}


def named(rng):
    return {"left": rng.standard_normal((20, 6)), "right": rng.standard_normal((20, 16))}


@pytest.mark.parametrize("row", ["onnxruntime", pytest.param("torch.aoti", marks=pytest.mark.slow)])
def test_exports_run_in_inference_with_names_and_nested_outputs(row):
    case = Case(name="named", summary="", reference=Named, model=NamedPort, inputs=named)
    patient = replace(BUDGET, prepare_s=600)  # two C++ compilers on a loaded machine
    results = bench(case, Plan(floors=False, rows=("torch.eager", row), budget=patient, device="cpu"))
    cell, backward = by_row(results)[row], by_row(results, "forward_backward")[row]
    assert cell.status == "ok", cell.reason
    assert cell.error_ratio < 5
    assert (backward.status, backward.median_s) == ("unavailable", None)
    assert "no backward pass" in backward.reason


@pytest.mark.slow
def test_a_costly_row_is_left_out_on_a_cpu_unless_it_is_named():
    cell = by_row(
        bench(scale_case(modes=("inference",)), Plan(floors=False, budget=Budget(prepare_s=0.5, time_s=0.02)))
    )["torch.aoti"]
    assert cell.status == "unavailable"
    assert "--row torch.aoti" in cell.reason


def test_exports_of_a_branch_are_unsupported_with_the_reason():
    cell = by_row(bench(scale_case(modes=("inference",)), Plan(floors=False, rows=("onnxruntime",), budget=BUDGET)))[
        "onnxruntime"
    ]
    assert cell.status == "unsupported"
    assert "data-dependent" in cell.reason


def test_without_onnx_runtime_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    plan = Plan(floors=False, rows=("onnxruntime",), budget=BUDGET, isolate=False)
    cell = by_row(bench(scale_case(modes=("inference",)), plan))["onnxruntime"]
    assert cell.status == "unavailable"
    assert "pip install 'graphmode[onnx]'" in cell.reason


def test_row_names_are_those_of_the_rows():
    assert tuple(row.name for row in all_rows()) == ROW_NAMES
    assert selected(()) == frozenset(ROW_NAMES)
    assert selected(("jax.*",)) == {name for name in ROW_NAMES if name.startswith("jax.")}
    with pytest.raises(RowError, match=r"no row matches 'jax.pmap'; the rows are torch.eager"):
        selected(("jax.pmap",))


def test_long_errors_say_how_much_was_left_out():
    text = describe_briefly(RuntimeError("\x1b[96m" + "x" * 1000 + "\x1b[0m"))
    assert text.startswith("RuntimeError: xxx")
    assert "414 more characters" in text


def test_what_a_callback_raises_is_told_without_what_ran_the_graph():
    text = (
        "INTERNAL: CpuCallback error calling callback: Traceback (most recent call last):\n"
        '  File "graphmode", line 6, in <module>\n  File "checks.py", line 89, in look\nCheckError: got index -1'
    )
    assert describe(jax.errors.JaxRuntimeError(text)) == "CheckError: got index -1, raised as the graph ran"


def test_errors_name_files_from_where_python_finds_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine, torch_file, ours = tmp_path / "models" / "mine.py", torch.nn.modules.linear.__file__, errors.__file__
    text = describe(ValueError(f"File {mine}, line 3; File {torch_file}; File {ours}"))
    assert text == "ValueError: File models/mine.py, line 3; File torch/nn/modules/linear.py; File compare/errors.py"


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_that_was_swallowed_ends_the_run_at_the_next_step():
    steps = []

    def swallow(text):
        steps.append(text)
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run([scale_case()], Plan(floors=False, rows=("torch.eager",)), listener=Listener(on_step=swallow))
    assert len(steps) == 1
    assert signal.getsignal(signal.SIGINT) is handler


BROKEN_OFF = {
    "while every row is timed for the first time": (0, "before every row had been timed, and nothing of it is kept", 0),
    "in another process": (1, "after every row had been timed in a process", 2),
}


@pytest.mark.parametrize("when", BROKEN_OFF)
def test_ctrl_c_keeps_what_was_timed_to_its_end(when, tmp_path, monkeypatch):
    before, words, kept = BROKEN_OFF[when]
    whole, calls = speed_bench.interleave, []

    def broken_off(competitors, **how):
        calls.append(len(competitors))
        if len(calls) <= before:
            return whole(competitors, **how)
        whole(competitors, **{**how, "repeats": 2})
        raise KeyboardInterrupt

    monkeypatch.setattr(speed_bench, "interleave", broken_off)
    plan = Plan(
        floors=False, rows=("torch.eager", "jax.jit"), modes=("inference",), budget=BUDGET, processes=2, device="cpu"
    )
    with pytest.raises(KeyboardInterrupt):
        run([scale_case()], plan, save_to=tmp_path / "results.json")
    results = report_results.Results.load(tmp_path / "results.json")
    assert len(calls) == before + 1
    assert not results.complete
    assert [cell.status for cell in results.cells] == ["ok"] * kept
    assert all(len(cell.samples_s) >= 5 and cell.process_of == [] for cell in results.cells)
    (note,) = (note for note in results.cases[0].notes if "interrupted" in note)
    assert note.startswith(f"inference: interrupted {words}")


def test_a_full_disk_ends_the_run_and_is_no_fault_of_the_case(tmp_path, monkeypatch, caplog):
    saved = []

    def write(path, payload):
        if len(saved) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        saved.append(payload)

    monkeypatch.setattr(report_results, "write_atomically", write)
    told: list[Any] = []
    with pytest.raises(ResultsError, match=r"cannot write the results file .*results.json: No space left on device"):
        run(
            [scale_case(), scale_case(name="next")],
            Plan(floors=False, rows=("torch.eager",)),
            listener=Listener(on_problem=told.append),
            save_to=tmp_path / "results.json",
        )
    assert told == []
    assert caplog.records == []


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_inside_a_finaliser_comes_after_it():
    class Slow:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def drop_and_wait():
        slow = Slow()
        del slow
        time.sleep(20)

    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt), remembered():
        drop_and_wait()
    assert time.perf_counter() - start < 10


@pytest.mark.gpu
def test_cuda_rows_run_on_a_gpu():
    case = scale_case(reference=torch.nn.ReLU, model=ReluPort)
    cells = by_row(bench(case, Plan(floors=False, rows=("torch.eager", "torch.cudagraph", "jax.jit"), device="gpu")))
    assert cells["torch.cudagraph"].status == "ok", cells["torch.cudagraph"].reason


class ReluPort(ScalePort):
    def __call__(self, x):
        return jax.nn.relu(x)
