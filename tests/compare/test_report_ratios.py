"""Ratios and means against numbers worked out by hand, and intervals against ratios known beforehand."""

from __future__ import annotations

import pytest
from graphmode.compare.report import ratios
from graphmode.compare.report.records import Cell


def cell(row: str, median: float | None = None, samples=None, status: str = "ok", **more) -> Cell:
    """Without samples of its own a dozen that are all its median."""
    samples = [median] * (12 if median else 0) if samples is None else samples
    fields = {"case": "c", "variant": "default", "mode": "inference", "device": "cpu", "dtype": "float32"} | more
    return Cell(row=row, status=status, median_s=median, samples_s=list(samples), **fields)


def group(*cells: Cell) -> ratios.Group:
    (only,) = ratios.groups(cells)
    return only


def test_by_hand():
    g = group(
        cell("torch.eager", 8.0, compile_s=0.0),
        cell("torch.eager", 6.0, variant="argsort"),
        cell("torch.compile", 4.0, compile_s=10.0),
        cell("torch.trace", status="wrong", reason="one branch"),
        cell("jax.eager", 16.0),
        cell("jax.jit", 3.0, compile_s=12.5),
        cell("jax.graphed", status="failed", reason="no"),
    )
    assert g.fastest_torch.row == "torch.compile"
    assert (g.eager.row, g.eager.variant) == ("torch.eager", "default")
    assert g.fastest.row == g.fastest_jax.row == "jax.jit"
    assert [(c.row, r.value) for c, r in g.jax_ratios] == [("jax.eager", 4.0), ("jax.jit", 0.75)]
    assert g.best.value == 0.75
    assert g.best_to_eager.value == 0.375
    assert g.break_even_calls == 3


def test_what_may_be_no_gain_pays_nothing_back():
    """A difference of a tenth within samples that scatter by a half."""
    scattered = [1 + n / 10 for n in range(6)] * 2
    jax = [0.9 * s for s in reversed(scattered)]
    cells = [cell("torch.eager", 1.25, scattered, compile_s=0.0), cell("jax.jit", 1.125, jax, compile_s=10.0)]
    assert group(*cells).best.verdict == "level"
    assert group(*cells).break_even_calls is None
    steady = [
        cell("torch.eager", 1.25, [1.25] * 12, compile_s=0.0),
        cell("jax.jit", 1.125, [1.125] * 12, compile_s=10.0),
    ]
    assert group(*steady).break_even_calls == 80


def test_no_ratio_without_both_sides():
    only_torch = group(cell("torch.eager", 8.0), cell("jax.jit", status="wrong", reason="no"))
    assert only_torch.best is None
    assert only_torch.fastest_jax is None
    assert only_torch.break_even_calls is None
    untimed = group(cell("torch.eager", 8.0), cell("jax.jit"))
    assert untimed.best is None


def test_eager_is_the_judge_alone():
    g = group(cell("torch.eager", status="failed", reason="no"), cell("torch.eager", 6.0, variant="argsort"))
    assert g.eager is None


def test_what_leaves_out_what_the_port_prints_is_no_fastest_row():
    cells = [cell("torch.eager", 8.0), cell("onnxruntime", 1.0, unprinted=3), cell("jax.jit", 2.0)]
    assert group(*cells).fastest_torch.row == "torch.eager"
    assert group(*cells).fastest.row == "jax.jit"
    silent = cell("jax.jit", 2.0, unprinted=3)
    assert group(*cells[:2], silent).fastest_torch.row == "onnxruntime", "a port that prints nothing is compared"
    assert group(*cells[:2]).fastest_torch.row == "onnxruntime"


def test_onnx_runtime_is_a_way_of_running_pytorch():
    assert group(cell("torch.eager", 8.0), cell("onnxruntime", 2.0)).fastest_torch.row == "onnxruntime"


@pytest.mark.parametrize("name", ["case", "mode", "device", "dtype", "batch"])
def test_what_differs_is_never_mixed(name):
    here, there = cell("jax.jit", 1.0), cell("torch.compile", 2.0, **{name: 8 if name == "batch" else "other"})
    assert len(ratios.groups([here, there])) == 2
    with pytest.raises(ValueError, match=f"differ in {name}"):
        ratios.ratio(here, there)


def test_means_by_hand():
    cells = [
        *(cell("torch.eager", t, case=name) for name, t in (("a", 1.0), ("b", 1.0), ("lost", 1.0))),
        *(cell("torch.compile", t, case=name) for name, t in (("a", 0.5), ("b", 0.5))),
        *(cell("jax.jit", t, case=name) for name, t in (("a", 0.25), ("b", 4.0))),
        cell("torch.eager", 1.0, dtype="bfloat16"),
        cell("jax.jit", 0.1, dtype="bfloat16"),
        cell("torch.eager", 1.0, batch=8),
        cell("jax.jit", 1e-9, batch=8),
    ]
    single, half = ratios.means(ratios.groups(cells))
    assert single.to_fastest == pytest.approx((0.5 * 8) ** 0.5)
    assert single.to_eager == pytest.approx((0.25 * 4) ** 0.5)
    assert (single.faster, single.slower, single.level, single.missing, single.count) == (1, 1, 0, 1, 2)
    assert (half.dtype, half.to_fastest) == ("bfloat16", pytest.approx(0.1))
    assert ratios.geometric_mean([]) is None


def test_pass_rate_counts_what_could_run():
    cells = [
        cell("jax.jit", 1.0),
        cell("jax.eager", status="timeout", reason="slow"),
        cell("jax.graphed", status="unavailable", reason="needs a GPU"),
        cell("torch.eager", 1.0),
    ]
    rate = ratios.pass_rate(cells, "jax")
    assert (rate.ok, rate.tried, rate.unavailable, rate.fraction) == (1, 2, 1, 0.5)
    assert ratios.pass_rate([], "jax").fraction is None


@pytest.mark.parametrize(
    ("jax", "torch", "verdict"),
    [
        ([1.0] * 4, [2.0] * 4, "faster"),  # 2 of 70 orders
        ([2.0] * 3, [1.0] * 12, "slower"),  # 2 of 455
        ([1.0] * 3, [2.0] * 3, "unknown"),  # 2 of 20
        ([1.0] * 4, [0.9, 2.0, 2.0, 2.0], "unknown"),
        ([], [], "unknown"),
    ],
)
def test_too_few_samples_have_no_interval_and_tell_only_what_chance_would_not(jax, torch, verdict):
    one = ratios.ratio(cell("jax.jit", 1.0 if verdict != "slower" else 2.0, jax), cell("torch.eager", 1.5, torch))
    assert (one.low, one.high, one.verdict, one.differs) == (None, None, verdict, verdict != "unknown")


def test_comparisons_of_which_too_little_is_known_are_counted():
    (mean,) = ratios.means(ratios.groups([cell("jax.jit", 1.0, [1.0]), cell("torch.eager", 2.0, [2.0])]))
    assert (mean.faster, mean.level, mean.slower, mean.unknown, mean.count) == (0, 0, 0, 1, 1)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (ratios.Ratio(0.9, 0.8, 0.95), "faster"),
        (ratios.Ratio(0.9, 0.8, 1.05), "level"),
        (ratios.Ratio(1.1, 1.05, 1.2), "slower"),
        (ratios.Ratio(0.9), "unknown"),
        (ratios.Ratio(0.9, apart=True), "faster"),
        (ratios.Ratio(1.1, apart=True), "slower"),
    ],
)
def test_verdicts(ratio, verdict):
    assert ratio.verdict == verdict
