"""Interleaved timing: whose turn it is, when a competitor is done, and a deadline that goes through everything."""

import itertools
import time

import numpy as np
import pytest
from graphmode.compare.speed import timing
from graphmode.compare.speed.timing import Expired, Timed, deadline, interleave, relative_width


def competitor(name, seconds, order, side=""):
    def take(offset, calls):
        order.append((name, offset, calls))
        return next(seconds) if calls else 0.0

    return Timed(take, lambda: 7, warm_s=1e-5 if name == "short" else 2.0, side=side)


def test_interleave_takes_turns_and_counts_calls():
    order = []
    short = competitor("short", itertools.cycle([1e-5, 1.2e-5]), order)
    long = competitor("long", itertools.repeat(0.5), order, side="jax")
    interleave([short, long], budget_s=1e9, repeats=6)
    assert all({*order[i : i + 2]} == {("short", i // 2, 7), ("long", i // 2, 1)} for i in range(0, 12, 2))
    assert short.repeats == long.repeats == list(range(6))
    assert (short.calls_per_sample, long.calls_per_sample) == (7, 1)
    assert (short.median, long.median) == (pytest.approx(1.1e-5), 0.5)


def test_a_row_that_was_slow_while_others_were_prepared_is_calibrated():
    held_up = Timed(lambda offset, calls: 1e-5, lambda: 200, warm_s=0.3)
    interleave([held_up], budget_s=1e9, repeats=5)
    assert held_up.is_short
    assert held_up.calls_per_sample == 200


def test_what_runs_before_a_competitor_is_another_each_time():
    order = []
    names = ["a", "b", "c", "d"]
    interleave([competitor(name, itertools.repeat(0.1), order) for name in names], budget_s=1e9, repeats=20)
    before = {(one, other) for (one, *_), (other, *_) in itertools.pairwise(order) if one != other}
    assert len(before) == len(names) * (len(names) - 1)


def test_a_competitor_of_more_than_twice_the_fastest_has_five_samples():
    wild = competitor("wild", itertools.cycle([0.1, 0.15]), [])
    behind = competitor("behind", itertools.cycle([0.3, 0.4]), [])
    at_times = competitor("at times", itertools.cycle([0.2, 0.9]), [])  # a neighbour's work may be all of it
    interleave([wild, behind, at_times], budget_s=1e9, repeats=10)
    assert [len(one.samples) for one in (wild, behind, at_times)] == [10, 5, 10]


def test_a_competitor_ends_when_its_median_is_known_or_its_budget_is_spent():
    steady = competitor("steady", itertools.repeat(0.1), [])
    wild = competitor("wild", itertools.cycle([0.1, 0.2, 0.4]), [])
    far = competitor("far", itertools.repeat(3.0), [])
    other = competitor("other", itertools.repeat(3.0), [], side="jax")
    interleave([steady, wild, far, other], budget_s=5)
    assert len(steady.samples) == timing.ENOUGH_REPEATS
    assert 5 / 0.24 < len(wild.samples) <= timing.MOST_REPEATS
    assert len(far.samples) == 3
    assert len(other.samples) == 5


def test_the_width_of_a_medians_interval():
    assert relative_width([1.0] * 4) == np.inf
    assert relative_width([1.0] * 5) == 0
    random = np.random.default_rng(0)
    draws = [relative_width(random.normal(10, 1, 100)) for _ in range(200)]
    assert np.mean(draws) == pytest.approx(2 * 1.96 * np.sqrt(np.pi / 2 / 100) * 0.1, rel=0.15)


def test_a_competitor_that_raises_is_out_and_keeps_its_error():
    def fail(offset, calls):
        raise RuntimeError("broke")

    good, bad = competitor("good", itertools.repeat(0.01), []), Timed(fail)
    interleave([good, bad], budget_s=0.01)
    assert str(bad.error) == "broke"
    assert not bad.samples
    assert len(good.samples) >= 5


def stubborn():
    try:
        while True:
            time.sleep(0.01)
    except Exception:
        pytest.fail("an ordinary handler must not stop it")


def test_deadline_goes_through_except_exception():
    with pytest.raises(Expired), deadline(0.05):
        stubborn()
    with deadline(10):
        pass
