"""Every configuration of PyTorch's `optim_db`: 50 steps in float64, and float32 errors beside PyTorch's own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from graphmode.compare.parity.yardstick import EQUAL_TOLERANCE, PRECISE_RATIO

import graphmode as gm

from .optimizer_cases import REFUSED, configurations, stepped
from .optimizer_verdicts import float32_ratios, float64_errors


def test_all_of_pytorchs_configurations_are_here():
    assert len(configurations()) >= 91
    assert {c.optimizer for c in configurations()} == {n for n in torch.optim.__all__ if n[0].isupper()} - {"Optimizer"}


@pytest.mark.parametrize("configuration", stepped(), ids=lambda c: c.id)
def test_fifty_steps_in_float64(configuration):
    parameters, state = float64_errors(configuration.optimizer, (1,))[configuration.id]
    assert parameters is None or parameters <= EQUAL_TOLERANCE
    assert state <= EQUAL_TOLERANCE


@pytest.mark.parametrize("configuration", stepped(), ids=lambda c: c.id)
def test_float32_is_as_precise_as_pytorchs(configuration):
    ratios = float32_ratios(configuration.optimizer)[configuration.id]
    assert any(what.startswith("early parameters") for what in ratios)
    assert any(what.startswith("late parameters") for what in ratios)
    assert {what: ratio for what, ratio in ratios.items() if not ratio <= PRECISE_RATIO} == {}


NEAR_ONE = {  # the average is the newest gradient, and a step from the oldest one has the digits of that
    "Adam": {"betas": (0.0, 0.0)},
    "Adamax": {"betas": (0.0, 0.0)},
    "RMSprop": {"alpha": 0.0, "centered": True, "eps": 1e-3},
    "Adafactor": {"beta2_decay": 0.0},
}


@pytest.mark.parametrize("optimizer", NEAR_ONE)
def test_an_average_that_forgets_at_once_has_the_digits_of_the_newest(optimizer):
    ours, theirs = steps(optimizer, NEAR_ONE[optimizer], [10.0**k for k in (2, -2, 1, -3)])
    if optimizer == "RMSprop" and jax.__version_info__ >= (0, 12):
        pytest.skip("of one gradient the centered square is what is rounded, and XLA fuses it no more as PyTorch does")
    np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("optimizer", ["Rprop", "Adafactor"])
def test_a_gradient_that_is_nan_reaches_what_pytorchs_does(optimizer):
    ours, theirs = steps(optimizer, {}, [1.0, 1.0, 1.0], bad=2)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, equal_nan=True)


def steps(optimizer, arguments, scales, bad=-1):
    """A float32 parameter after steps of gradients of these sizes, one element of one of them NaN: ours, PyTorch's."""
    rng = np.random.default_rng(0)
    start = rng.standard_normal(12).astype(np.float32)
    theirs = torch.nn.Parameter(torch.tensor(start))
    stepper = getattr(torch.optim, optimizer)([theirs], lr=0.1, **arguments)
    tx = getattr(gm.optim, optimizer.lower())(lr=0.1, **arguments)
    params = {"p": jnp.asarray(start)}
    state = tx.init(params)
    for number, scale in enumerate(scales):
        gradient = (scale * rng.standard_normal(12)).astype(np.float32)
        if number == bad:
            gradient[3] = np.nan
        theirs.grad = torch.tensor(gradient)
        stepper.step()
        updates, state = jax.jit(tx.update)({"p": jnp.asarray(gradient)}, state, params)
        params = optax.apply_updates(params, updates)
    return np.asarray(params["p"]), theirs.detach().numpy()


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_keep_the_momentum_of_muon_as_pytorch_does(dtype, nesterov):
    """In bfloat16 without nesterov PyTorch scales the buffer itself."""
    rng = np.random.default_rng(0)
    theirs = torch.nn.Parameter(torch.ones(4, 6, dtype=getattr(torch, dtype)))
    stepper, tx = (make(nesterov=nesterov) for make in (lambda **a: torch.optim.Muon([theirs], **a), gm.optim.muon))
    params = {"p": jnp.ones((4, 6), dtype)}
    state = tx.init(params)
    for _ in range(3):
        gradient = rng.standard_normal((4, 6)) * 10
        theirs.grad = torch.tensor(gradient).to(theirs.dtype)
        stepper.step()
        _, state = tx.update({"p": jnp.asarray(gradient, dtype)}, state, params)
    kept = stepper.state[theirs]["momentum_buffer"].float().numpy()
    np.testing.assert_allclose(state.slots["momentum_buffer"]["p"].astype(float), kept, rtol=0.02, atol=0.01)


@pytest.mark.parametrize("optimizer", REFUSED)
def test_what_has_no_counterpart_says_what_to_use(optimizer):
    with pytest.raises(NotImplementedError, match=r"[Uu]se (optax\.lbfgs|gm\.optim\.adam)"):
        REFUSED[optimizer](lr=0.1)
