"""`fit`: what it runs, tells, resumes from and stops at."""

import json
import os
import pty
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import graphmode as gm
from graphmode.optim.lr_scheduler import ReduceLROnPlateau
from graphmode.training import (
    Checkpoints,
    EarlyStopping,
    Evaluation,
    JsonLines,
    Mean,
    NonfiniteError,
    TensorBoard,
    fit,
    from_arrays,
    read_ahead,
    stacked,
)
from graphmode.training.data import mapped

ROWS, FEATURES = 24, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, FEATURES)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0, 0.5], np.float32))[:, None]


class Net(nnx.Module):
    def __init__(self, rngs):
        self.inner = gm.nn.Linear(FEATURES, 4, rngs=rngs)
        self.norm = gm.nn.BatchNorm1d(4)
        self.drop = gm.nn.Dropout(0.2, rngs=rngs)
        self.outer = gm.nn.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.outer(self.drop(jnp.tanh(self.norm(self.inner(x)))))


def squared_error(model, batch):
    return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)


def make_step(loss=squared_error, lr=0.05, **options):
    return gm.train_step(Net(nnx.Rngs(0)), loss, gm.optim.adam(lr), **options)


def make_data(**options):
    return from_arrays({"x": X, "y": Y}, batch_size=8, seed=3, **options)


def evaluation(**options):
    return Evaluation([{"x": X, "y": Y}], lambda m, b: {"mse": jnp.mean((m(b["x"]) - b["y"]) ** 2)}, **options)


@pytest.mark.parametrize(
    ("options", "taken", "stopped"),
    [({"steps": 5}, 5, "steps"), ({"epochs": 2}, 6, "data"), ({}, 3, "data"), ({"steps": 3, "epochs": 9}, 3, "steps")],
    ids=str,
)
def test_runs_so_many_steps(options, taken, stopped):
    run = fit(make_step(), make_data(), progress=False, **options)
    assert (int(run.state.step), run.history["loss"].shape, run.stopped) == (taken, (taken,), stopped)


def test_learns_and_history_holds_each_step():
    step = make_step()
    run = fit(step, make_data(), steps=60, log_every=7, progress=False)
    assert run.history["loss"][-5:].mean() < 0.5 * run.history["loss"][:5].mean()
    state, by_hand, batches = step.init(), [], iter(make_data())
    for _ in range(60):
        state, metrics = step(state, next(batches))
        by_hand.append(float(metrics["loss"]))
    np.testing.assert_array_equal(run.history["loss"], np.float32(by_hand))
    assert step.traces == 1


def test_several_steps_a_launch_are_the_same_run():
    one = fit(make_step(), make_data(), steps=12, progress=False)
    three = fit(make_step(steps_per_launch=3), make_data(), steps=12, log_every=5, progress=False)
    np.testing.assert_allclose(three.history["loss"], one.history["loss"], rtol=1e-5)


def test_batches_too_few_for_a_launch_are_left_out_aloud_at_the_end_of_the_data(caplog, tmp_path):
    def run(epochs):
        step = make_step(steps_per_launch=4)
        return fit(step, make_data(epochs=epochs), checkpoints=Checkpoints(tmp_path), progress=False)

    with pytest.raises(ValueError, match="a launch takes 4 steps, and the data end with 3 batches in all"):
        run(1)
    wanted = fit(make_step(), make_data(), steps=12, progress=False).history["loss"]
    first = run(3)
    assert (first.stopped, int(first.state.step)) == ("data", 8)
    np.testing.assert_allclose(first.history["loss"], wanted[:8], rtol=1e-5)
    assert "a launch takes 4 steps, and the data end with 1 batch more, left out after step 8" in caplog.text
    more = run(4)  # begins with what was left out
    np.testing.assert_allclose(more.history["loss"], wanted[8:], rtol=1e-5)


def test_evaluates_in_evaluation_mode_at_each_epoch_and_every_so_many_steps():
    run = fit(make_step(), make_data(), epochs=2, evaluation=evaluation(), progress=False)
    assert [step for step, _ in run.evaluations] == [3, 6]
    again = evaluation()
    step = make_step()
    state = step.init()
    assert again.run(step, state) == again.run(step, state)  # no mask of dropout is drawn
    run = fit(make_step(), make_data(), steps=8, evaluation=evaluation(every=3), progress=False)
    assert [step for step, _ in run.evaluations] == [3, 6]


