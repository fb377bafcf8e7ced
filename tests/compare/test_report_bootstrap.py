"""Intervals against ratios known beforehand: one process a row, and several that each drew a speed of their own."""

from __future__ import annotations

import numpy as np
from graphmode.compare.report.bootstrap import interval


def repeats(seed: int, true: float, n: int = 40) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Two rows whose medians differ by `true`, each with its own noise and both with the drift of the repeat."""
    rng = np.random.default_rng(seed)
    drift = rng.lognormal(sigma=0.2, size=n)
    above, below = (drift * rng.lognormal(sigma=0.02, size=n) for _ in range(2))
    return tuple(true * above), tuple(below)


def test_interval_covers_the_true_ratio():
    covered = 0
    for seed in range(60):
        low, high = interval(*repeats(seed, 0.7))
        assert low <= high
        covered += low <= 0.7 <= high
    assert covered >= 52


def test_pairing_takes_out_the_drift_that_both_share():
    above, below = repeats(3, 0.7)
    paired = np.subtract(*interval(above, below)[::-1])
    apart = np.subtract(*interval(above, below[:-1])[::-1])
    assert paired < apart / 2


def test_interval_is_the_same_every_time():
    above, below = repeats(1, 1.3)
    first = interval(above, below)
    interval.cache_clear()
    assert interval(above, below) == first


def test_too_few_samples_have_no_interval():
    assert interval((1.0,) * 4, (1.0,) * 40) is None
    assert interval((), ()) is None


def processes(rng: np.random.Generator, count: int = 3, n: int = 20) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Repeats of one thing in processes whose speeds differ by 10 %, and repeats within one by 1 %."""
    speeds = rng.lognormal(sigma=0.1, size=count)
    samples = [speed * rng.lognormal(sigma=0.01, size=n) for speed in speeds]
    return tuple(np.concatenate(samples)), tuple(np.repeat(range(count), n))


def test_what_processes_differ_by_is_no_difference_of_rows():
    rng = np.random.default_rng(7)
    told = ignored = 0
    for _ in range(60):
        (above, above_of), (below, below_of) = processes(rng), processes(rng)
        low, high = interval(above, below, (above_of, below_of))
        told += low <= 1 <= high
        low, high = interval(above, below)
        ignored += low <= 1 <= high
    assert told >= 52
    assert ignored < 30


def test_the_order_of_samples_does_not_matter_where_their_process_is_told():
    rng = np.random.default_rng(8)
    above, of = processes(rng)
    order = rng.permutation(len(above))
    low, high = interval(above, (1.0,) * 60, (of, ()))
    mixed = interval(tuple(np.take(above, order)), (1.0,) * 60, (tuple(np.take(of, order)), ()))
    np.testing.assert_allclose(mixed, (low, high), rtol=0.02)
