"""Drafts of loops that take the rows where a mask holds, and add what becomes of them where they belong."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from graphmode.compare import check
from graphmode.compare.draft import draft
from graphmode.compare.locate import locate

SAMPLE = Path(__file__).parent / "draft_samples" / "experts.py"


@pytest.fixture
def sample(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return shutil.copy(SAMPLE, tmp_path / "of_experts.py")


def test_experts_take_their_rows_at_a_fixed_size(sample):
    made = draft(f"{sample}:Experts", ("7,6",))
    assert not made.notes, made.text
    assert made.text.count("= places_where(") == 2
    path = sample.with_name("of_experts_port.py")
    path.write_text(made.text)
    case = locate(f"{path}:CASE", object, "case")
    report = check(replace(case, adversarial=("zeros", "a batch of one")), draws=2)
    assert report.passed, f"{report}\n{made.text}"


def test_rows_that_go_elsewhere_are_marked(sample):
    made = draft(f"{sample}:Counted", ("7,6", "7,2:3"))
    assert "places_where" not in made.text
    assert made.text.count("# TODO S04: where with a condition alone") == 2
