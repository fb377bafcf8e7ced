"""The knee of a batch sweep is where a planted fixed part and part for each item are equal, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from graphmode.compare.report.records import Cell
from graphmode.compare.report.sweeps import MAX_MISFIT, Sweep, sweeps

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def swept(times: dict[int | None, float]) -> list[Sweep]:
    fields = {"case": "c", "variant": "default", "row": "jax.jit", "mode": "inference", "device": "gpu"}
    cells = [Cell(**fields, dtype="float32", status="ok", median_s=t, batch=batch) for batch, t in times.items()]
    return list(sweeps(cells))


def sweep(times: dict[int | None, float]) -> Sweep:
    (only,) = swept(times)
    return only


@pytest.mark.parametrize(("fixed", "per_item"), [(40e-6, 1e-6), (1e-3, 2e-4), (5e-6, 4e-6)])
def test_a_planted_knee_is_found(fixed, per_item):
    rng = np.random.default_rng(3)
    found = sweep({b: (fixed + per_item * b) * rng.lognormal(sigma=0.02) for b in BATCHES})
    assert found.fixed_s == pytest.approx(fixed, rel=0.15)
    assert found.per_item_s == pytest.approx(per_item, rel=0.1)
    if fixed / per_item > 1.5:
        assert found.knee == pytest.approx(fixed / per_item, rel=0.2)
    assert found.misfit < 0.08


def test_no_knee_outside_what_was_measured():
    flat, steep = sweep({b: 1e-3 + 1e-9 * b for b in BATCHES}), sweep({b: 1e-6 * b for b in BATCHES})
    assert flat.knee is None
    assert flat.fixed_s == pytest.approx(1e-3, rel=1e-3)
    assert steep.knee is None
    assert steep.per_item_s == pytest.approx(1e-6, rel=1e-3)
    assert steep.fixed_s < 1e-9


def test_parts_are_never_negative():
    falling = sweep({1: 1.2e-3, 2: 1.1e-3, 3: 1.05e-3, 4: 1.0e-3})
    assert falling.fixed_s > 0
    assert falling.per_item_s == 0


def test_no_line_where_none_fits():
    jagged = sweep({b: 1e-3 * (1 + 9 * (i % 2)) for i, b in enumerate(BATCHES)})
    assert (jagged.fixed_s, jagged.per_item_s, jagged.misfit, jagged.knee) == (None, None, None, None)
    assert 0 < MAX_MISFIT < 1
    assert jagged.batches == list(BATCHES)


def test_too_few_sizes_have_no_line_and_own_inputs_are_no_size():
    assert sweep({1: 1.0, 2: 2.0, 4: 4.0}).knee is None
    assert sweep({1: 1.0, 2: 2.0, None: 9.0}).batches == [1, 2]
    assert swept({None: 1.0}) == []
    assert swept({8: 1.0}) == []
