"""Every scheduler against torch's own, stepped: in float64, for all counts in one graph, and for ints."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_cases import COMPOSED, COMPOSED_TOO, LEAVES, LR, OURS, STEPS, Build, stepped_by_torch

from graphmode.optim import lr_scheduler

CASES = {**LEAVES, **COMPOSED, **COMPOSED_TOO}
OTHERWISE_BEFORE = ("milestone zero", "composite skipped")
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in COMPOSED_TOO]


def of_all_counts(schedule, steps: int = STEPS, dtype=jnp.int32) -> np.ndarray:
    """In one graph, traced once."""
    traces = []

    @jax.jit
    def graph(counts):
        traces.append(counts)
        return jax.vmap(schedule)(counts)

    values = graph(jnp.arange(steps, dtype=dtype))
    graph(jnp.arange(steps, dtype=dtype) + 1)
    assert len(traces) == 1
    return np.asarray(values)


def assert_same(ours: np.ndarray, theirs: np.ndarray, lr: float = LR) -> None:
    """To 1e-10 of the value; where torch's recursion reaches zero by rounding, to the rounding of lr."""
    assert ours.dtype == np.float64
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-15 * lr)


@pytest.mark.parametrize("name", [*LEAVES, *COMPOSED, *SLOW])
def test_values_are_those_of_torch(name: str):
    if name in OTHERWISE_BEFORE and TORCH < (2, 13):
        pytest.skip("SequentialLR begins at another rate before PyTorch 2.13")
    lrs, momenta = stepped_by_torch(CASES[name])
    with jax.enable_x64(True):
        schedule = CASES[name](OURS, LR)
        assert_same(of_all_counts(schedule), lrs)
        some = range(STEPS) if name in LEAVES else [*range(14), *range(19, STEPS, 10)]
        assert_same(np.asarray([schedule(n) for n in some]), lrs[some])
        if momentum := getattr(schedule, "momentum", None):
            assert_same(of_all_counts(momentum), momenta)
            assert_same(np.asarray([momentum(n) for n in range(STEPS)]), momenta)
        else:
            assert name not in LEAVES or (momenta == 0.9).all()


@pytest.mark.parametrize("name", LEAVES)
def test_float32_is_good_to_a_few_units(name: str):
    schedule = CASES[name](OURS, LR)
    with jax.enable_x64(True):
        exact = np.asarray([schedule(n) for n in range(STEPS)])
    got = of_all_counts(schedule)
    assert got.dtype == np.float32
    many = 100 if "multiplicative" in name or name == "lambda" else 8  # a rounding a step, or the user's own power
    np.testing.assert_allclose(got, exact, rtol=many * 2.0**-24, atol=1e-7 * 1e-3 * LR)
    eager = np.asarray([schedule(n) for n in range(STEPS)])
    assert eager.dtype == np.float32
    if "own" not in name and "branch" not in name:
        np.testing.assert_array_equal(eager, exact.astype(np.float32))


def test_powers_keep_their_precision_at_any_count():
    counts = np.asarray([0, 1, 255, 256, 65535, 65536, 100_000, 1_234_567, 10_000_000], np.int32)
    gamma = 0.999999
    exact = LR * np.exp(counts * np.log1p(np.longdouble(gamma) - 1))
    schedule = lr_scheduler.ExponentialLR(LR, gamma=gamma)
    got = np.asarray(jax.jit(jax.vmap(schedule))(counts), np.float64)
    np.testing.assert_allclose(got, exact.astype(np.float64), rtol=6 * 2.0**-24)


FINITE = {"allow_nan": False, "allow_infinity": False}
RATES = st.floats(1e-4, 2.0)


def agrees(make: Build, lr: float, steps: int = 40) -> None:
    lrs, momenta = stepped_by_torch(make, lr, steps)
    with jax.enable_x64(True):
        schedule = make(OURS, lr)
        assert_same(of_all_counts(schedule, steps), lrs, lr)
        if momentum := getattr(schedule, "momentum", None):
            assert_same(of_all_counts(momentum, steps), momenta, 1.0)


