"""What `graphmode train` judges beside the losses, and how it tells what parts."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from graphmode.compare import CaseError
from graphmode.compare.training import as_training, run_training, write_training
from graphmode.compare.training.left import Left, compare, of_reference
from graphmode.compare.training.report import page
from torch.optim.swa_utils import AveragedModel
from typer.testing import CliRunner

from graphmode.cli import app
from graphmode.weights import Drop

FILE = Path(__file__).parent / "normed_sample.py"


def trained(name, **options):
    return run_training(as_training(f"{FILE}:{name}"), kinds=("eager",), **options)


@pytest.mark.parametrize(
    ("name", "compared"),
    [
        ("RIGHT", {"parameter": 6, "buffer": 3, "score": 1}),
        ("EMA", {"parameter": 6, "buffer": 3, "average": 6, "score": 1}),
        ("EMA_OF_A_PART", {"parameter": 6, "buffer": 3, "average": 2, "score": 1}),
        ("DRAWN_FOR_NOTHING", {"parameter": 6, "buffer": 3, "score": 1}),
    ],
)
def test_a_right_port_is_left_with_the_same(name, compared):
    found = trained(name)
    assert found.passed
    assert (found.apart, found.warnings, found.compared) == ((), (), compared)


@pytest.mark.parametrize(
    ("name", "first", "kinds"),
    [
        ("MOMENTUM", "norm.running_mean", {"buffer", "score"}),
        ("EMA_DECAY", "first.weight", {"average"}),
        ("SCORE", "at one", {"score"}),
    ],
)
def test_what_the_losses_do_not_show_is_named(name, first, kinds):
    found = trained(name)
    assert found.error < 1e-12
    assert not found.passed
    assert found.apart[0].name == first
    assert {each.kind for each in found.apart} == kinds
    head = page(found).headline
    assert head.verdict.startswith(f"The losses agree, and {len(found.apart)} of")
    worst = max(found.apart, key=lambda each: each.error)
    assert f"the {found.apart[0].kind} {first} is off by" in head.lines[0]
    assert f"{worst.name} is off by" in " ".join(head.lines)


def test_what_rounding_decides_is_told_and_not_judged():
    found = trained("SIGNS")
    assert found.passed
    assert "PyTorch's own are as far off" in " ".join(found.warnings)
    assert "first.bias" in " ".join(found.warnings)


WEIGHT, AVERAGE = {("parameter", "w"): np.ones(2)}, {("average", "w"): np.ones(2)}


@pytest.mark.parametrize(
    ("port", "reference", "words"),
    [
        (
            Left(WEIGHT | AVERAGE),
            Left(WEIGHT),
            "averages. The port has some, and PyTorch's script made no",
        ),
        (Left(WEIGHT), Left(WEIGHT | AVERAGE), "averages. PyTorch's script has some, and the port none"),
        (Left(WEIGHT), Left({**WEIGHT, ("buffer", "seen"): np.zeros(1)}), "seen, which the weights' rules drop"),
        (Left(WEIGHT, {"a": 1.0}), Left(WEIGHT, {"b": 1.0}), "the score 'b'. The port's scores are a"),
    ],
)
def test_what_cannot_be_compared_is_told(port, reference, words):
    apart, compared, notes = compare(port, reference, None, (Drop("seen", "unused"),))
    assert (apart, compared) == ([], {"parameter": 1})
    assert len(notes) == 1
    assert f"Not compared: {words}" in notes[0] or f"Not compared: the {words}" in notes[0]


def test_averages_of_another_module_are_told():
    left = of_reference(torch.nn.Linear(3, 2), [AveragedModel(torch.nn.Linear(1, 1))])
    assert not left.has_averages
    assert "PyTorch's script has an AveragedModel, and which of the model's it averages is not clear" in left.notes[0]


def test_a_parameter_of_one_side_may_be_a_buffer_of_the_other():
    apart, *_ = compare(Left({("buffer", "w"): np.zeros(2)}), Left(WEIGHT), None, ())
    assert [(each.kind, each.name, each.error) for each in apart] == [("parameter", "w", 1.0)]


@pytest.mark.parametrize(("port", "agrees"), [(np.float32(0.7), True), (0.7 * (1 + 3e-8), True), (0.700001, False)])
def test_scores_in_float32_are_compared_by_its_digits(port, agrees):
    apart, *_ = compare(Left({}, {"a": float(port)}), Left({}, {"a": float(np.float32(0.7))}), None, ())
    assert (not apart) is agrees


def test_a_port_in_another_precision_is_told(tmp_path):
    found = trained("NARROW")
    assert found.passed
    assert found.narrow == ("bfloat16",)
    made, _ = write_training(found, tmp_path)
    assert made.headline.tone == "warn"
    assert "run in different precisions" in made.headline.verdict
    assert "The PyTorch script computes in bfloat16, and the port in float32" in json.loads(
        (tmp_path / "training.json").read_text()
    )["warnings"][0]  # fmt: skip
    assert "The PyTorch script computes in bfloat16, and the port in float32" in (tmp_path / "report.md").read_text()
    assert not trained("NARROW_BOTH").warnings
    assert not trained("RIGHT").narrow


def test_a_port_that_rounds_less_in_float32_is_none_of_another_precision():
    """Where a kink turns one rounding into another path, either side may be a hundred times closer."""
    found = run_training(as_training(f"{FILE.parent / 'training_sample.py'}:ROUNDED"), kinds=("eager",), steps=70)
    assert found.ratio < 0.01
    assert not found.narrow


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("DRAWN", r"the PyTorch script \(drop \(Dropout of p=0.2\)\) and the port \(drop.rngs\) draw random numbers"),
        ("DRAWN_BY_REFERENCE", r"the PyTorch script \(drop .* draws random numbers in training, and the port does not"),
    ],
)
def test_scripts_that_draw_are_refused(name, words):
    with pytest.raises(CaseError, match=rf"the losses part at step 0, and {words}.*p=0 for dropout"):
        trained(name)


def test_a_port_that_draws_alone_is_told():
    found = trained("DRAWN_BY_PORT")
    assert not found.passed
    assert found.warnings[0].startswith("The port (drop.rngs) draws random numbers in training, and the PyTorch script")


def test_the_first_step_that_parts_is_told_and_the_largest():
    found = trained("LATE")
    assert found.first_step == 5  # the loss is that before the step
    assert found.error_step > 5
    verdict = page(found).headline.verdict
    assert verdict.startswith(f"The losses part at step 5 in float64, and at step {found.error_step}, where they are")


def test_a_case_points_to_its_check(tmp_path):
    case = f"{FILE.parent / 'training_sample.py'}:WRONG_CASE"
    found = run_training(as_training(case), steps=4, kinds=("eager",))
    assert (
        f"graphmode check {case} --steps 2 names the first tensor that goes wrong, and where."
        in page(found).headline.lines
    )
    lines = page(trained("LATE")).headline.lines
    assert "graphmode check" not in " ".join(lines)
    assert "At step 4 the optimizer takes the same gradients on both sides, and moves" in lines[0]


def test_no_further_draws_where_float64_has_failed():
    told = []
    found = run_training(
        as_training(f"{FILE.parent / 'training_sample.py'}:WRONG_EPSILON"), kinds=("eager",), told=told.append
    )
    assert found.ratio > 5
    assert not [line for line in told if "draw" in line]


def test_too_few_steps_for_precision_are_told():
    verdict = page(trained("RIGHT")).headline.verdict
    assert verdict == ("Both scripts take the same steps in float64; precision was not judged, which takes 64 steps.")


def test_several_steps_are_refused_by_name():
    with pytest.raises(
        CaseError, match=r"model_step gives a tuple of 2; call them in one function. Wanted was gm.train_step"
    ):
        trained("SEVERAL")


def test_the_command_fails_and_names_it(tmp_path):
    found = CliRunner().invoke(app, ["train", f"{FILE}:MOMENTUM", "--row", "torch.eager", "--out", str(tmp_path)])
    assert found.exit_code == 1, found.output
    assert "norm.running_mean" in found.output
    assert "norm.running_var" in (tmp_path / "report.html").read_text()
