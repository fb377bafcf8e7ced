"""Where an error arises, in words: on the terminal, in the line that fails a run, and on the page."""

from dataclasses import replace

import pytest
from graphmode.compare.report.divergence_text import evidence, place, said, told
from graphmode.compare.report.parity_tables import parity_sections
from graphmode.compare.report.records import Cause, Divergence, Finding, Parity, Tensor
from graphmode.compare.report.results import Results
from graphmode.compare.report.terminal import parity_text

VALUES = {"port_value": "1.5", "reference_value": "1"}
FINDING = Finding(what="output", tensor="output of bn", error=5e-4, index=(0, 2), **VALUES)
CAUSE = Cause(id="epsilon", says="adds eps=0.001 to the variance", fix="give eps=1e-05", residual=1e-16)
WRONG = Divergence(
    mode="inference",
    input="random 0",
    module="layers.0.bn",
    reference="0.bn",
    kind="BatchNorm2d",
    source="batch.py:48",
    findings=[FINDING] * 5,
    causes=[CAUSE],
)


def parity(*divergences: Divergence) -> Parity:
    output = Tensor(name="output", kind="output", mode="inference", equal=False, precise=False, error=1e-3)
    return Parity(
        case="c", variant="default", side="jax", equal=False, precise=False, inputs=["random 0"], tensors=[output],
        divergences=list(divergences),
    )  # fmt: skip


def test_a_divergence_is_told_with_place_cause_fix_and_evidence():
    assert list(told(WRONG)) == [
        "error arises in layers.0.bn (BatchNorm2d at batch.py:48), the reference's 0.bn, on 'random 0' in inference",
        "  cause (epsilon): adds eps=0.001 to the variance",
        "  fix: give eps=1e-05",
        *["  its output, output of bn, is off by 0.0005 of its scale at [0, 2]: 1.5 for 1"] * 3,
        "  and 2 further tensors",
    ]


@pytest.mark.parametrize(
    ("says", "end"),
    [
        ("takes softmax over axis 2", "(the reference's line is a.py:3, whose axes are meant)"),
        ("flattens with its axes in the order (0, 2, 1)", "(the reference's line is a.py:3, whose axes are meant)"),
        ("multiplies by 2", "(the reference's line is a.py:3)"),
    ],
)
def test_axes_are_said_to_be_those_of_the_reference(says, end):
    assert said(replace(CAUSE, says=says, reference="a.py:3")) == f"{says} {end}"


def test_what_nothing_explains_is_said_to_be_so():
    unknown = Divergence(mode="inference", input="random 0", module="", findings=[FINDING])
    assert "  cause: none of the known ones explains it" in told(unknown)
    assert place(unknown) == "the model itself"
    short = replace(unknown, cut_short=True)
    assert "  cause: none found before the time was over; not all of the known ones were tried" in told(short)
    long = replace(short, tried_s=24.8)
    assert "  cause: none found in 25 s, when the time was over; not all of the known ones were tried" in told(long)


@pytest.mark.parametrize(
    ("kinds", "says"),
    [
        (["received"], "to_model"),
        (["output"], "to_reference"),
        (["received_cotangent"], "to_reference or loss"),
        (["received", "received_cotangent"], "to_model or to_reference or loss"),
        (["buffer"], "to_model or to_reference or loss"),
    ],
)
def test_an_error_outside_of_all_modules_names_the_fields(kinds, says):
    findings = [replace(FINDING, what=kind) for kind in kinds]
    outside = Divergence(mode="inference", input="random 0", module="", findings=findings, outside=True)
    assert next(told(outside)) == f"no module introduces the error: it arises in the case's {says}"
    assert not any("cause" in line for line in told(outside))


def test_another_shape_has_no_size():
    assert evidence(Finding(what="output", tensor="x", note="shape (2,), and the reference has (3,)")) == (
        "its output, x, is off, shape (2,), and the reference has (3,)"
    )


def test_lost_digits_are_told_with_their_dtype():
    lost = replace(WRONG, dtype="float32")
    first = next(told(lost))
    assert first.startswith(
        "digits are lost in float32 in layers.0.bn (BatchNorm2d at batch.py:48), the reference's 0.bn"
    )
    (section,) = [s for s in parity_sections([parity(lost)]) if s.title == "Where it goes wrong"]
    assert "random 0, inference, float32" in str(section)


def test_terminal_failure_and_page_have_it():
    text = parity_text(parity(*(replace(WRONG, source=f"batch.py:{line}") for line in range(6)))).plain
    assert text.count("error arises in layers.0.bn") == 4
    assert "and 2 further modules: --out writes them" in text
    results = Results(created="", seed=0, quick=True, environment=None, parity=[parity(WRONG)])
    (failure,) = results.failed_verdicts()
    assert failure.endswith(
        "; error arises in layers.0.bn (BatchNorm2d at batch.py:48): adds eps=0.001 to the variance"
    )
    (section,) = [s for s in parity_sections([parity(WRONG)]) if s.title == "Where it goes wrong"]
    assert "layers.0.bn" in str(section)
    assert not [s for s in parity_sections([parity()]) if s.title == "Where it goes wrong"]


def test_modules_of_one_class_with_one_cause_are_told_once():
    others = [replace(WRONG, module=f"layers.{i}.bn") for i in range(1, 9)]
    apart = replace(WRONG, module="head.bn", causes=[replace(WRONG.causes[0], says="leaves the shift out")])
    text = parity_text(parity(WRONG, *others[:2], apart)).plain
    assert text.count("error arises in") == 2
    assert "\n  likewise in layers.1.bn, layers.2.bn\n" in text
    assert "likewise in layers.1.bn, layers.2.bn, layers.3.bn, layers.4.bn, layers.5.bn, layers.6.bn and 2 more" in (
        parity_text(parity(WRONG, *others)).plain
    )


def test_terminal_shows_warnings_and_notes_below_the_verdict():
    remarks = replace(parity(), warnings=["covers no mask"], notes=[f"note {i}" for i in range(7)])
    lines = [line.strip() for line in parity_text(remarks).plain.splitlines()[1:]]
    assert lines == [
        "warning: covers no mask",
        *(f"note: note {i}" for i in range(4)),
        "and 3 further notes: --out writes them",
    ]