@settings(max_examples=12)
@given(lr=RATES, up=st.integers(1, 20), down=st.integers(0, 20), base=RATES, top=RATES, gamma=st.floats(0.8, 1.05))
def test_any_cyclic(lr, up, down, base, top, gamma):
    agrees(lambda s, o: s.CyclicLR(o, base, top, up, down, mode="exp_range", gamma=gamma), lr)


@settings(max_examples=12)
@given(
    lr=RATES,
    top=RATES,
    total=st.integers(40, 90),
    pct=st.floats(0.03, 0.97),
    strategy=st.sampled_from(["cos", "linear"]),
    three=st.booleans(),
)
def test_any_one_cycle(lr, top, total, pct, strategy, three):
    if abs(pct * total - 1) < 1e-3:  # torch divides by a length of next to nothing
        return
    agrees(lambda s, o: s.OneCycleLR(o, top, total, pct_start=pct, anneal_strategy=strategy, three_phase=three), lr)


@settings(max_examples=12)
@given(lr=RATES, T_max=st.integers(1, 60), eta_min=st.floats(0.0, 1.0), start=st.integers(1, 30))
def test_any_cosine_after_warmup(lr, T_max, eta_min, start):
    agrees(
        lambda s, o: s.SequentialLR(o, [s.LinearLR(o), s.CosineAnnealingLR(o, T_max, eta_min)], milestones=[start]), lr
    )


@settings(max_examples=12)
@given(lr=RATES, T_0=st.integers(1, 30), T_mult=st.integers(1, 4), eta_min=st.floats(0.0, 1.0))
def test_any_restarts(lr, T_0, T_mult, eta_min):
    agrees(lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0, T_mult, eta_min), lr)


@settings(max_examples=12)
@given(lr=RATES, milestones=st.lists(st.integers(0, 45), max_size=8), gamma=st.floats(0.3, 1.5))
def test_any_milestones(lr, milestones, gamma):
    agrees(lambda s, o: s.MultiStepLR(o, milestones, gamma), lr)


@settings(max_examples=12)
@given(lr=RATES, swa_lr=RATES, epochs=st.integers(0, 50), strategy=st.sampled_from(["cos", "linear"]))
def test_any_swa(lr, swa_lr, epochs, strategy):
    agrees(lambda s, o: s.SWALR(o, swa_lr, epochs, strategy), lr)


def test_in_an_optimizer_and_a_scan():
    make = COMPOSED["linear, then cosine, floor"]
    lrs, _ = stepped_by_torch(make)
    sgd = optax.sgd(make(OURS, LR))

    def step(carry, _):
        weight, state = carry
        updates, state = sgd.update(jnp.ones(()), state)
        return (optax.apply_updates(weight, updates), state), -updates

    with jax.enable_x64(True):
        weight = jnp.zeros(())
        _, seen = jax.lax.scan(step, (weight, sgd.init(weight)), length=STEPS)
    np.testing.assert_allclose(np.asarray(seen), lrs, rtol=1e-10)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16, jnp.uint32, jnp.int64])
def test_any_integer_counts(dtype):
    lrs, _ = stepped_by_torch(COMPOSED["linear, then cosine, floor"])
    with jax.enable_x64(True):
        schedule = COMPOSED["linear, then cosine, floor"](OURS, LR)
        assert_same(of_all_counts(schedule, 100, dtype), lrs[:100])
        assert_same(np.asarray([schedule(dtype(n)) for n in range(100)]), lrs[:100])


def test_schedules_are_values():
    """Equal and hashable, so that one can be a static argument."""
    one = lr_scheduler.CosineAnnealingLR(LR, T_max=4)
    assert one == lr_scheduler.CosineAnnealingLR(LR, T_max=4)
    assert len({one, lr_scheduler.CosineAnnealingLR(LR, T_max=4), lr_scheduler.CosineAnnealingLR(LR, T_max=5)}) == 2