def test_evaluation_counts_rows_and_means():
    step = make_step()
    batches = [{"x": X[:8], "y": Y[:8]}, {"x": X[8:], "y": Y[8:]}]

    def metrics(model, batch):
        chosen = batch["x"][:, 0] > 0
        return {"y": jnp.mean(batch["y"]), "chosen": Mean(jnp.sum(batch["y"][:, 0] * chosen), jnp.sum(chosen))}

    found = Evaluation(batches, metrics).run(step, step.init())
    assert found["y"] == pytest.approx(Y.mean(), rel=1e-5)
    assert found["chosen"] == pytest.approx(Y[X[:, 0] > 0].mean(), rel=1e-5)


@pytest.mark.parametrize(("dtype", "value"), [("float16", 300), ("bfloat16", 1.25), ("int8", 3), ("uint8", 200)])
def test_evaluation_counts_rows_of_narrow_metrics(dtype, value):
    step = make_step()
    found = Evaluation([{"x": np.ones((256, 1))}], lambda m, b: {"m": jnp.asarray(value, dtype)}).run(step, step.init())
    assert found["m"] == value


def test_the_mean_of_many_narrow_metrics_is_told(tmp_path):
    step = gm.train_step(
        gm.nn.Linear(1, 1, rngs=nnx.Rngs(0)),
        lambda model, x: (jnp.mean(model(x)), {"share": jnp.asarray(1.01, jnp.bfloat16)}),
        gm.optim.sgd(lr=0.1),
    )
    log = JsonLines(tmp_path / "run.jsonl")
    fit(step, [np.ones((1, 1), np.float32)] * 400, steps=400, log_every=400, loggers=[log], progress=False)
    (row,) = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert row["share"] == pytest.approx(1.01, rel=1e-2)


def test_early_stopping_ends_the_run():
    constant = Evaluation([{"x": X}], lambda model, batch: {"mse": jnp.mean(batch["x"])})
    run = fit(
        make_step(), make_data(), epochs=9, evaluation=constant, early_stopping=EarlyStopping("mse", patience=2),
        progress=False,
    )  # fmt: skip
    assert (run.stopped, [step for step, _ in run.evaluations]) == ("early", [3, 6, 9])


def test_a_run_that_ended_early_ends_at_once_when_called_again(tmp_path):
    step, constant = make_step(), Evaluation([{"x": X}], lambda model, batch: {"mse": jnp.mean(batch["x"])})

    def run(patience):
        found = fit(
            step, make_data(), epochs=9, evaluation=constant, early_stopping=EarlyStopping("mse", patience=patience),
            checkpoints=Checkpoints(tmp_path), progress=False,
        )  # fmt: skip
        return found.stopped, [number for number, _ in found.evaluations]

    assert run(patience=1) == ("early", [3, 6])
    assert run(patience=1) == ("early", [])
    assert run(patience=2) == ("early", [9])


def test_early_stopping_knows_what_is_better():
    largest = EarlyStopping("a", patience=2, mode="max", min_delta=0.1)
    assert [largest.is_over({"a": value}) for value in (1.0, 1.05, 1.2, float("nan"), 1.25)] == [False] * 4 + [True]
    with pytest.raises(ValueError, match="metric is 'a', and the evaluation has b"):
        largest.is_over({"b": 1.0})


def test_a_plateau_lowers_the_rate_without_another_compilation():
    constant = Evaluation([{"x": X}], lambda model, batch: {"mse": jnp.mean(batch["x"])})
    step = make_step(lr=0.05)
    plateau = ReduceLROnPlateau(0.05, patience=0, factor=0.5)
    run = fit(step, make_data(), epochs=3, evaluation=constant, plateau=(plateau, "mse"), progress=False)
    np.testing.assert_allclose(run.history["lr"], [0.05] * 6 + [0.025] * 3, rtol=1e-6)
    assert step.traces == 1


def grouped_step(**options):
    groups = [gm.optim.Group("bias", lr=0.5), gm.optim.Group("norm", lr=0.2)]
    return gm.train_step(Net(nnx.Rngs(0)), squared_error, gm.optim.sgd(lr=0.1, groups=groups), **options)


