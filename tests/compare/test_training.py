"""`graphmode train`: a script and its PyTorch twin over the same batches."""

import dataclasses
import json
import re
import signal
from pathlib import Path

import jax.numpy as jnp
import pytest
from graphmode.compare import CaseError, endless
from graphmode.compare import training as trainings
from graphmode.compare.locate import locate
from graphmode.compare.training import Training, as_training, run_training, training_of, write_training
from graphmode.models import zoo
from jax import lax
from typer.testing import CliRunner

import graphmode as gm
from graphmode.cli import app

FILE = Path(__file__).parent / "training_sample.py"


def sample(name):
    return as_training(f"{FILE}:{name}")


@pytest.fixture(scope="module")
def result():
    return run_training(sample("TRAINING"))


def test_the_same_script_takes_the_same_steps(result):
    assert result.passed
    assert result.precise
    assert result.error < 1e-12
    assert result.traces == 1
    assert {(way.name, way.dtype) for way in result.ways} == {
        ("torch.eager", "float64"), ("jax.jit", "float64"),
        ("torch.eager", "float32"), ("torch.compile", "float32"), ("jax.jit", "float32"),
    }  # fmt: skip
    for way in result.ways:
        assert not way.reason
        assert len(way.losses) == len(way.seconds) == 80
        assert way.losses[-1] < 0.5 * way.losses[0]
        assert way.scores["bias"] == pytest.approx(result.ways[0].scores["bias"], rel=1e-3, abs=1e-4)


def test_another_epsilon_is_seen():
    found = run_training(sample("WRONG_EPSILON"), kinds=("eager",))
    assert not found.equal
    assert not found.passed
    assert 1e-8 < found.error < 1e-2


def test_what_is_rounded_is_imprecise():
    found = run_training(sample("IMPRECISE"), kinds=("eager",))
    assert found.equal
    assert found.precise is False
    assert not found.passed


def test_too_few_steps_say_nothing_of_precision():
    found = run_training(sample("TRAINING"), steps=5, kinds=("eager",))
    assert (found.precise, found.passed) == (None, True)


def test_a_way_that_fails_is_told_and_the_others_go_on():
    training = sample("TRAINING")

    def step(module, kind):
        def fails(batch):
            raise RuntimeError("no such kernel")

        return fails if kind == "compile" else training.reference_step(module, kind)

    found = run_training(dataclasses.replace(training, reference_step=step), steps=70)
    assert found.passed
    assert found.way("torch.compile", "float32").reason == "RuntimeError: no such kernel"


def test_a_case_with_optimizer_and_loss_is_a_training():
    found = run_training(sample("CASE"), steps=70, kinds=("eager",))
    assert found.passed
    with pytest.raises(CaseError, match="'regression_case' has no loss, and training needs both"):
        training_of(locate(f"{FILE}:WITHOUT_LOSS"))


def fails(*_):
    raise KeyError("lost")


def branches(model, batch):
    return model(batch[0]).mean() if batch[0].sum() > 0 else 0.0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"reference": fails}, r"building the reference fails: KeyError: 'lost' \(test_training.py:"),
        ({"model": fails}, r"building the model fails: KeyError: 'lost' \(test_training.py:"),
        ({"batches": fails}, "batches fails: KeyError: 'lost'"),
        (
            {"reference_step": lambda module, kind: fails},
            "the PyTorch step fails at step 0 in float64: KeyError: 'lost'",
        ),
        (
            {"model_step": lambda model: gm.train_step(model, branches, gm.optim.sgd(lr=0.1))},
            r"the port fails at test_training.py:\d+ at step 0 in float64: TracerBoolConversionError: a Python if",
        ),
    ],
)
def test_what_fails_in_a_training_is_named(fields, words):
    training = training_of(locate(f"{FILE}:CASE"))
    with pytest.raises(CaseError, match=f"training 'regression_case': {words}"):
        run_training(dataclasses.replace(training, **fields), steps=1, kinds=("eager",))


def test_a_loop_that_never_ends_is_told(monkeypatch):
    monkeypatch.setattr(endless, "MOST_TURNS", 500)

    def looped(model, batch):
        halved = lax.while_loop(lambda y: y.max() > 0, lambda y: y, lax.stop_gradient(batch["y"]) + 2)
        return jnp.mean((model(batch["x"]) - batch["y"]) ** 2) + halved.sum()

    training = dataclasses.replace(
        sample("TRAINING"), model_step=lambda model: gm.train_step(model, looped, gm.optim.adam(lr=0.05))
    )
    with pytest.raises(CaseError, match=r"the while_loop at test_training\.py:\d+ has not ended after 500 turns"):
        run_training(training, steps=2)


@pytest.mark.parametrize(("side", "words"), [(0, r"loss\[0\], the PyTorch one, gives the shape"), (1, r"loss\[1\]")])
def test_a_loss_that_is_no_scalar_is_named(side, words):
    case = locate(f"{FILE}:CASE")
    loss = [*case.loss]
    loss[side] = lambda y: y
    with pytest.raises(CaseError, match=words):
        run_training(training_of(dataclasses.replace(case, loss=tuple(loss))), steps=1, kinds=("eager",))


def test_the_page_is_made_from_the_results(result, tmp_path):
    page, written = write_training(result, tmp_path)
    assert {path.name for path in written} == {"training.json", "report.md", "report.html"}
    stored = json.loads((tmp_path / "training.json").read_text())
    assert stored["error"] == result.error
    assert stored["ways"][0]["losses"] == result.ways[0].losses
    html = (tmp_path / "report.html").read_text()
    assert "Both scripts take the same steps." in html
    curves = re.findall(r"<g><title>(.*?)</title><path d=\"M(.*?)\" class=\"line (\w+)", html)
    named = {(name, side) for name, _, side in curves}
    assert {("torch.eager", "torch"), ("jax.jit", "jax")} <= named
    broad, thin = (points for name, points, _ in curves[:2])
    assert broad == thin  # the two curves lie on each other
    assert "http://" not in html.replace("http://www.w3.org", "")
    assert "**jax.jit**" in (tmp_path / "report.md").read_text().replace("`", "")
    assert page.headline.tone == "good"


