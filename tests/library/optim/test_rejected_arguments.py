"""Arguments that PyTorch's optimizers reject are rejected here."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import graphmode as gm

WITH_EPS = ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop"]
WITH_DECAY = [*WITH_EPS, "Adafactor", "ASGD", "Muon", "SGD"]
REJECTED = [
    *((name, {"lr": -0.1}) for name in [*WITH_DECAY, "Rprop"]),
    *((name, {"weight_decay": -1.0}) for name in WITH_DECAY),
    *((name, {"eps": -1e-8}) for name in WITH_EPS),
    *(
        (name, {"betas": betas})
        for name in ["Adam", "AdamW", "Adamax", "NAdam", "RAdam"]
        for betas in [(1.0, 0.9), (-0.1, 0.9), (0.9, 1.0), (0.9, -0.1)]
    ),
    ("Adadelta", {"rho": 1.1}),
    ("Adadelta", {"rho": -0.1}),
    ("Adafactor", {"beta2_decay": 0.1}),
    ("Adafactor", {"eps": (-1.0, 1e-3)}),
    ("Adafactor", {"eps": (None, -1.0)}),
    ("Adafactor", {"d": 0.5}),
    ("Adagrad", {"lr_decay": -0.5}),
    ("Adagrad", {"initial_accumulator_value": -1.0}),
    ("Muon", {"momentum": -0.1}),
    ("Muon", {"adjust_lr_fn": "arbitrary"}),
    ("NAdam", {"momentum_decay": -0.2}),
    ("RMSprop", {"momentum": -1.0}),
    ("RMSprop", {"alpha": -1.0}),
    ("Rprop", {"etas": (1.0, 0.5)}),
    ("Rprop", {"etas": (0.0, 1.2)}),
    ("Rprop", {"etas": (0.5, 1.0)}),
    ("SGD", {"momentum": -0.5}),
    ("SGD", {"nesterov": True}),
    ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.5}),
]


@pytest.mark.parametrize(("name", "arguments"), REJECTED, ids=str)
def test_both_reject(name, arguments):
    with pytest.raises(ValueError):  # noqa: PT011 - PyTorch's own words
        getattr(torch.optim, name)([torch.nn.Parameter(torch.zeros(2, 2))], **arguments)
    with pytest.raises(ValueError, match=next(iter(arguments))):
        getattr(gm.optim, name.lower())(**arguments)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: gm.optim.adam(betas=0.9), "betas is 0.9; give two numbers in a tuple"),
        (lambda: gm.optim.radam(betas=(0.9,)), r"betas is \(0.9,\); give two numbers"),
        (lambda: gm.optim.rprop(etas=0.5), "etas is 0.5; give two numbers"),
        (lambda: gm.optim.rprop(step_sizes=50.0), "step_sizes is 50.0; give two numbers"),
        (lambda: gm.optim.adafactor(eps=1e-3), "eps is 0.001; give two numbers"),
        (lambda: gm.optim.muon(ns_coefficients=(1.0, 2.0)), r"ns_coefficients is \(1.0, 2.0\); give three numbers"),
    ],
)
def test_one_number_for_several(make, told):
    with pytest.raises(ValueError, match=told):
        make()


@pytest.mark.parametrize("lr", ["fast", None, [0.1], gm.optim.lr_scheduler.StepLR], ids=str)
def test_a_rate_that_is_no_number(lr):
    with pytest.raises(TypeError, match=r"^lr is .* and a number or a schedule was wanted"):
        gm.optim.adam(lr=lr)


@pytest.mark.parametrize("lr", [np.float32(0.1), jnp.asarray(0.1), 1])
def test_a_rate_may_be_any_number(lr):
    params = {"w": jnp.ones(3)}
    transform = gm.optim.sgd(lr)
    updates, _ = transform.update(params, transform.init(params), params)
    np.testing.assert_allclose(updates["w"], -float(lr), rtol=1e-6)


def test_muons_eps_is_a_number():
    with pytest.raises(TypeError, match=r"eps is \(-1\.0, 0\.001\), and a number"):
        gm.optim.muon(eps=(-1.0, 1e-3))


OPTIMIZERS = [*WITH_DECAY, "Rprop"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_how_pytorch_computes_a_step_is_without_effect(name):
    make = getattr(gm.optim, name.lower())
    plain = make()
    for value in (True, False, None):
        tx = make(foreach=value, fused=value, capturable=value, differentiable=value)
        assert (tx.rule, tx.arguments) == (plain.rule, plain.arguments)
    with pytest.raises(TypeError, match="foreach is 3; leave it out, or give a bool"):
        make(foreach=3)
    with pytest.raises(TypeError, match=f"{name.lower()} has no argument weight_decy; it has lr, .* and groups"):
        make(weight_decy=0.1)
