"""`graphmode train` with a port's step that is written by hand: several optimizers, `nnx.Optimizer`, plain optax."""

import dataclasses
import re

import hand_written_sample as sample
import optax
import pytest
from flax import nnx
from graphmode.compare import CaseError
from graphmode.compare.training import run_training
from hand_written_sample import ADAMW, CLIP, chain, model_step

import graphmode as gm


@pytest.mark.parametrize("name", ["PAIR", "CHAIN", "FUNCTIONAL", "REPEATED"])
def test_the_same_script_takes_the_same_steps(name):
    found = run_training(getattr(sample, name), kinds=("eager",))
    assert found.passed, found
    assert not found.warnings
    assert found.compared["parameter"] >= 6
    assert found.compared["score"] == 1
    assert found.traces >= 1


@pytest.mark.parametrize(
    ("training", "step", "words"),
    [
        (sample.PAIR, model_step(rate=1e-3),
         "Optimizer 1 of 2 .critic.*: At step 0 .* takes the same gradients .* 4 of 4 .* 0.5 times as far"),
        (sample.PAIR, model_step(beta=0.9), "Optimizer 1 of 2 .critic.*: At step 1 .* the same gradients"),
        (sample.PAIR, model_step(reaches=False), "2 of 2 .generator.*: At step 0 the losses agree, and the grad"),
        (sample.PAIR, model_step(critic_first=False), "2 of 2 .generator.* others, .* which optimizer steps before"),
        (sample.CHAIN, chain(ADAMW), "the same gradients, before PyTorch's script clips them, .* port clip at all"),
        (sample.CHAIN, chain(CLIP, ADAMW), "before PyTorch's script clips them, .* optax.clip_by_global_norm divides"),
        (sample.CHAIN, chain(CLIP, optax.adamw(0.01)), "before PyTorch's script clips them, .*: weight decay. What a"),
        (sample.CHAIN, chain(gm.optim.adamw(lr=0.01), clip=0.5), "The port's weight_decay is 0.01, .* 0.1"),
        (sample.CHAIN, chain(ADAMW, clip=0.5, loss=sample.halved), "Both begin step 0 with the same weights"),
        (sample.CHAIN, chain(ADAMW, clip=0.5, loss=sample.stopped), "gradients .* do not, of .*: first.weight"),
        (sample.FUNCTIONAL, lambda model: sample.functional(model, sample.stopped), "are moved otherwise: .* nnx.Opt"),
        (sample.CHAIN, sample.on_a_copy, "6 of 6 parameters .* The port moves nothing: .* in place"),
        (sample.REPEATED, sample.again_and_again(chain(gm.optim.adamw(lr=0.02), clip=0.5)), "step 3 times in it"),
    ],
)  # fmt: skip
def test_what_differs_first_is_told(training, step, words):
    found = run_training(dataclasses.replace(training, model_step=step), steps=4, kinds=("eager",))
    assert not found.passed
    assert len(found.warnings) == 1
    assert re.search(words, found.warnings[0]), found.warnings[0]


def test_a_step_that_compiles_anew_each_time_is_told():
    training = dataclasses.replace(sample.PAIR, model_step=model_step(anew=True))
    found = run_training(training, steps=8, kinds=("eager",))
    assert found.passed
    assert re.search("compiles anew in [5-8] of its 8 steps", found.warnings[0]), found.warnings
    assert found.traces >= 8


def test_optimizers_are_as_they_were_afterwards():
    before = nnx.Optimizer.__init__
    run_training(sample.PAIR, steps=2, kinds=("eager",))
    assert nnx.Optimizer.__init__ is before


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda model: None, r"model_step gives a NoneType. Wanted was gm.train_step\(...\) or a function"),
        (lambda model: lambda batch: (0.5, {}), "returned a tuple; wanted was the loss before the step, one number"),
        (lambda model: nnx.Optimizer(model, ADAMW), "model_step fails: TypeError: Missing required argument `wrt`"),
        (lambda model: lambda batch: batch["x"], r"returned an array of shape \(8, 6\)"),
    ],
)
def test_what_is_no_step_is_refused(step, words):
    with pytest.raises(CaseError, match=words):
        run_training(dataclasses.replace(sample.CHAIN, model_step=step), steps=2, kinds=("eager",))


def test_a_script_of_pytorch_that_cannot_be_made_is_told_with_its_line():
    training = dataclasses.replace(sample.CHAIN, reference_step=lambda module, kind: module.nothing)
    with pytest.raises(CaseError, match=r"reference_step fails: AttributeError: .*nothing.*test_hand_written\.py"):
        run_training(training, steps=2, kinds=("eager",))
