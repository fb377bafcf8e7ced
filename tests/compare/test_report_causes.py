"""What a gain came from is said where the cells show it, with their numbers, and never where they do not."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from graphmode.compare.report import ratios
from graphmode.compare.report.causes import causes, reasons
from graphmode.compare.report.records import Cell, Launches


def cell(row: str, median: float, *, kernels=None, captured=None, enqueue=None, device="gpu", **more) -> Cell:
    counted = kernels is not None or captured is not None
    return Cell(
        case="c",
        variant="default",
        row=row,
        mode="inference",
        device=device,
        dtype="float32",
        status="ok",
        median_s=median,
        enqueue_s=enqueue,
        samples_s=more.pop("samples_s", [median] * 12),
        launches=Launches(kernels=kernels, captured=captured) if counted else None,
        **more,
    )


def told(*cells: Cell, floor: float | None = None) -> str:
    (group,) = ratios.groups(cells)
    return " | ".join(causes(group, floor))


def kinds(one: Cell, other: Cell) -> set[str]:
    return {reason.kind for reason in reasons(one, other)} - {""}


EAGER = {"kernels": 212, "captured": 0.0, "enqueue": 0.97}
BUSY = {"kernels": 212, "captured": 0.0, "enqueue": 0.3}


@pytest.mark.parametrize(
    ("fast", "slow", "expected"),
    [
        (("torch.cudagraph", {"kernels": 212, "captured": 1.0, "enqueue": 0.01}), EAGER, {"launches removed"}),
        (("torch.cudagraph", {"kernels": 212, "captured": 1.0, "enqueue": 0.01}), BUSY, {"other kernels"}),
        (("torch.cudagraph", {"kernels": 212, "captured": 1.0}), {"kernels": 212, "captured": 0.0}, set()),
        (("torch.compile", {"kernels": 40, "captured": 0.0, "enqueue": 0.2}), BUSY, {"fusion"}),
        (
            ("torch.compile", {"kernels": 40, "captured": 0.0, "enqueue": 0.2}),
            EAGER,
            {"fusion", "less time of the host"},
        ),
        (("jax.jit", {"kernels": 40, "captured": 0.9, "enqueue": 0.1}), EAGER, {"fusion", "launches removed"}),
        (("torch.channels_last", {"kernels": 212, "captured": 0.0, "enqueue": 0.2}), BUSY, {"other kernels"}),
        (("torch.channels_last", {"kernels": 212, "captured": 0.0}), {"kernels": 212, "captured": 0.0}, set()),
        (
            ("torch.trace", {"kernels": 1, "captured": 0.0, "enqueue": 0.43}),
            {"kernels": 1, "captured": 0.0, "enqueue": 0.78},
            set(),
        ),
        (
            ("torch.channels_last", {"kernels": 100, "captured": 0.0}),
            {"kernels": 212, "captured": 0.0},
            {"fewer kernels"},
        ),
        (("jax.jit", {"kernels": 400}), {"kernels": 212}, set()),
        (("jax.jit", {}), {}, set()),
        (("jax.jit", {"kernels": 40}), {}, set()),
        (("jax.scan", {"steps_per_call": 8}), EAGER, {"several steps a launch"}),
        (("jax.scan", {"steps_per_call": 8}), BUSY, set()),
    ],
)
def test_the_kind_is_what_the_cells_show(fast, slow, expected):
    """The slower row takes a second, so its enqueue time is its host's share."""
    row, fields = fast
    one, other = cell(row, 0.5, **fields), cell("torch.eager", 1.0, **slow)
    assert kinds(one, other) == expected
    assert kinds(other, one) == expected


def test_nothing_is_said_without_counts_or_a_difference():
    assert told(cell("torch.eager", 1.0), cell("torch.compile", 0.5), cell("jax.jit", 0.3)) == ""
    same = [1.0 + 0.01 * n for n in range(10)]
    level = [
        cell(row, 1.045, kernels=kernels, samples_s=same) for row, kernels in (("torch.eager", 200), ("jax.jit", 20))
    ]
    assert told(*level) == ""


def test_a_cpu_waits_for_no_host():
    rows = (
        cell("torch.eager", 1.0, enqueue=0.99, kernels=50, captured=0.0, device="cpu"),
        cell("jax.jit", 0.5, enqueue=0.01, kernels=3, captured=0.0, device="cpu"),
    )
    text = told(*rows)
    assert text == "jax.jit is faster than torch.eager: fusion, 3 operations a call in place of 50"
    alone = rows[0], replace(rows[1], launches=Launches(kernels=1, captured=0.0))
    assert told(*alone).endswith("fusion, 1 operation a call in place of 50")