def test_a_plateau_has_the_rates_of_the_optimizers_groups_in_order():
    constant = Evaluation([{"x": X}], lambda model, batch: {"mse": jnp.mean(batch["x"])})
    options = {"evaluation": constant, "epochs": 2, "progress": False}
    plateau = ReduceLROnPlateau([0.1, 0.5, 0.2], patience=0, factor=0.5)
    run = fit(grouped_step(), make_data(), plateau=(plateau, "mse"), **options)
    np.testing.assert_allclose(run.state.optimizer.lr, [0.05, 0.25, 0.1], rtol=1e-6)
    for lr in ([0.5, 0.2, 0.1], 0.1, [0.1, 0.5]):
        with pytest.raises(ValueError, match=r"and the optimizer has 0\.1, 0\.5, 0\.2; .* no Group takes first"):
            fit(grouped_step(), make_data(), plateau=(ReduceLROnPlateau(lr), "mse"), **options)
    scheduled = make_step(lr=lambda count: 0.1)
    with pytest.raises(ValueError, match="plateau changes the learning rate, and lr is a schedule"):
        fit(scheduled, make_data(), plateau=(ReduceLROnPlateau(0.1), "mse"), **options)


def test_loggers_hold_what_was_measured(tmp_path):
    loggers = [JsonLines(tmp_path / "deep" / "run.jsonl"), TensorBoard(tmp_path / "board")]
    run = fit(
        make_step(), make_data(), steps=6, log_every=2, loggers=loggers, evaluation=evaluation(every=3), progress=False
    )
    rows = [json.loads(line) for line in (tmp_path / "deep" / "run.jsonl").read_text().splitlines()]
    trained = [row for row in rows if "loss" in row]
    assert [row["step"] for row in trained] == [2, 3, 5, 6]
    assert trained[0]["loss"] == pytest.approx(run.history["loss"][:2].mean())
    assert all(row["rows_per_second"] > 0 for row in trained)
    assert [row["step"] for row in rows if "evaluation/mse" in row] == [3, 6]
    assert any(file.stat().st_size > 100 for file in (tmp_path / "board").iterdir())


def test_lines_of_json_have_a_word_for_what_is_not_finite(tmp_path):
    log = JsonLines(tmp_path / "run.jsonl")
    log.log(1, {"a": float("nan"), "b": float("-inf")})
    log.close()
    assert json.loads((tmp_path / "run.jsonl").read_text()) == {"step": 1, "a": "nan", "b": "-inf"}


def test_tells_in_plain_lines_where_there_is_no_terminal(capfd):
    fit(make_step(), make_data(), steps=4, log_every=2, evaluation=evaluation(every=4))
    told = capfd.readouterr().err.splitlines()
    assert told[0].startswith("step 2/4  epoch 0  loss ")
    assert any(line.startswith("step 4/4  evaluation: mse ") for line in told)
    fit(make_step(), make_data(), steps=2, progress=False)
    assert capfd.readouterr().err == ""


def bad_label(model, batch):
    return gm.nn.functional.cross_entropy(model(batch["x"]) * jnp.ones(3), batch["label"])


def root_of_zero(model, batch):
    return jnp.mean(model.outer(jnp.sqrt(model.inner(batch["x"]) * 0)))


@pytest.mark.parametrize("per_launch", [1, 2])
def test_stops_at_the_step_that_is_not_finite_and_names_the_batch(per_launch):
    poisoned = {"x": X.copy(), "y": Y}
    poisoned["x"][17, 1] = np.inf
    data = from_arrays(poisoned, batch_size=4, shuffle=False)
    with pytest.raises(NonfiniteError) as raised:
        fit(make_step(steps_per_launch=per_launch), data, epochs=2, log_every=10, progress=False)
    assert raised.value.step == 4
    assert raised.value.tensor.startswith("batch['x'] is inf at [1, 1] (1 of 12 elements")
    assert int(raised.value.state.step) == 4
    good = fit(make_step(), data, steps=4, progress=False)
    for (path, mine), (_, theirs) in zip(
        nnx.to_flat_state(raised.value.state.params), nnx.to_flat_state(good.state.params), strict=True
    ):
        if path != ("inner", "bias"):  # before a norm its gradient is rounding, of which Adam makes whole steps
            np.testing.assert_allclose(mine[...], theirs[...], rtol=1e-5)


