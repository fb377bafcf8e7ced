"""A report as text: it fits one screen whatever was found, and the facts that help most come first."""

import pytest
from graphmode.compare.parity.check import CheckReport
from graphmode.compare.report.records import Cause, Divergence, Finding, Parity, Tensor

LONG = "word " * 60


def parity(variant="default", tensors=3, modules=1, notes=(), passed=False):
    findings = [Finding(what="output", tensor=f"output of m{i}", error=1e-3, index=(0, 1)) for i in range(6)]
    cause = Cause(id="norm_epsilon", says="its epsilon is 1e-6", fix="write epsilon=1e-5", residual=1e-12)
    return Parity(
        case="made up",
        variant=variant,
        side="jax",
        equal=passed,
        precise=passed,
        inputs=["random 0"],
        tensors=[
            Tensor(
                name=f"{'deep.' * 20}{i}",
                kind="output",
                mode="inference",
                equal=passed,
                precise=passed,
                error=10.0**-i,
                input="random 0",
                index=(1, 2),
                port_value="0.12345678901234567",
                reference_value="0.22345678901234567",
            )
            for i in range(tensors)
        ],
        notes=list(notes),
        divergences=[]
        if passed
        else [
            Divergence(mode="inference", input="random 0", module=f"m{i}", findings=findings, causes=[cause])
            for i in range(modules)
        ],
        warnings=["a mask is all True"],
    )


REPORTS = {
    "one port": [parity()],
    "much of everything": [parity(tensors=300, modules=40, notes=[LONG, "line\nafter line"] * 9)],
    "many ports": [parity(f"v{i}", tensors=50, modules=5, notes=[LONG]) for i in range(30)],
    "many that pass": [parity(f"v{i}", passed=True) for i in range(90)],
    "an error without a number": [
        Parity(case="made up", variant="v", side="jax", equal=False, precise=False, inputs=[], tensors=[], error=LONG)
    ],
}


@pytest.mark.parametrize("what", REPORTS)
def test_it_fits_one_screen(what):
    lines = str(CheckReport("made up", REPORTS[what])).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines[1:]), default=0) <= 120
    assert lines[0].startswith("made up: ")


def test_place_cause_and_fix_come_before_the_numbers():
    text = str(CheckReport("made up", REPORTS["much of everything"]))
    order = ["FAILED", "NOT EQUAL", "arises in m0", "norm_epsilon", "write epsilon=1e-5", "then:", "300 of 300", "note"]
    places = [text.index(words) for words in order]
    assert places == sorted(places), text
    assert text.index("error 1 of its scale") < text.index("error 0.1 of its scale")  # the worst first


def test_what_is_left_out_is_counted():
    text = str(CheckReport("made up", REPORTS["much of everything"]))
    assert "and 36 more modules" in text
    assert "and 296 more tensors" in text
    assert "more" not in str(CheckReport("made up", REPORTS["one port"])).replace("and 3 more tensors", "")
    assert "further ports that failed" in str(CheckReport("made up", REPORTS["many ports"]))
    assert "more lines" in str(CheckReport("made up", REPORTS["many that pass"]))


def test_a_report_of_nothing_says_so():
    assert str(CheckReport("made up")) == "made up: nothing was judged"