@pytest.mark.parametrize(
    ("fast", "slow", "expected"),
    [
        # 1 us of 70 us, by 3 us an operation
        (("torch.trace", 2e-6, 4), ("torch.script", 72e-6, 5), ("", "not by fewer operations alone, 4 operations a")),
        # 90 us of 100 us
        (("torch.trace", 30e-6, 20), ("torch.script", 130e-6, 50), ("fewer operations", "fewer operations, 20 ")),
        # 5 of 50 us, by 0.5 us
        (("torch.trace", 30e-6, 20), ("jax.jit", 80e-6, 30), ("", "not by fewer operations alone, 20 operations a")),
        # a fifth of what is nearly all
        (("jax.jit", 2e-6, 4), ("torch.eager", 72e-6, 5), ("", "not by fusion alone, 4 operations a call in place of")),
        (("jax.jit", 2e-6, 1), ("torch.eager", 72e-6, 5), ("fusion", "fusion, 1 operation a call in place of 5")),
    ],
)
def test_fewer_operations_are_the_reason_where_they_can_be_most_of_the_gain(fast, slow, expected):
    cells = [cell(row, median, kernels=number, device="cpu") for row, median, number in (fast, slow)]
    floors = {"empty torch operation": 3e-6, "scan step of one 8x8 product": 0.5e-6}
    (one,) = reasons(*cells, None, floors)
    assert one.kind == expected[0]
    assert one.words.startswith(expected[1])
    if "fewer operations" in one.words:
        (unmeasured,) = reasons(*cells)
        assert unmeasured.kind == ""
        assert unmeasured.words.endswith("and what it takes to call one was not measured")


def test_sentences_name_the_faster_row_and_give_the_numbers():
    text = told(
        cell("torch.eager", 1.0, kernels=1212, captured=0.0, enqueue=0.97),
        cell("torch.compile", 0.5, kernels=300, captured=0.0, enqueue=0.48),
        cell("jax.graphed", 0.2, kernels=290, captured=0.96, enqueue=0.01),
        floor=0.15,
    )
    pair, jax, torch = text.split(" | ")
    assert pair.startswith("jax.graphed is faster than torch.compile: launches removed, 96% of its kernels")
    assert "torch.compile is bound by its host, whose part takes 96% of its time, and 5% of that of jax.graphed" in pair
    assert "near the machine's floor, at 1.33 times it against 3.33" in pair
    assert "fusion, 290 kernels a call in place of 1,212" in jax
    assert torch.startswith("torch.compile is faster than torch.eager: ")


def test_a_loss_of_jax_is_explained_as_well():
    rows = cell("torch.eager", 1.0, kernels=10), cell("torch.compile", 0.2, kernels=4), cell("jax.jit", 0.4, kernels=9)
    assert told(*rows).startswith("torch.compile is faster than jax.jit: fewer kernels, 4 kernels a call in place of 9")


LAUNCHES = {"empty graphed call": 62e-6, "empty jax.jit call": 95e-6, "empty ONNX Runtime call": 5e-6}


@pytest.mark.parametrize(
    ("slow", "median", "expected"),
    [
        ("jax.graphed", 81e-6, "an empty graphed call takes 62.0 us here, 77% of the time of jax.graphed"),
        ("jax.jit", 110e-6, "an empty jax.jit call takes 95.0 us here, 86% of the time of jax.jit"),
        ("jax.graphed", 100e-6, ""),  # without its call it would still be slower
        ("jax.graphed", 60e-6, ""),  # it is faster than an empty call: that tells nothing
        ("torch.eager", 81e-6, ""),
        ("onnxruntime", 36e-6, ""),  # little of its time
    ],
)
def test_what_a_call_costs_is_told_where_it_decides(slow, median, expected):
    found = reasons(cell("torch.cudagraph", 34e-6), cell(slow, median), None, LAUNCHES)
    assert [(r.kind, r.words) for r in found] == ([("what a call costs", expected)] if expected else [])
    assert reasons(cell("torch.cudagraph", 34e-6), cell(slow, median)) == []


def test_steps_that_share_a_launch_are_not_told_of_its_cost():
    slow = cell("jax.graphed", 81e-6, steps_per_call=8)
    assert reasons(cell("torch.cudagraph", 34e-6), slow, None, LAUNCHES) == []


def test_shares_are_never_rounded_to_all_or_none():
    one = cell("torch.cudagraph", 0.5, kernels=1000, captured=0.999, enqueue=0.001)
    (group,) = ratios.groups([one, cell("torch.eager", 1.0, kernels=1000, captured=0.0, enqueue=0.999)])
    text = " ".join(itertools.chain(causes(group)))
    assert "99% of its kernels" in text
    assert "100%" not in text