@pytest.mark.parametrize(
    ("loss", "batch", "told"),
    [
        (bad_label, {"x": X[:8], "label": np.array([0, 1, 2, 3, 0, 0, 0, 0])}, "every output of a module is finite"),
        (root_of_zero, {"x": X[:8]}, "the gradient that comes to the output of inner (Linear) is nan"),
        (
            lambda model, batch: jnp.mean(model(batch["x"] * 1e38)),
            {"x": np.abs(X[:8]) + 10},
            "the output of inner (Linear) is ",
        ),
    ],
    ids=["label out of range", "backward", "forward"],
)  # fmt: skip
def test_names_the_first_tensor_that_is_not_finite(loss, batch, told):
    with pytest.raises(NonfiniteError) as raised:
        fit(make_step(loss), [batch], steps=1, progress=False)
    assert raised.value.step == 0
    assert raised.value.tensor.startswith(told)


def test_one_that_cannot_be_read_again_is_told_all_the_same():
    batches = iter([{"x": X[:8] * np.nan, "y": Y[:8]}])
    with pytest.raises(NonfiniteError, match="at step 0: its batch cannot be read again, so that the first bad"):
        fit(make_step(), batches, steps=1, progress=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (lambda: {"steps": 0}, "steps is 0"),
        (lambda: {"epochs": -1}, "epochs is -1"),
        (lambda: {"log_every": 0}, "log_every is 0"),
        (lambda: {"early_stopping": EarlyStopping("a")}, "early_stopping watches the evaluation, and there is none"),
        (lambda: {"steps": 1, "plateau": (None, "a"), "evaluation": evaluation(every=1)}, "plateau watches 'a'"),
        (lambda: {"step": make_step(steps_per_launch=2), "steps": 3}, "steps is 3, and a launch takes 2"),
        (lambda: {"evaluation": evaluation(every=0)}, "every is 0"),
        (lambda: {"evaluation": evaluation(averaged=True)}, "averaged is True, and the step averages nothing"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        fit(**{"step": make_step(), "data": make_data(), "progress": False, **options()})


def loader(**options):
    rows = [{"x": x, "y": y} for x, y in zip(X, Y, strict=True)]
    return torch.utils.data.DataLoader(rows, batch_size=8, **options)


@pytest.mark.parametrize(
    "made",
    [
        lambda: (source := make_data(), source),
        lambda: (source := make_data(), mapped(source, lambda batch: batch)),
        lambda: (stacked(source := make_data(), 1), read_ahead(source)),
        lambda: (rows := iter([{"x": X, "y": Y}]), rows),
        lambda: (rows := loader(num_workers=1, persistent_workers=True), rows),
    ],
    ids=["source", "view", "views", "iterator", "persistent workers"],
)
def test_one_source_for_training_and_evaluation_is_refused(made):
    data, judged = made()
    with pytest.raises(ValueError, match=r"^evaluation reads the .* that data is"):
        fit(make_step(), data, steps=1, evaluation=Evaluation(judged, mean_y), progress=False)


def mean_y(model, batch):
    return {"y": jnp.mean(batch["y"])}


@pytest.mark.parametrize("make", [loader, lambda: [{"x": X[i : i + 8], "y": Y[i : i + 8]} for i in (0, 8, 16)]])
def test_data_that_can_be_read_twice_at_a_time_are_trained_on_and_judged(make):
    data, alone = make(), fit(make_step(), make(), steps=8, progress=False)
    run = fit(make_step(), data, steps=8, evaluation=Evaluation(data, mean_y, every=2), progress=False)
    np.testing.assert_array_equal(run.history["loss"], alone.history["loss"])
    np.testing.assert_allclose([found["y"] for _, found in run.evaluations], Y.mean(), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("step", lambda: "step"),
        ("state", lambda: Net(nnx.Rngs(0))),
        ("evaluation", lambda: squared_error),
        ("plateau", lambda: ReduceLROnPlateau(0.1)),
        ("checkpoints", lambda: "folder"),
        ("loggers", lambda: ReduceLROnPlateau(0.1)),
    ],
)
def test_arguments_of_another_type(name, given):
    arguments = {"step": make_step(), "data": make_data(), "steps": 1, "progress": False, name: given()}
    with pytest.raises(TypeError, match=f"^{name} is a "):
        fit(**arguments)


def test_loggers_that_log_nothing():
    with pytest.raises(
        TypeError, match=r"loggers\[0\] is <built-in function print>, which has no log\(step, metrics\)"
    ):
        fit(make_step(), make_data(), loggers=[print], steps=1, progress=False)


def test_metrics_that_are_no_mapping():
    step = make_step()
    with pytest.raises(TypeError, match=r"metrics gave a .*; give a mapping of scalars by name"):
        Evaluation([{"x": X}], lambda model, batch: jnp.mean(batch["x"])).run(step, step.init())


@pytest.mark.parametrize("empty", [None, {}, (None, None)])
def test_a_batch_without_arrays_is_no_end_of_the_data(empty):
    data = [{"x": X, "y": Y}, empty, {"x": X, "y": Y}]
    with pytest.raises(ValueError, match=r"the batch of step 1, batch 1 of epoch 0, is .* which holds no arrays"):
        fit(make_step(), data, progress=False)
    with pytest.raises(ValueError, match=r"batch 1 of the evaluation is .* which holds no arrays"):
        Evaluation(data, mean_y).run(step := make_step(), step.init())
    with pytest.raises(ValueError, match=r"batch 1 of the group that begins at batch 0 of epoch 0 is .* no arrays"):
        fit(make_step(steps_per_launch=2), data, progress=False)


@pytest.mark.parametrize("names", [["a"] * 8, np.array(["a"] * 8)], ids=["list", "array"])
def test_strings_in_a_batch_are_named(names):
    data = [{"x": X[:8], "y": Y[:8], "name": names}]
    with pytest.raises(TypeError, match=r"batch\['name'\].* is a.* (str|<U1), .* out of the batch"):
        fit(make_step(), data, progress=False)
    with pytest.raises(TypeError, match=r"batch\['name'\].* is a.* (str|<U1), .* out of the batch"):
        Evaluation(data, mean_y).run(step := make_step(), step.init())


def test_an_error_in_the_data_is_raised_where_the_batch_would_have_come():
    def broken():
        yield {"x": X[:8], "y": Y[:8]}
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        fit(make_step(), broken(), steps=3, progress=False)


def of_a_data_loader():
    torch = pytest.importorskip("torch")
    rows = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    return torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True, collate_fn=as_mapping)


