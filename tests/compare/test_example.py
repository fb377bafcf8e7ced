"""The example of the README: it passes, its case is short, and a port that ignores the branch does not pass."""

import dataclasses
from pathlib import Path

import pytest
from graphmode.compare import check
from graphmode.compare.locate import locate

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny_mlp.py"


@pytest.fixture(scope="module")
def case():
    return locate(f"{EXAMPLE}:CASE")


def test_it_passes(case):
    report = check(case, draws=2)
    assert report.passed, str(report)


def test_its_case_takes_less_than_thirty_lines():
    _, _, definition = EXAMPLE.read_text().partition("CASE = Case(")
    assert definition.count("\n") < 30


def test_a_port_without_the_branch_does_not_pass(case):
    port = case.model

    class Straight(port):
        def __call__(self, x):
            return self.head(self.hidden(x).clip(0))

    report = check(dataclasses.replace(case, model=Straight), draws=1)
    assert not report.equal
