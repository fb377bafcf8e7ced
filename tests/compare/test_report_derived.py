"""Distances to the floor, host shares and counted reasons against numbers worked out by hand."""

from __future__ import annotations

import pytest
from graphmode.compare.report.derived import derive, paired
from graphmode.compare.report.ratios import PassRate
from graphmode.compare.report.records import Cell, Floors, Launches, Parity, Work

FLOORS = Floors(bytes_per_s=1e9, flops_per_s={"float32": 1e12}, launch_s={})


def cell(row: str, median: float | None, **more) -> Cell:
    fields = {"case": "c", "variant": "default", "mode": "inference", "device": "gpu", "dtype": "float32"} | more
    status = "ok" if median else "failed"
    samples = [median] * 12 if median else []
    return Cell(row=row, median_s=median, samples_s=samples, status=status, reason="" if median else "no", **fields)


def work(**more) -> Work:
    return Work(**({"case": "c", "mode": "inference", "dtype": "float32", "flops": 3e9, "bytes": 1e6} | more))


def test_by_hand():
    cells = [
        cell("torch.eager", 0.012, enqueue_s=0.009),
        cell("torch.compile", 0.006, compile_s=1.0),
        cell("jax.jit", 0.0045, compile_s=4.0, noisy=True),
        cell("jax.graphed", None),
    ]
    found = derive(cells, floors=FLOORS, work=[work()])
    ((group, one),) = paired(cells, found)
    assert (one.fastest_jax, one.fastest_torch) == (("jax.jit", "default"), ("torch.compile", "default"))
    assert one.best.value == pytest.approx(0.75)
    assert (one.verdict, one.noisy, one.break_even_calls) == ("faster", True, 2000)
    assert one.floor_s == pytest.approx(3e-3)  # operations; the bytes take a millisecond
    assert one.flops_per_byte == pytest.approx(3000)
    eager, compiled, jitted = one.rows
    assert [r.to_floor for r in one.rows] == pytest.approx([4.0, 2.0, 1.5])
    assert (eager.host_share, compiled.host_share) == (pytest.approx(0.75), None)
    assert jitted.flops_per_s == pytest.approx(3e9 / 0.0045)
    assert jitted.to_eager.value == pytest.approx(0.375)
    assert one.of(group.fastest_jax) is jitted
    assert one.of(None) is None
    assert found.pass_rates == {"jax": PassRate(1, 2, 0.5), "torch": PassRate(2, 2, 1.0)}


@pytest.mark.parametrize("other", [{"case": "d"}, {"mode": "train_step"}, {"dtype": "bfloat16"}, {"batch": 8}])
def test_work_of_something_else_gives_no_floor(other):
    (one,) = derive([cell("jax.jit", 1.0)], floors=FLOORS, work=[work(**other)]).comparisons
    assert (one.floor_s, one.flops_per_byte, one.rows[0].to_floor, one.rows[0].flops_per_s) == (None,) * 4


def test_without_a_peak_of_the_dtype_there_is_no_floor():
    cells = [cell("jax.jit", 1.0, dtype="bfloat16")]
    (one,) = derive(cells, floors=FLOORS, work=[work(dtype="bfloat16")]).comparisons
    assert one.floor_s is None
    assert one.flops_per_byte == pytest.approx(3000)


def test_reasons_are_counted_over_own_inputs_alone():
    def pair(case: str, jax: float, kernels: int | None, **more) -> list[Cell]:
        counts = [Launches(kernels=k) if kernels else None for k in (100, kernels)]
        return [
            cell("torch.eager", 1.0, case=case, launches=counts[0], **more),
            cell("jax.jit", jax, case=case, launches=counts[1], **more),
        ]

    cells = [*pair("a", 0.5, 10), *pair("b", 0.5, None), *pair("c", 2.0, 400), *pair("a", 0.5, 10, batch=8)]
    faster, slower = derive(cells).reasons
    assert (faster.comparisons, faster.shown_in, faster.none_shown) == (2, {"fusion": 1}, 1)
    assert (slower.comparisons, slower.shown_in, slower.none_shown) == (1, {"fewer kernels": 1}, 0)


def test_ports_and_variants_are_counted_apart():
    def verdict(side: str, equal: bool) -> Parity:
        return Parity(case="c", variant="v", side=side, equal=equal, precise=True, inputs=[], tensors=[])

    found = derive([], [verdict("jax", True), verdict("jax", False), verdict("torch", True)])
    assert (found.ports, found.variants) == (PassRate(1, 2, 0.5), PassRate(1, 1, 1.0))
    assert derive([]).ports.fraction is None