def as_mapping(rows):
    import torch

    x, y = zip(*rows, strict=True)
    return {"x": torch.stack(x), "y": torch.stack(y)}


def of_grain():
    grain = pytest.importorskip("grain")
    rows = [{"x": x, "y": y} for x, y in zip(X, Y, strict=True)]
    return grain.MapDataset.source(rows).shuffle(seed=4).batch(8)


@pytest.mark.slow
@pytest.mark.parametrize("make", [make_data, of_a_data_loader, of_grain], ids=["arrays", "DataLoader", "Grain"])
def test_goes_on_with_the_next_batch_of_any_data(make, tmp_path):
    pytest.importorskip("orbax.checkpoint")
    options = {"epochs": 4, "progress": False}
    whole = fit(make_step(), make(), **options)
    assert whole.history["loss"].shape == (12,)
    fit(make_step(), make(), steps=5, checkpoints=Checkpoints(tmp_path, every=5), progress=False)
    rest = fit(make_step(), make(), checkpoints=Checkpoints(tmp_path, every=5), **options)
    np.testing.assert_array_equal(rest.history["loss"], whole.history["loss"][5:])
    for mine, theirs in zip(jax.tree.leaves(rest.state.params), jax.tree.leaves(whole.state.params), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_another_batch_size_goes_on_with_the_state_alone(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    checkpoints = Checkpoints(tmp_path / "first", every=2)
    fit(make_step(), make_data(), steps=4, checkpoints=checkpoints, progress=False)
    other, step = from_arrays({"x": X, "y": Y}, batch_size=6, seed=3), make_step()
    with pytest.raises(ValueError, match=r"batch_size is 8 in the state and 6 here; .* fit\(step, data, state=state, "):
        fit(step, other, steps=8, checkpoints=checkpoints, progress=False)
    state, _ = checkpoints.restore(step)
    run = fit(step, other, state=state, steps=8, checkpoints=Checkpoints(tmp_path / "second"), progress=False)
    assert run.history["loss"].shape == (4,)


def test_a_plateau_and_its_patience_are_kept_in_a_checkpoint(tmp_path):
    pytest.importorskip("orbax.checkpoint")

    def run(epochs, folder):
        constant = Evaluation([{"x": X}], lambda model, batch: {"mse": jnp.mean(batch["x"])})
        plateau = (ReduceLROnPlateau(0.05, patience=2, factor=0.5), "mse")
        options = {"evaluation": constant, "plateau": plateau, "progress": False}
        return fit(make_step(lr=0.05), make_data(), epochs=epochs, checkpoints=Checkpoints(folder, every=3), **options)

    whole = run(6, tmp_path / "whole")
    run(3, tmp_path / "parts")
    rest = run(6, tmp_path / "parts")
    np.testing.assert_array_equal(rest.history["lr"], whole.history["lr"][9:])
    assert len(set(whole.history["lr"].tolist())) == 2


def test_a_run_that_is_over_has_an_empty_history(tmp_path, capfd):
    pytest.importorskip("orbax.checkpoint")
    for _ in range(2):
        run = fit(make_step(clip_norm=1.0), make_data(), steps=4, checkpoints=Checkpoints(tmp_path / "run"))
    assert {name: array.shape for name, array in run.history.items()} == {"loss": (0,), "lr": (0,), "grad_norm": (0,)}
    assert run.stopped == "steps"
    assert capfd.readouterr().err.splitlines()[-1] == "at step 4 of 4 already: nothing is left to train"
    assert fit(make_step(), make_data(), state=run.state, steps=4, progress=False).history["loss"].size == 0


def test_a_state_beside_a_checkpoint_starts_the_run_or_is_told(tmp_path, caplog):
    pytest.importorskip("orbax.checkpoint")

    def go_on(state, steps=6):
        return fit(step, make_data(), state=state, steps=steps, checkpoints=checkpoints, progress=False)

    step, checkpoints = make_step(), Checkpoints(tmp_path, every=2)
    first = go_on(step.init(), steps=4)
    state = jax.tree.map(jnp.copy, first.state)
    assert go_on(first.state).history["loss"].shape == (2,)
    assert not caplog.records
    checkpoints.discard_after(4)
    assert go_on(step.init()).history["loss"].shape == (2,)  # the script of a run that was interrupted
    assert f"state is of step 0, and is not used: the run goes on from step 4 of {tmp_path}" in caplog.text
    checkpoints.discard_after(4)
    other = state._replace(optimizer=gm.optim.with_lr(state.optimizer, 0.01))
    with pytest.raises(ValueError, match=r"state is of step 4, as .* other values of optimizer\.lr: leave state out"):
        go_on(other)
    checkpoints.discard_after(2)
    with pytest.raises(ValueError, match=r"state is of step 4, and .* has step 2: .*discard_after\(1\)"):
        go_on(state)
    checkpoints.discard_after(1)
    assert go_on(state).history["loss"].shape == (2,)


def test_the_rate_that_counts_is_told_where_another_is_given(tmp_path, caplog):
    pytest.importorskip("orbax.checkpoint")

    def run(lr, steps):
        kept = Checkpoints(tmp_path, every=2)
        return fit(make_step(lr=lr), make_data(), steps=steps, checkpoints=kept, progress=False).history["lr"]

    run(0.05, 2)
    run(0.05, 4)
    assert not caplog.records
    np.testing.assert_array_equal(run(0.3, 5), [np.float32(0.05)])
    assert "lr is given as 0.3, and the checkpoint has 0.05, which counts" in caplog.text
    caplog.clear()
    np.testing.assert_array_equal(run(lambda count: 0.5 * count, 6), [2.5])
    assert not caplog.records


def test_a_folder_that_cannot_be_made_is_told_before_the_first_step(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    (tmp_path / "file").write_text("")
    folder, step = tmp_path / "file" / "run", make_step()
    told = rf"folder is {folder}, and nothing can be written there \(.*\); give another one"
    with pytest.raises(NotADirectoryError, match=told):
        fit(step, make_data(), steps=2, checkpoints=Checkpoints(folder), progress=False)
    assert step.traces == 0


def test_a_bar_on_a_terminal():
    script = (
        "import numpy as np, jax.numpy as jnp, graphmode as gm; from flax import nnx\n"
        "step = gm.train_step(gm.nn.Linear(3, 1, rngs=nnx.Rngs(0)), lambda m, x: jnp.mean(m(x) ** 2), gm.optim.sgd())\n"
        "gm.training.fit(step, [np.ones((4, 3), np.float32)] * 6, steps=6, log_every=2)"
    )
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "160", "JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen([sys.executable, "-c", script], stderr=theirs, env=environment)
    os.close(theirs)
    told = b""
    try:
        while piece := os.read(ours, 65536):
            told += piece
    except OSError:  # the other end is closed
        pass
    assert process.wait() == 0, told.decode()
    os.close(ours)
    assert b"training" in told
    assert b"6/6" in told
    assert b"loss" in told
