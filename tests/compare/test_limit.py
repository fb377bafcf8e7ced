"""How long causes are looked for: what this process computes counts, and not what it waits."""

import time

from graphmode.compare.parity.causes import limit as module
from graphmode.compare.parity.causes.limit import Limit


def clocks(monkeypatch, *, computed, by_the_clock):
    """From now on as if so many seconds more had gone by."""
    thread, clock = time.thread_time, time.monotonic
    monkeypatch.setattr(module.time, "thread_time", lambda: thread() + computed)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock() + by_the_clock)


def test_what_others_compute_meanwhile_takes_no_time_away(monkeypatch):
    limit = Limit(20.0)
    clocks(monkeypatch, computed=10.0, by_the_clock=40.0)
    assert not limit.is_over
    assert 40 <= limit.taken < 41


def test_it_is_over_after_what_was_computed_or_three_times_as_long_or_at_the_deadline(monkeypatch):
    limits = [Limit(20.0), Limit(100.0, time.monotonic() + 50.0)]
    with monkeypatch.context() as later:
        clocks(later, computed=21.0, by_the_clock=22.0)
        assert [limit.is_over for limit in limits] == [True, False]
    with monkeypatch.context() as later:
        clocks(later, computed=1.0, by_the_clock=61.0)
        assert [limit.is_over for limit in limits] == [True, True]
