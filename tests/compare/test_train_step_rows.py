"""Rows that train: each makes the judge's steps, goes on from where it was, and starts again; and `jax.scan`."""

import copy
import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, Plan, bench
from graphmode.compare.case import TRAIN_STEPS
from graphmode.compare.jax_side import PortSide
from graphmode.compare.parity.examination import Examination
from graphmode.compare.speed import scan_row
from graphmode.compare.speed.bench import Budget
from graphmode.compare.speed.rows import all_rows
from graphmode.compare.speed.torch_training import OptimizerState
from graphmode.compare.torch_side import TorchSide, train_step

from graphmode import nn

ROWS = {row.name: row for row in all_rows()}
TRAINED = [
    name
    for name, row in ROWS.items()
    if not row.needs_cuda and name not in ("torch.aoti", "onnxruntime", "torch.compile")
]


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, bias=False)
        self.bn = torch.nn.BatchNorm2d(8)
        self.fc = torch.nn.Linear(8, 16)

    def forward(self, x):
        return self.fc(torch.tanh(self.bn(self.conv(x))).mean((2, 3)))


class Port(nnx.Module):
    def __init__(self, rngs):
        self.conv = nn.Conv2d(3, 8, 3, bias=False, data_format="NCHW", rngs=rngs)
        self.bn = nn.BatchNorm2d(8, data_format="NCHW")
        self.fc = nn.Linear(8, 16, rngs=rngs)

    def __call__(self, x):
        return self.fc(jnp.tanh(self.bn(self.conv(x))).mean((2, 3)))


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


CASE = Case(
    name="small_conv",
    summary="",
    reference=Reference,
    model=Port,
    inputs=lambda rng: (rng.standard_normal((4, 3, 6, 6)),),
    optimizer=(momentum, optax.sgd(0.01, momentum=0.9)),
    modes=("inference", "forward_backward", "train_step"),
)


@pytest.fixture(scope="module")
def exam():
    return Examination(CASE, seed=0, draws=2)


def questions(exam, mode):
    return [i for i, truth in enumerate(exam.truths) if truth.question.mode == mode]


def side_of(row, exam):
    if row.framework == "torch":
        return TorchSide(exam.judge.references[exam.judge.name], exam.case, dtype="float32", device="cpu")
    return PortSide(exam.case, "default", exam.judge.state_dict, dtype="float32", device="cpu", seed=0)


def build(row, exam, mode="train_step"):
    """The step, and what makes a batch of one of the exam's questions for it."""
    side = side_of(row, exam)

    def place(index):
        question = exam.truths[index].question
        return side.place(question.inputs, mode, question.cotangents)

    step = row.build(side, mode, place(questions(exam, mode)[0]))
    return side, step, lambda index: row.pack(place(index))


def answer(row, step, batch):
    step.reset()
    for _ in range(row.judged_calls):
        result = step(batch)
    return copy.deepcopy(step.observe(result))  # on a CPU it may look into what the next step overwrites


def check_answers(row, exam, step, batch_of):
    rows = questions(exam, "train_step")
    answers = {i: answer(row, step, batch_of(i)) for i in rows}
    usual = [answers.get(i, truth.torch) for i, truth in enumerate(exam.truths)]
    seen = [(kind, name) for kind, name, _ in answers[rows[0]].tensors()]
    for key in seen:
        ratio, precise, why = exam.precision.verdict("train_step", key, rows, usual)
        assert precise, (key, ratio, why)
        for i in rows:
            theirs, ours = exam.truths[i].reference.get(key), answers[i].get(key)
            np.testing.assert_allclose(ours, theirs, atol=1e-4 * max(1e-3, np.abs(theirs).max()), err_msg=str(key))
    return {kind for kind, _ in seen}


@pytest.mark.parametrize("name", TRAINED)
def test_a_row_makes_the_judges_steps_and_starts_again(name, exam):
    row = ROWS[name]
    _, step, batch_of = build(row, exam)
    kinds = check_answers(row, exam, step, batch_of)
    assert kinds == ({"output"} if name == "jax.scan" else {"output", "parameter", "buffer"})
    first = answer(row, step, batch_of(questions(exam, "train_step")[0]))
    again = answer(row, step, batch_of(questions(exam, "train_step")[0]))
    for kind, key, array in first.tensors():
        np.testing.assert_array_equal(array, again.get((kind, key)), err_msg=f"{kind} {key}")


@pytest.mark.slow
def test_compile_makes_the_judges_steps(exam):
    row = ROWS["torch.compile"]
    _, step, batch_of = build(row, exam)
    assert check_answers(row, exam, step, batch_of) == {"output", "parameter", "buffer"}


@pytest.mark.parametrize("name", TRAINED)
def test_a_step_goes_on_from_the_one_before(name, exam):
    row = ROWS[name]
    _, step, batch_of = build(row, exam)
    batch = batch_of(questions(exam, "train_step")[0])
    step.reset()
    outputs = [step.observe(step(batch)).outputs["output"] for _ in range(3)]
    assert not np.array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[1], outputs[2])


