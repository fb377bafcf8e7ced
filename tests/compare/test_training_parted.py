"""What `graphmode train` tells of two scripts whose losses part: the step, and what differs in it first."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import normed_sample as sample
import optax
import pytest
import torch
from flax import nnx
from graphmode.compare.training import run_training

import graphmode as gm


def clipped(make, norm):
    def step_of(module, kind):
        optimizer = make(module.parameters())

        def step(batch):
            optimizer.zero_grad()
            loss = ((module(batch["x"]) - batch["y"]) ** 2).mean()
            loss.backward()
            if norm is not None:
                torch.nn.utils.clip_grad_norm_(module.parameters(), norm)
            optimizer.step()
            return loss.detach()

        return step

    return step_of


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, weight_decay=0.01)


def half_frozen(module, kind):
    module.first.requires_grad_(False)
    return clipped(sgd, None)(module, kind)


def port(optimizer=None, loss=sample.squared_error, **options):
    made = optimizer or gm.optim.sgd(lr=0.05, weight_decay=0.01)
    return lambda model: gm.train_step(model, loss, made, **options)


def stopped(model, batch):
    hidden = model.norm(model.first(batch["x"]))
    y = model.last(jax.nn.relu(jax.lax.stop_gradient(hidden)))
    return jnp.mean((y - batch["y"]) ** 2)


def by_count(module, kind):
    """Half of each loss after the first, by a count that is no buffer."""
    step, factors = clipped(sgd, None)(module, kind), iter([1.0, *[0.5] * 10])
    return lambda batch: step(batch) * next(factors)


RIGHT = clipped(sgd, None)
ADAMW = clipped(lambda parameters: torch.optim.AdamW(parameters, lr=0.01), None)
ADAM = clipped(lambda parameters: torch.optim.Adam(parameters, lr=0.01), None)


@pytest.mark.parametrize(
    ("reference", "model_step", "words"),
    [
        (RIGHT, port(gm.optim.sgd(lr=0.1, weight_decay=0.01)),
         "takes the same gradients on both sides, and moves .* 2 times as far. Its learning rate is 0.1, .* 0.05"),
        (RIGHT, port(gm.optim.sgd(lr=0.05)),
         "It pulls them to zero by 0.0005 times their own values less: weight decay"),
        (RIGHT, port(gm.optim.sgd(lr=0.05, weight_decay=0.01, groups=[gm.optim.Group("last", lr=0.5)])),
         r"moves 2 of 6 parameters otherwise: last.weight\[.*, last.bias. The port moves them 10 times as far"),
        (clipped(sgd, 0.1), port(),
         "At step 0 the losses agree, and the gradients .* all are .* times PyTorch's .norms .* and 0.0999999.*Clip"),
        (RIGHT, port(loss=stopped), "gradients that the optimizer takes do not, of .*: first.weight.*The backward"),
        (RIGHT, port(optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.05)), loss=stopped),
         "the gradients that the optimizer takes do not, of 3 of 6 parameters: first.weight.*The backward"),
        (half_frozen, port(), "At step 0 the port's optimizer moves first.weight, first.bias, and PyTorch's has no"),
        (RIGHT, port(loss=lambda model, batch: 2 * sample.squared_error(model, batch)),
         "Both begin step 0 with the same weights, so that no optimizer is at fault"),
        (by_count, port(), "Both begin step 1 with the same parameters and buffers, and its loss is another"),
        (ADAM, port(gm.optim.adam(lr=0.01, betas=(0.8, 0.999))),
         r"At step 1 .* The port's betas is \(0.8, 0.999\), and PyTorch's \(0.9, 0.999\)\.$"),
        (ADAMW, port(gm.optim.adamw(lr=0.01, weight_decay=0.1)),
         r"weight decay. The port's weight_decay is 0.1, and PyTorch's 0.01\.$"),
        (ADAMW, port(gm.optim.adam(lr=0.01, weight_decay=0.01)), "decoupled_weight_decay is False, .* True"),
        (ADAM, port(gm.optim.nadam(lr=0.01)), "The port's optimizer is NAdam, and PyTorch's Adam"),
    ],
)  # fmt: skip
def test_what_differs_first_is_told(reference, model_step, words):
    training = dataclasses.replace(sample.RIGHT, reference_step=reference, model_step=model_step)
    found = run_training(training, steps=4, kinds=("eager",))
    assert not found.passed
    assert len(found.warnings) == 1
    assert re.search(words, found.warnings[0]), found.warnings[0]


def test_it_is_told_too_where_losses_agree_and_what_is_left_does_not():
    training = dataclasses.replace(
        sample.RIGHT, reference_step=RIGHT, model_step=port(gm.optim.sgd(lr=0.1, weight_decay=0.01))
    )
    found = run_training(training, steps=1, kinds=("eager",))
    assert found.first_step is None
    assert any("Its learning rate is 0.1, and PyTorch's 0.05" in words for words in found.warnings), found.warnings


@pytest.mark.parametrize(("norm", "is_told"), [(0.1, False), (1e3, True)])
def test_a_limit_of_the_gradients_norm_that_no_step_comes_to_is_told(norm, is_told):
    training = dataclasses.replace(sample.RIGHT, reference_step=clipped(sgd, norm), model_step=port(clip_norm=norm))
    found = run_training(training, steps=3, kinds=("eager",))
    assert found.passed
    assert [words.startswith("No step clips") for words in found.warnings] == [True] * is_told


def averaged(rate):
    """A step that moves a second module towards what it trains, which no optimizer does."""

    def step_of(module, kind):
        step = clipped(lambda _: sgd(module.first.parameters()), None)(module, kind)

        def stepped(batch):
            loss = step(batch)
            with torch.no_grad():
                for slow, fast in zip(module.last.parameters(), module.first.parameters(), strict=True):
                    slow.lerp_(fast.flatten()[: slow.numel()].view_as(slow), rate)
            return loss

        module.last.requires_grad_(False)
        return stepped

    return step_of


def averaging(model):
    of_first = nnx.All(nnx.Param, nnx.PathContains("first"))
    decayed = optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.05))
    optimizer = nnx.Optimizer(model, decayed, wrt=of_first)

    def step(batch):
        loss, gradients = nnx.value_and_grad(sample.squared_error, argnums=nnx.DiffState(0, of_first))(model, batch)
        optimizer.update(model, gradients)
        for slow, fast in ((model.last.weight, model.first.weight), (model.last.bias, model.first.bias)):
            slow[...] += 0.1 * (fast[...].T.ravel()[: slow[...].size].reshape(slow[...].shape) - slow[...])
        return loss

    return step


@pytest.mark.parametrize(("rate", "passes"), [(0.1, True), (0.2, False)])
def test_what_moves_without_an_optimizer_is_not_blamed_on_one(rate, passes):
    training = dataclasses.replace(sample.RIGHT, reference_step=averaged(rate), model_step=averaging)
    found = run_training(training, steps=4, kinds=("eager",))
    assert found.passed == passes
    told = "what it trains alike, and 2 parameters that PyTorch's script moves without one are moved otherwise: last."
    assert passes or told in found.warnings[0], found.warnings


def before_the_loss(rate):
    """What `averaged` moves after the step, before it, but in the first."""

    def step_of(module, kind):
        step, late, first = clipped(lambda _: sgd(module.first.parameters()), None)(module, kind), [], module.first
        module.last.requires_grad_(False)

        def stepped(batch):
            with torch.no_grad():
                for slow, fast in zip(module.last.parameters(), first.parameters(), strict=True) if late else ():
                    slow.lerp_(fast.flatten()[: slow.numel()].view_as(slow), rate)
            late.append(True)
            return step(batch)

        return stepped

    return step_of


def averaging_before(model):
    of_first = nnx.All(nnx.Param, nnx.PathContains("first"))
    optimizer = nnx.Optimizer(model, optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.05)), wrt=of_first)
    late = []

    def step(batch):
        for slow, fast in zip(leaves(model.last), leaves(model.first), strict=True) if late else ():
            slow[...] += 0.1 * (fast[...].T.ravel()[: slow[...].size].reshape(slow[...].shape) - slow[...])
        late.append(True)
        loss, gradients = nnx.value_and_grad(sample.squared_error, argnums=nnx.DiffState(0, of_first))(model, batch)
        optimizer.update(model, gradients)
        return loss

    return step


def leaves(linear):
    return linear.weight, linear.bias


@pytest.mark.parametrize(("rate", "passes"), [(0.1, True), (0.05, False)])
def test_a_loss_that_comes_after_such_a_move_is_told_with_it(rate, passes):
    training = dataclasses.replace(sample.RIGHT, reference_step=before_the_loss(rate), model_step=averaging_before)
    found = run_training(training, steps=4, kinds=("eager",))
    assert found.passed == passes
    told = r"begin step 1 .* 2 parameters that .* without an optimizer, .* moved otherwise in it, 2 times as far: last."
    assert passes or re.search(told, found.warnings[0]), found.warnings


def clips_itself(norm, epsilon):
    def step_of(model):
        optimizer = nnx.Optimizer(model, optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.05)), wrt=nnx.Param)

        def step(batch):
            loss, gradients = nnx.value_and_grad(sample.squared_error)(model, batch)
            factor = jnp.minimum(norm / (optax.global_norm(gradients) + epsilon), 1.0)
            optimizer.update(model, jax.tree.map(lambda g: g * factor, gradients))
            return loss

        return step

    return step_of


def test_gradients_that_a_port_clips_itself_are_held_against_clipped_ones():
    training = dataclasses.replace(sample.RIGHT, reference_step=clipped(sgd, 0.1), model_step=clips_itself(0.1, 0.0))
    found = run_training(training, steps=4, kinds=("eager",))
    assert not found.passed
    assert re.search("all are 1.0000[0-9]* times PyTorch's .*Clipping is another: optax.clip_by", found.warnings[0])


@pytest.mark.parametrize(("norm", "is_told"), [(0.1, False), (1e3, True)])
def test_a_limit_of_pytorchs_script_that_no_step_comes_to_is_told(norm, is_told):
    training = dataclasses.replace(sample.RIGHT, reference_step=clipped(sgd, norm), model_step=clips_itself(norm, 1e-6))
    found = run_training(training, steps=3, kinds=("eager",))
    assert found.passed
    told = [words for words in found.warnings if words.startswith("No step clips")]
    assert bool(told) == is_told
    assert all("max_norm of PyTorch's script is 1000" in words for words in told)
