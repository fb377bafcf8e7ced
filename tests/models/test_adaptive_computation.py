"""Adaptive computation time: steps that the formulas of the paper give, flags, and the gradient through the loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import check
from graphmode.models.adaptive_computation.case import BATCH, CASE, TIME, mixed, normal
from graphmode.models.adaptive_computation.model import AdaptiveComputation

from graphmode.weights import load


@pytest.fixture(scope="module")
def pair():
    torch.manual_seed(0)
    reference = CASE.reference().double()
    with jax.enable_x64(True):
        port = AdaptiveComputation(rngs=nnx.Rngs(0))
        load(port, reference.state_dict())
        graphdef, state = nnx.split(port)
        state = jax.tree.map(lambda x: x.astype(jnp.float64), state)
    return reference, graphdef, state


def both(pair, inputs):
    reference, graphdef, state = pair
    with torch.no_grad():
        theirs = reference(*(torch.tensor(x, dtype=torch.float64) for x in inputs))
    with jax.enable_x64(True):
        run = jax.jit(lambda state, *inputs: nnx.merge(graphdef, state)(*inputs))
        ours = run(state, *(np.float64(x) for x in inputs))
    return ours, theirs


def test_each_example_takes_its_own_number_of_steps(pair):
    ours, theirs = both(pair, mixed(np.random.default_rng(0)))
    for name in theirs._fields:
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name).numpy(), rtol=1e-12, atol=1e-12)
    assert set(ours.steps[:, 0].tolist()) == {1}
    assert set(ours.steps[:, 1].tolist()) == {6}
    assert {1, 6} < set(ours.steps.ravel().tolist())
    assert ours.cut_short[:, 1].all()
    assert not ours.cut_short[:, 0].any()


@pytest.mark.parametrize(("urgency", "steps", "cut_short"), [(20, 1, False), (-20, 6, True)])
def test_steps_and_ponder_cost_at_both_ends(pair, urgency, steps, cut_short):
    """One step leaves all of 1, and so the cost is 2; scores of next to nothing leave it too, at the bound."""
    ours, _ = both(pair, normal(np.random.default_rng(0), urgency=urgency))
    np.testing.assert_array_equal(ours.steps, np.full((TIME, BATCH), steps))
    np.testing.assert_array_equal(ours.cut_short, np.full((TIME, BATCH), cut_short))
    np.testing.assert_allclose(ours.ponder, steps + 1, atol=1e-6)


def test_an_example_does_not_wait_for_its_neighbours(pair):
    inputs = mixed(np.random.default_rng(1))
    together, _ = both(pair, inputs)
    for b in range(BATCH):
        alone, _ = both(pair, tuple(x[:, b : b + 1] for x in inputs))
        np.testing.assert_allclose(alone.outputs[:, 0], together.outputs[:, b], rtol=1e-12)
        np.testing.assert_array_equal(alone.steps[:, 0], together.steps[:, b])


def test_gradients_go_through_remainders_and_ponder_cost(pair):
    reference, graphdef, state = pair
    x, urgency = (np.float64(a) for a in mixed(np.random.default_rng(2)))
    given = [torch.tensor(a, requires_grad=True) for a in (x, urgency)]
    found = reference(*given)
    (found.outputs.square().sum() + found.ponder.sum()).backward()
    with jax.enable_x64(True):

        def loss(state, x, urgency):
            found = nnx.merge(graphdef, state)(x, urgency)
            return jnp.sum(found.outputs**2) + jnp.sum(found.ponder)

        grads, of_x, of_urgency = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(state, x, urgency)
    np.testing.assert_allclose(of_x, given[0].grad.numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(of_urgency, given[1].grad.numpy(), rtol=1e-10, atol=1e-12)
    halting = reference.halting.weight.grad.numpy()
    np.testing.assert_allclose(grads["halting"]["weight"][...].T, halting, rtol=1e-10, atol=1e-12)
    assert np.abs(halting).max() > 0.01


@pytest.mark.parametrize("wrong", [{"max_steps": 0}, {"epsilon": 0.0}, {"epsilon": 1.0}])
def test_bounds_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match="give a step at least, and a number between 0 and 1"):
        AdaptiveComputation(rngs=nnx.Rngs(0), **wrong)


@pytest.mark.slow
def test_the_whole_case_passes():
    report = check(CASE, draws=1)
    assert report.passed, str(report)
