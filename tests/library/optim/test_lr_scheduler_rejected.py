"""What torch's schedulers refuse is refused here, by name; and what ends in torch ends here."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scheduler_cases import LR, OURS, TORCH, optimizer_at, stepped_by_torch

from graphmode.optim import lr_scheduler as gl

# name: the expression, and what our message says
REFUSED = {
    "constant above": (lambda s, o: s.ConstantLR(o, factor=1.1), "factor is 1.1"),
    "constant below": (lambda s, o: s.ConstantLR(o, factor=-0.1), "factor is -0.1"),
    "linear start zero": (lambda s, o: s.LinearLR(o, start_factor=0), "start_factor is 0"),
    "linear start above": (lambda s, o: s.LinearLR(o, start_factor=1.01), "start_factor is 1.01"),
    "linear end above": (lambda s, o: s.LinearLR(o, end_factor=2), "end_factor is 2"),
    "linear end below": (lambda s, o: s.LinearLR(o, end_factor=-1), "end_factor is -1"),
    "lambda number": (lambda s, o: s.LambdaLR(o, 0.9), "lr_lambda is 0.9"),
    "lambda list": (lambda s, o: s.LambdaLR(o, [math.exp, math.exp]), "lr_lambda is"),
    "multiplicative number": (lambda s, o: s.MultiplicativeLR(o, 0.9), "lr_lambda is 0.9"),
    "milestones number": (lambda s, o: s.MultiStepLR(o, 30), "milestones is 30"),
    "restarts zero": (lambda s, o: s.CosineAnnealingWarmRestarts(o, 0), "T_0 is 0"),
    "restarts float": (lambda s, o: s.CosineAnnealingWarmRestarts(o, 1.5), "T_0 is 1.5"),
    "restarts mult zero": (lambda s, o: s.CosineAnnealingWarmRestarts(o, 1, 0), "T_mult is 0"),
    "restarts mult float": (lambda s, o: s.CosineAnnealingWarmRestarts(o, 1, 1.5), "T_mult is 1.5"),
    "restarts floor": (lambda s, o: s.CosineAnnealingWarmRestarts(o, 1, 1, "0"), "eta_min is '0'"),
    "cyclic mode": (lambda s, o: s.CyclicLR(o, 0.1, 1.0, mode="square"), "mode is 'square'"),
    "cyclic size": (lambda s, o: s.CyclicLR(o, 0.1, 1.0, 0), "step_size_up is 0"),
    "cyclic rates": (lambda s, o: s.CyclicLR(o, [0.1, 0.2], 1.0), "base_lr is"),
    "one cycle length": (lambda s, o: s.OneCycleLR(o, 1.0), "total_steps is None"),
    "one cycle epochs alone": (lambda s, o: s.OneCycleLR(o, 1.0, epochs=3), "total_steps is None"),
    "one cycle zero": (lambda s, o: s.OneCycleLR(o, 1.0, 0), "total_steps is 0"),
    "one cycle float": (lambda s, o: s.OneCycleLR(o, 1.0, 1.5), "total_steps is 1.5"),
    "one cycle no epochs": (lambda s, o: s.OneCycleLR(o, 1.0, epochs=0, steps_per_epoch=1), "epochs is 0"),
    "one cycle steps": (lambda s, o: s.OneCycleLR(o, 1.0, epochs=1, steps_per_epoch=2.0), "steps_per_epoch is 2.0"),
    "one cycle start": (lambda s, o: s.OneCycleLR(o, 1.0, 9, pct_start=1.1), "pct_start is 1.1"),
    "one cycle start int": (lambda s, o: s.OneCycleLR(o, 1.0, 9, pct_start=1), "pct_start is 1"),
    "one cycle strategy": (lambda s, o: s.OneCycleLR(o, 1.0, 9, anneal_strategy="sin"), "anneal_strategy is 'sin'"),
    "one cycle rise of one": (lambda s, o: s.OneCycleLR(o, 1.0, 10, pct_start=0.1), "pct_start is 0.1"),
    "one cycle div": (lambda s, o: s.OneCycleLR(o, 1.0, 10, div_factor=0), "div_factor is 0"),
    "one cycle final div": (lambda s, o: s.OneCycleLR(o, 1.0, 10, final_div_factor=0), "final_div_factor is 0"),
    "swa strategy": (lambda s, o: s.SWALR(o, 0.1, anneal_strategy="sin"), "anneal_strategy is 'sin'"),
    "swa negative": (lambda s, o: s.SWALR(o, 0.1, -1), "anneal_epochs is -1"),
    "swa float": (lambda s, o: s.SWALR(o, 0.1, 2.0), "anneal_epochs is 2.0"),
    "sequence empty": (lambda s, o: s.SequentialLR(o, [], []), "schedulers is empty"),
    "sequence milestones": (lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [3]), "milestones has 1 entries"),
    "sequence member": (lambda s, o: s.SequentialLR(o, [0.1], []), r"schedulers\[0\] is 0.1"),
    "sequence plateau": (lambda s, o: s.SequentialLR(o, [s.ReduceLROnPlateau(o)], []), "ReduceLROnPlateau"),
    "chain empty": (lambda s, o: s.ChainedScheduler([]), "schedulers is empty"),
    "chain member": (lambda s, o: s.ChainedScheduler([0.1], o), r"schedulers\[0\] is 0.1"),
    "chain plateau": (lambda s, o: s.ChainedScheduler([s.ReduceLROnPlateau(o)]), "ReduceLROnPlateau"),
    "plateau factor": (lambda s, o: s.ReduceLROnPlateau(o, factor=1.0), "factor is 1.0"),
    "plateau mode": (lambda s, o: s.ReduceLROnPlateau(o, mode="least"), "mode is 'least'"),
    "plateau threshold": (lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="part"), "threshold_mode is 'part'"),
    "plateau floors": (lambda s, o: s.ReduceLROnPlateau(o, min_lr=[0.1, 0.2]), "min_lr has 2 entries"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_torch_refuses(name: str):
    make, says = REFUSED[name]
    with pytest.raises(Exception) as theirs:  # noqa: PT011  ZeroDivisionError and AttributeError among them
        make(TORCH, optimizer_at(LR))
    assert not isinstance(theirs.value, AssertionError)
    with pytest.raises((ValueError, TypeError), match=says):
        make(OURS, LR)


# torch raises at a later step, or as it begins to step
LATER = {
    "step size zero": (lambda s, o: s.StepLR(o, 0), 1, "step_size is 0"),
    "cosine length zero": (lambda s, o: s.CosineAnnealingLR(o, 0), 1, "T_max is 0"),
    "composite at a milestone": (
        lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1), s.ChainedScheduler([s.StepLR(o, 1)])], [2]),
        2,
        r"schedulers\[1\] is a ChainedScheduler",
    ),
    "linear of none at a milestone": (
        lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1), s.LinearLR(o, total_iters=0)], [2]),
        2,
        "divides by zero at milestone 2",
    ),
}


@pytest.mark.parametrize("name", LATER)
def test_refused_at_once_where_torch_fails_later(name: str):
    make, step, says = LATER[name]
    stepped_by_torch(make, steps=step)
    with pytest.raises(Exception):  # noqa: B017, PT011  ZeroDivisionError, NotImplementedError
        stepped_by_torch(make, steps=step + 1)
    with pytest.raises(ValueError, match=says):
        make(OURS, LR)


ENDING = {
    "one cycle": (lambda s, o: s.OneCycleLR(o, 1.0, 20), 20),
    "one cycle, late": (lambda s, o: s.OneCycleLR(o, 1.0, 20, pct_start=1.0), 19),
    "constant zero": (lambda s, o: s.ConstantLR(o, factor=0.0, total_iters=7), 6),
    "polynomial, negative": (lambda s, o: s.PolynomialLR(o, total_iters=7, power=-1.0), 6),
    "in a sequence": (lambda s, o: s.SequentialLR(o, [s.StepLR(o, 3), s.OneCycleLR(o, 1.0, 20)], [5]), 25),
    "in a chain": (lambda s, o: s.ChainedScheduler([s.OneCycleLR(o, 1.0, 20), s.StepLR(o, 3)]), 20),
    "cut short": (lambda s, o: s.SequentialLR(o, [s.OneCycleLR(o, 1.0, 20), s.StepLR(o, 3)], [21]), None),
    "not cut short": (lambda s, o: s.SequentialLR(o, [s.OneCycleLR(o, 1.0, 20), s.StepLR(o, 3)], [22]), 20),
}


@pytest.mark.parametrize("name", ENDING)
def test_ends_where_torch_ends(name: str):
    make, last = ENDING[name]
    with jax.enable_x64(True):
        schedule = make(OURS, LR)
        inside = stepped_by_torch(make, steps=(40 if last is None else last + 1))[0]
        traced = np.asarray(jax.jit(jax.vmap(schedule))(jnp.arange(40)))
        np.testing.assert_allclose(traced[: len(inside)], inside, rtol=1e-10)
        assert np.isnan(traced[len(inside) :]).all()
        if last is not None:
            with pytest.raises((ValueError, ZeroDivisionError)):
                stepped_by_torch(make, steps=last + 2)
            schedule(last)
            with pytest.raises(ValueError, match=f"count is {last + 1}, and .* ends at count {last}"):
                schedule(last + 1)


def test_negative_counts():
    schedule = gl.StepLR(LR, 3)
    with pytest.raises(ValueError, match="count is -1"):
        schedule(-1)
    assert jnp.isnan(jax.jit(schedule)(-1))


@pytest.mark.parametrize("count", [1.0, True, None, "1", np.float32(1), jnp.arange(3)], ids=repr)
def test_counts_that_are_none(count):
    with pytest.raises(TypeError, match="count"):
        gl.StepLR(LR, 3)(count)


@pytest.mark.parametrize("lr", [-0.1, float("nan")])
def test_learning_rates_that_torch_refuses(lr: float):
    with pytest.raises(ValueError, match="Invalid learning rate"):
        torch.optim.Adam([torch.zeros(1)], lr=lr)  # SGD takes a NaN
    for make in (lambda: gl.StepLR(lr, 3), lambda: gl.ReduceLROnPlateau(lr), lambda: gl.SequentialLR(lr, [], [])):
        with pytest.raises(ValueError, match="lr is"):
            make()


def test_arguments_of_other_types():
    with pytest.raises(TypeError, match=r"lr is \[0.1, 0.2\].*one schedule each"):
        gl.StepLR([0.1, 0.2], 3)
    with pytest.raises(TypeError, match=r"step_size is 2\.5"):
        gl.StepLR(LR, 2.5)
    with pytest.raises(TypeError, match="lr is traced"):
        jax.jit(lambda lr: gl.StepLR(lr, 3)(0))(LR)
    with pytest.raises(ValueError, match=r"schedulers\[1\].lr is 0.2 where schedulers\[0\].lr is 0.1"):
        gl.ChainedScheduler([gl.StepLR(0.1, 3), gl.StepLR(0.2, 3)])
    with pytest.raises(ValueError, match=r"schedulers\[0\].lr is 0.1 where lr is 0.2"):
        gl.SequentialLR(0.2, [gl.StepLR(0.1, 3)], [])
    with pytest.raises(ValueError, match="which decreases"):
        gl.SequentialLR(0.1, [gl.StepLR(0.1, 3)] * 3, [5, 4])
    with pytest.raises(ValueError, match="scale_mode is 'iteration'"):
        gl.CyclicLR(LR, 0.1, 0.2, scale_fn=abs, scale_mode="iteration")


UNTRACEABLE = {
    "if": lambda n: 1.0 if n < 10 else 0.5,
    "math": lambda n: math.exp(-0.1 * n),
    "list": lambda n: [1.0] * 50 + [0.5] * 100 and [0.1 * i for i in range(150)][n],
    "set": lambda n: 0.5 if n in {1, 2} else 1.0,
}


@pytest.mark.parametrize("name", UNTRACEABLE)
def test_functions_that_do_not_trace(name: str):
    function = UNTRACEABLE[name]
    for argument, make in {
        "lr_lambda": lambda f: gl.LambdaLR(LR, f),
        "lr_lambda ": lambda f: gl.MultiplicativeLR(LR, f),
        "scale_fn": lambda f: gl.CyclicLR(LR, 0.1, 0.2, 5, scale_fn=f, scale_mode="iterations"),
    }.items():
        schedule = make(function)
        with pytest.raises(TypeError, match=rf"{argument.strip()} failed .* jnp.where or jax.lax.cond .* tabulated"):
            jax.jit(schedule)(3)
        with jax.enable_x64(True):
            traced = jax.jit(jax.vmap(make(gl.tabulated(function, 60))))(jnp.arange(40))
            np.testing.assert_allclose(traced, [schedule(n) for n in range(40)], rtol=1e-12)
            whole = jax.jit(jax.vmap(gl.tabulated(schedule, 40)))(jnp.arange(40))
            np.testing.assert_allclose(whole, [schedule(n) for n in range(40)], rtol=1e-12)


def test_functions_of_other_shapes():
    with pytest.raises(TypeError, match=r"lr_lambda gave .* for 0, and a number was wanted"):
        gl.LambdaLR(LR, lambda n: jnp.ones(2))(3)
    with pytest.raises(TypeError, match=r"lr_lambda gave an array of shape \(2,\)"):
        jax.jit(gl.MultiplicativeLR(LR, lambda n: jnp.ones(2)))(3)
