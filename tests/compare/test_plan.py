"""What a run can be told: dtypes, modes, a sweep over batch sizes, processes."""

from __future__ import annotations

import dataclasses

import optax
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, Plan, bench
from graphmode.compare.dtypes import DtypeError
from graphmode.compare.speed import pace
from graphmode.compare.speed.bench import Budget
from graphmode.compare.sweep import narrowed, resized
from typer.testing import CliRunner

from graphmode.cli import app

BUDGET = Budget(prepare_s=60, time_s=0.02)
ROWS = ("torch.eager", "torch.trace", "jax.jit", "jax.graphed")


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 16)

    def forward(self, x):
        return torch.tanh(self.fc(x))


class Port(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 16, rngs=rngs)

    def __call__(self, x):
        return nnx.tanh(self.fc(x))


def sized(rng, batch):
    return (rng.standard_normal((batch, 6)),)


def make(**fields) -> Case:
    settings = {
        "name": "tanh",
        "summary": "",
        "reference": Reference,
        "model": Port,
        "inputs": lambda rng: sized(rng, 8),
        "sweep": sized,
        "modes": ("inference", "forward_backward"),
        "optimizer": (lambda parameters: torch.optim.SGD(parameters, lr=0.01), optax.sgd(0.01)),
    }
    return Case(**{**settings, **fields})


def run(case=None, **fields):
    settings = {"rows": ROWS, "budget": BUDGET, "device": "cpu", "processes": 1, "floors": False}
    return bench(case or make(), Plan(**{**settings, **fields}))


def test_each_dtype_has_verdicts_and_cells_of_its_own():
    results = run(dtypes=("float32", "bfloat16"), modes=("inference",), floors=True)
    assert [(p.dtype, p.passed) for p in results.parity] == [("float32", True), ("bfloat16", True)]
    assert {(c.dtype, c.status) for c in results.cells} == {("float32", "ok"), ("bfloat16", "ok")}
    assert {w.dtype for w in results.work} == {"float32", "bfloat16"}
    assert results.floors.flops_per_s.keys() == {"float32", "bfloat16"}
    assert len(results.cases) == 1


def test_a_port_that_casts_is_caught_in_the_dtype_in_which_it_does():
    class Casting(Port):
        def __call__(self, x):
            low = x.astype("bfloat16") if x.dtype == "float32" else x
            return nnx.tanh(self.fc(low.astype(x.dtype)))

    results = run(make(model=Casting), dtypes=("bfloat16", "float32"), modes=("inference",))
    assert [(p.dtype, p.equal, p.precise) for p in results.parity] == [
        ("bfloat16", True, True),
        ("float32", True, False),
    ]
    statuses = {(c.dtype, c.status) for c in results.cells if c.framework == "jax"}
    assert statuses == {("bfloat16", "ok"), ("float32", "wrong")}


def test_tf32_needs_a_gpu_and_no_dtype_is_guessed():
    with pytest.raises(DtypeError, match="tf32 needs a GPU"):
        run(dtypes=("tf32",))
    with pytest.raises(DtypeError, match="dtype is 'half'; choose from float32, tf32, bfloat16"):
        run(dtypes=("half",))


def test_a_sweep_times_the_rows_that_matter_at_each_size():
    results = run(sweep=(1, 32), modes=("inference",))
    own = [c for c in results.cells if c.batch is None]
    assert {c.row for c in own} == set(ROWS)
    for size in (1, 32):
        cells = [c for c in results.cells if c.batch == size]
        assert {c.status for c in cells} == {"ok"}
        assert "torch.eager" in {c.row for c in cells}
        assert 2 <= len(cells) <= 3
        assert {c.framework for c in cells} == {"torch", "jax"}
    assert [w.batch for w in results.work] == [None, 1, 32]
    flops = {w.batch: w.flops for w in results.work}
    assert flops[32] == 32 * flops[1] == 4 * flops[None]


def test_a_size_that_does_not_exist_and_a_case_without_sweep():
    with pytest.raises(CaseError, match="has no sweep"):
        resized(make(sweep=None), 4)
    with pytest.raises(CaseError, match="batch size 0"):
        resized(make(), 0)
    with pytest.raises(CaseError, match="sweep is int"):
        make(sweep=3)
    results = run(make(sweep=None), sweep=(4,), modes=("inference",))
    assert {c.batch for c in results.cells} == {None}
    assert results.cases[0].notes == ["no batch sweep, since the case has no `sweep`"]