@pytest.mark.parametrize(
    "make",
    [
        momentum,
        lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, dampening=0.5),
        lambda parameters: torch.optim.NAdam(parameters, lr=0.01),
        lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    ],
)
def test_an_optimizer_goes_back_to_its_first_state_in_the_same_tensors(make):
    """What captured and compiled steps rest on: here the optimizer itself stands for them."""
    case = Case(**{**CASE.__dict__, "optimizer": (make, optax.sgd(0.01))})
    side = TorchSide(Reference(), case, dtype="float32", device="cpu")
    module = side.set_mode("train_step")
    cotangents = {"output": np.ones((4, 16), np.float32)}
    batch = side.place((np.random.default_rng(0).standard_normal((4, 3, 6, 6)),), "train_step", cotangents)
    wanted = side.run((batch.args[0].numpy(),), "train_step", cotangents)
    optimizer = side.new_optimizer()
    state = OptimizerState(side, optimizer)
    for _ in range(2):
        train_step(module, optimizer, batch, None)
    held = {id(v) for values in optimizer.state.values() for v in values.values() if isinstance(v, torch.Tensor)}
    for _ in range(2):
        state.reset()
        outputs = state.first_step(module, batch)
        assert not state.is_first
        for _ in range(TRAIN_STEPS - 1):
            outputs = train_step(module, optimizer, batch, None)
        found = side.observe_steps(outputs)
        for kind, name, array in wanted.tensors():
            np.testing.assert_array_equal(found.get((kind, name)), array)
    assert held == {id(v) for vs in optimizer.state.values() for v in vs.values() if isinstance(v, torch.Tensor)}


class StandIn:
    """For streams and graphs of CUDA, where there is none: what is captured runs, and a replay runs it again."""

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait_stream(self, other):
        pass


def test_a_captured_step_copies_its_inputs_and_starts_again(monkeypatch, exam):
    for name in ("Stream", "current_stream", "stream", "CUDAGraph", "graph"):
        monkeypatch.setattr(torch.cuda, name, StandIn)
    row = ROWS["torch.cudagraph"]
    side, step, batch_of = build(row, exam)

    held = inspect.getclosurevars(step._replay).nonlocals
    argument, cotangent = held["static"]

    def replay():
        sample = dataclasses.replace(batch_of(0), args=(argument,), cotangents={"output": cotangent})
        held["result"].data.copy_(train_step(side.module, step._optimizer, sample, None))

    held["graph"].replay = replay
    assert check_answers(row, exam, step, batch_of) == {"output", "parameter", "buffer"}


@pytest.mark.parametrize("mode", ["inference", "forward_backward"])
def test_scan_gives_what_one_step_gives(mode, exam):
    row = ROWS["jax.scan"]
    side, step, batch_of = build(row, exam, mode)
    for i in questions(exam, mode):
        batch, truth = batch_of(i), exam.truths[i]
        result = row.unpack(step(batch))
        outputs, gradients, state = (result, None, None) if mode == "inference" else result
        found = side.observe(outputs, batch, gradients, state)
        for kind, name, array in truth.torch.tensors():
            if kind != "buffer":  # which have moved ten times
                np.testing.assert_allclose(found.get((kind, name)), array, rtol=1e-3, atol=1e-4, err_msg=name)


def test_scan_carries_running_statistics_through_a_launch(exam):
    row = ROWS["jax.scan"]
    side, step, batch_of = build(row, exam, "forward_backward")
    outputs, gradients, state = row.unpack(step(batch_of(questions(exam, "forward_backward")[0])))
    buffers = side.observe(outputs, batch_of(questions(exam, "forward_backward")[0]), gradients, state).buffers
    assert buffers["bn.num_batches_tracked"] == scan_row.K


def test_scan_computes_every_step_of_a_launch(exam):
    """Each step reads inputs of its own: another input in one of them changes that output alone."""
    side = side_of(ROWS["jax.scan"], exam)
    program = side.program("inference")
    inputs = jnp.ones((scan_row.K, 4, 3, 6, 6)).at[3].add(1.0)
    outputs = jax.jit(scan_row._inference(program))(program.params, program.rest, (inputs,), {})
    changed = [not np.allclose(outputs[i], outputs[0]) for i in range(scan_row.K)]
    assert changed == [i == 3 for i in range(scan_row.K)]


@pytest.fixture(scope="module")
def results():
    rows = ("torch.eager", "torch.trace", "jax.jit", "jax.scan")
    return bench(CASE, Plan(floors=False, rows=rows, budget=Budget(prepare_s=60, time_s=0.02), device="cpu"))


@pytest.mark.slow
def test_train_step_is_timed_beside_the_other_modes(results):
    assert results.passed, list(results.failures())
    cells = {(cell.row, cell.mode): cell for cell in results.cells}
    assert {mode for _, mode in cells} == set(CASE.modes)
    for cell in cells.values():
        assert cell.status == "ok", cell.reason
        assert cell.error_ratio is not None
        assert cell.steps_per_call == (scan_row.K if cell.row == "jax.scan" else 1)


def test_a_wrong_optimizer_gets_no_number():
    wrong = Case(**{**CASE.__dict__, "optimizer": (momentum, optax.sgd(0.01)), "modes": ("train_step",)})
    results = bench(
        wrong, Plan(floors=False, rows=("jax.jit",), budget=Budget(prepare_s=60, time_s=0.02), device="cpu")
    )
    (cell,) = results.cells
    assert (cell.status, cell.median_s) == ("wrong", None)
    assert not results.passed


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.needs_cuda])
def test_cuda_rows_train_on_a_gpu(name):
    results = bench(
        Case(**{**CASE.__dict__, "modes": ("train_step",)}),
        Plan(floors=False, rows=("torch.eager", name), device="gpu"),
    )
    cells = {cell.row: cell for cell in results.cells}
    assert cells[name].status == "ok", cells[name].reason