def interrupted(training, *, passes, after):
    """Ctrl-C comes in the pass over the batches that follows so many, after so many steps of it."""
    begun = iter(range(10))

    def batches(rng, count):
        number = next(begun)
        for index, batch in enumerate(training.batches(rng, count)):
            if (number, index) == (passes, after):
                signal.raise_signal(signal.SIGINT)
            yield batch

    return dataclasses.replace(training, batches=batches)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("passes", "after", "made", "words"),
    [
        (0, 3, {"float64": 3}, "Interrupted: the losses of 3 steps agree in float64; the rest was not judged."),
        (1, 0, {"float64": 70}, "of 70 steps there are 70 in float64 and 0 in float32."),
        (1, 66, {"float64": 70, "float32": 66}, "of 70 steps there are 70 in float64 and 66 in float32."),
    ],
)
def test_what_is_interrupted_keeps_its_steps(passes, after, made, words, tmp_path):
    training = interrupted(sample("TRAINING"), passes=passes, after=after)
    found = run_training(training, steps=70, kinds=("eager",))
    assert (found.interrupted, found.asked) == (True, 70)
    assert {(way.dtype, len(way.losses), len(way.seconds)) for way in found.ways} == {
        (d, n, n) for d, n in made.items()
    }
    write_training(found, tmp_path)
    assert words in (tmp_path / "report.md").read_text()
    assert json.loads((tmp_path / "training.json").read_text())["interrupted"] is True


@pytest.mark.usefixtures("ctrl_c")
def test_what_is_interrupted_before_its_first_step_keeps_nothing():
    with pytest.raises(KeyboardInterrupt):
        run_training(interrupted(sample("TRAINING"), passes=0, after=0), kinds=("eager",))


@pytest.mark.usefixtures("ctrl_c")
def test_the_command_that_is_interrupted_writes_its_pages(tmp_path, monkeypatch):
    training = interrupted(sample("TRAINING"), passes=0, after=2)
    monkeypatch.setattr(trainings, "as_training", lambda text: training)
    found = run("any", "--row", "torch.eager", "--out", tmp_path)
    assert found.exit_code == 130
    assert "interrupted; what there is is kept" in found.output
    assert (tmp_path / "report.html").exists()


def run(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def test_the_command(tmp_path):
    found = run(f"{FILE}:TRAINING", "--steps", 70, "--row", "torch.eager", "--out", tmp_path)
    assert found.exit_code == 0, found.output
    assert (tmp_path / "report.html").exists()
    found = run(f"{FILE}:WRONG_EPSILON", "--steps", 70, "--row", "torch.eager", "--out", tmp_path)
    assert found.exit_code == 1, found.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digit"], "did you mean digits?"),
        (["nothing_like_it"], "choose from double_sine, digits, characters"),
        ([f"{FILE}:NOTHING"], "has no attribute 'NOTHING'; its trainings are TRAINING"),
        ([f"{FILE}:FEATURES"], "is int, and a graphmode.compare.training.Training or"),
        (["double_sine", "--row", "torch.trace"], "--row is torch.trace; choose from torch.eager"),
        (["conditional_scale"], "'conditional_scale' has no optimizer"),
        ([f"{FILE}:FEW"], "batches gives 3 of the 80 asked for"),
        ([f"{FILE}:NOT_FINITE"], "PyTorch's own loss is nan in float64 at step 0, so there is nothing to compare"),
        (["double_sine", "--steps", "0"], "greater than or equal to 1"),
    ],
)
def test_wrong_use_is_told(arguments, message, tmp_path):
    found = run(*arguments, "--out", tmp_path)
    assert found.exit_code == 2
    assert message in " ".join(re.sub(r"[│╭╮╰╯─]", " ", found.output).split())


def test_fields_of_a_wrong_type_are_refused_at_once():
    training = sample("TRAINING")
    with pytest.raises(CaseError, match="count is 0; give an integer of at least 1"):
        dataclasses.replace(training, count=0)
    with pytest.raises(CaseError, match="batches is list; give a callable"):
        dataclasses.replace(training, batches=[])


@pytest.mark.parametrize("name", list(zoo.TRAININGS))
def test_trainings_of_the_zoo_can_be_loaded(name):
    assert isinstance(zoo.load_training(name), Training)
    assert zoo.load_training(name).name == name


@pytest.mark.slow
def test_digits_are_learned():
    found = run_training(zoo.load_training("digits"), kinds=("eager",))
    assert found.error <= 1e-8
    assert found.precise
    assert found.way("jax.jit", "float32").scores["test accuracy"] >= 0.98
    assert found.way("torch.eager", "float32").scores["test accuracy"] >= 0.98


@pytest.mark.parametrize("name", ["double_sine", pytest.param("characters", marks=pytest.mark.slow)])
def test_other_trainings_take_the_same_steps(name):
    found = run_training(zoo.load_training(name), steps=70, kinds=("eager",))
    assert found.passed, (found.error, found.ratio)


@pytest.mark.parametrize("name", ["EMBEDDED", "ATTENDING"])
def test_what_flax_and_jax_fix_to_float32_runs_in_float64(name):
    """`nnx.Embed` has the dtype that it is built in, and `jax.nn.dot_product_attention` a softmax of float32."""
    found = run_training(sample(name), steps=6, kinds=("eager",))
    assert found.passed
    assert found.error < 1e-10