def test_a_sweep_that_fails_is_named_with_its_size():
    with pytest.raises(CaseError, match="sweep fails at the batch size 4 with ZeroDivisionError"):
        resized(make(sweep=lambda rng, batch: 1 // 0), 4).inputs(None)


def test_a_mode_that_the_case_has_not_is_said():
    results = run(make(optimizer=None, modes=("inference",)), modes=("inference", "train_step"))
    assert {c.mode for c in results.cells} == {"inference"}
    (note,) = results.cases[0].notes
    assert note == "not timed in train_step, which is none of the case's modes, since it has no `optimizer`"


def test_a_budget_that_was_asked_for_is_longer_than_a_cases_patience():
    patience = make(patience={"torch.trace": 1.0}).patience_with("torch.trace", "default", "inference")
    assert Plan().cell_budget.with_patience(patience) == 1.0
    assert Plan(prepare_s=60).cell_budget.with_patience(patience) == 60.0
    assert Plan(prepare_s=60).cell_budget.with_patience(None) == 60.0
    assert Plan(prepare_s=0.5).cell_budget.with_patience(patience) == 0.5


def test_a_slow_machine_has_longer_for_all_but_what_a_user_named(monkeypatch):
    monkeypatch.setattr("graphmode.compare.comparison.slowness", lambda: 3.0)
    case = make(patience={"jax.eager": 0.001}, modes=("inference",))
    results = run(case, rows=("jax.eager",), budget=None)
    (cell,) = results.cells
    assert cell.status == "timeout"
    assert "0.003 s" in cell.reason
    assert results.environment.moment["time to prepare a row"] == "3.0 times the usual"
    (cell,) = run(case, rows=("jax.eager",), budget=None, prepare_s=60.0).cells
    assert cell.status == "ok"


def test_how_slow_a_machine_is_has_bounds(monkeypatch):
    monkeypatch.setattr(pace, "USUAL_S", 1e9)
    assert pace.slowness.__wrapped__() == 1.0
    monkeypatch.setattr(pace, "USUAL_S", 1e-9)
    assert pace.slowness.__wrapped__() == pace.MOST


@pytest.mark.parametrize("quick", [True, False])
def test_a_case_may_ask_for_a_longer_budget(quick):
    patience = make(patience={"jax.jit": 90.0}).patience_with("jax.jit", "default", "inference")
    assert Plan(quick=quick).cell_budget.with_patience(patience) == 90.0
    assert Plan(quick=quick, prepare_s=5).cell_budget.with_patience(patience) == 5


def test_what_is_said_of_rows_may_be_a_pattern_and_a_name_goes_first():
    case = make(
        patience={"jax.*": 90.0, "jax.eager": 5.0, "forward_backward/jax.*": 60.0},
        expected={"torch.compile*": "unrolls", "default/torch.compile": "the variant's own"},
    )
    rows = ("jax.jit", "jax.eager", "torch.eager")
    assert [case.patience_with(row, "default", "inference") for row in rows] == [90.0, 5.0, None]
    assert case.patience_with("jax.eager", "default", "forward_backward") == 60.0
    rows = ("torch.compile", "torch.compile.cudagraph", "torch.script")
    assert [case.expectation(row, "default") for row in rows] == ["the variant's own", "unrolls", None]
    assert narrowed(case, [], ["default"]).patience == case.patience


def test_a_narrowed_case_keeps_the_judge_and_what_is_said_of_what_is_left():
    case = make(
        reference={"a": Reference, "b": Reference, "c": Reference},
        model={"d": Port, "e": Port},
        expected={"b/torch.trace": "x", "torch.script": "y", "e/jax.jit": "z"},
    )
    small = narrowed(case, ["c"], ["d"])
    assert list(small.references) == ["a", "c"]
    assert list(small.models) == ["d"]
    assert small.expected == {"torch.script": "y"}


@pytest.mark.slow
def test_only_the_modes_that_are_named_are_timed_and_training_comes_when_it_is():
    results = run(modes=("train_step",))
    assert {c.mode for c in results.cells} == {"train_step"}
    assert {t.mode for p in results.parity for t in p.tensors} == {"inference", "forward_backward", "train_step"}
    assert {c.mode for c in run().cells} == {"inference", "forward_backward"}
    with pytest.raises(CaseError, match="--mode is 'training'"):
        run(modes=("training",))


def test_a_case_without_optimizer_has_no_training_step_however_it_is_called():
    assert dataclasses.replace(make(), optimizer=None).training(("train_step",)).modes == (
        "inference",
        "forward_backward",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sweep", "1,x"), "--sweep is '1,x'"),
        (("--sweep", "0"), "--sweep is '0'"),
        (("--dtype", "float16"), "dtype is 'float16'"),
        (("--mode", "training"), "--mode is 'training'"),
    ],
)
def test_the_command_refuses_what_is_no_choice(arguments, message):
    finished = CliRunner().invoke(app, ["bench", "scale_add", "--device", "cpu", *arguments], env={"COLUMNS": "200"})
    assert finished.exit_code == 2, finished.output
    assert message in finished.stderr
    assert "Traceback" not in finished.stderr
