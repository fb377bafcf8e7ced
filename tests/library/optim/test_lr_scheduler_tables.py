"""Tables of functions, schedules by the epoch, and the reduction on a plateau."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scheduler_cases import COMPOSED, LEAVES, LR, OURS, TORCH, optimizer_at, stepped_by_torch
from torch.optim import lr_scheduler as theirs

from graphmode.optim import lr_scheduler as gl


@pytest.mark.parametrize("name", ["multiplicative, branch", "cosine, floor", "cyclic, halved", "one cycle"])
def test_a_table_of_a_scheduler(name: str):
    lrs, _ = stepped_by_torch(LEAVES[name], steps=100)
    with jax.enable_x64(True):
        table = jax.jit(jax.vmap(gl.tabulated(LEAVES[name](OURS, LR), 100)))(jnp.arange(100))
    np.testing.assert_allclose(table, lrs, rtol=1e-12)


def test_a_table_of_a_loop_is_exact_in_float32():
    make = COMPOSED["multiplicative, branch and cosine"]
    lrs, _ = stepped_by_torch(make)
    table = jax.jit(jax.vmap(gl.tabulated(make(OURS, LR), 150)))(jnp.arange(150))
    assert table.dtype == jnp.float32
    np.testing.assert_allclose(table, lrs.astype(np.float32), rtol=2.0**-23)


def test_past_the_table():
    table = gl.tabulated(lambda n: math.sqrt(n), 10)
    assert float(table(9)) == 3.0
    with pytest.raises(ValueError, match="count is 10, and the table ends at count 9"):
        table(10)
    with pytest.raises(ValueError, match="count is -1"):
        table(-1)
    traced = np.asarray(jax.jit(jax.vmap(table))(jnp.arange(-2, 12)))
    assert np.isnan(traced).tolist() == [True] * 2 + [False] * 10 + [True] * 2


def test_tables_that_cannot_be():
    with pytest.raises(ValueError, match="total_steps is 0"):
        gl.tabulated(math.sqrt, 0)
    with pytest.raises(TypeError, match=r"total_steps is 2\.5"):
        gl.tabulated(math.sqrt, 2.5)
    with pytest.raises(TypeError, match=r"schedule_or_fn is 0\.1"):
        gl.tabulated(0.1, 5)
    with pytest.raises(ValueError, match="count is 21, and schedule_or_fn ends at count 20"):
        gl.tabulated(gl.OneCycleLR(LR, 1.0, 20), 22)


@pytest.mark.parametrize("name", ["step", "linear, then cosine, floor", "one cycle"])
def test_once_an_epoch(name: str):
    make = {**LEAVES, **COMPOSED}[name]
    lrs, _ = stepped_by_torch(make, steps=50)
    with jax.enable_x64(True):
        schedule = gl.per_epoch(make(OURS, LR), 3)
        np.testing.assert_allclose(jax.jit(jax.vmap(schedule))(jnp.arange(150)), np.repeat(lrs, 3), rtol=1e-10)
        np.testing.assert_allclose([schedule(n) for n in range(150)], np.repeat(lrs, 3), rtol=1e-10)
    with pytest.raises(ValueError, match="steps_per_epoch is 0"):
        gl.per_epoch(schedule, 0)
    with pytest.raises(TypeError, match=r"steps_per_epoch is 1\.5"):
        gl.per_epoch(schedule, 1.5)


PLATEAUS = {
    "default": {},
    "patient": {"patience": 2, "factor": 0.5},
    "greatest": {"mode": "max", "patience": 0, "factor": 0.7, "cooldown": 3},
    "absolute": {"threshold_mode": "abs", "threshold": 0.05, "patience": 1, "min_lr": 0.01},
    "greatest absolute": {"mode": "max", "threshold_mode": "abs", "threshold": 0.1, "patience": 1, "eps": 1e-3},
}


@pytest.mark.parametrize("name", PLATEAUS)
@pytest.mark.parametrize("seed", range(3))
def test_plateau_steps_as_torch(name: str, seed: int):
    metrics = np.random.default_rng(seed).normal(size=80).cumsum()
    metrics[50] = np.nan
    optimizer = optimizer_at(LR)
    scheduler = TORCH.ReduceLROnPlateau(optimizer, **PLATEAUS[name])
    ours = gl.ReduceLROnPlateau(LR, **PLATEAUS[name])
    seen = set()
    for i, metric in enumerate(metrics):
        scheduler.step(metric)
        assert ours.step(metric) == ours.lr == optimizer.param_groups[0]["lr"]
        state = ours.state_dict()
        assert state.keys() == scheduler.state_dict().keys()
        assert state == scheduler.state_dict()
        seen.add(ours.lr)
        if i == 40:  # goes on from what either side saved
            ours = gl.ReduceLROnPlateau(1.0)
            ours.load_state_dict(scheduler.state_dict())
            other = TORCH.ReduceLROnPlateau(optimizer)
            other.load_state_dict(state)
            scheduler = other
    assert len(seen) > 1


def test_plateau_of_groups():
    import torch

    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [weights[0]], "lr": 0.1}, {"params": [weights[1]], "lr": 0.4}], lr=1.0)
    scheduler = theirs.ReduceLROnPlateau(optimizer, patience=0, factor=0.5, min_lr=[0.05, 0.01])
    ours = gl.ReduceLROnPlateau([0.1, 0.4], patience=0, factor=0.5, min_lr=[0.05, 0.01])
    assert gl.ReduceLROnPlateau((0.1, 0.4)).step(1.0) == (0.1, 0.4)
    for _ in range(6):
        scheduler.step(1.0)
        assert ours.step(jnp.ones(())) == [group["lr"] for group in optimizer.param_groups]
    assert ours.lr == [0.05, 0.4 / 2**5]
    ours.lr.append(1.0)
    assert len(ours.lr) == 2


def test_plateau_refuses():
    ours = gl.ReduceLROnPlateau(LR)
    with pytest.raises(TypeError, match="metrics is traced"):
        jax.jit(ours.step)(1.0)
    with pytest.raises(TypeError, match="metrics is None"):
        ours.step(None)
    state = ours.state_dict()
    with pytest.raises(ValueError, match="'best'"):
        ours.load_state_dict({key: value for key, value in state.items() if key != "best"})
    with pytest.raises(ValueError, match="2 parameter groups"):
        ours.load_state_dict(gl.ReduceLROnPlateau([0.1, 0.2]).state_dict())
    assert ours.state_dict() == state
