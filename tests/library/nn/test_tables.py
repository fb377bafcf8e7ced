"""Every public class of `torch.nn` is judged, tested or refused, and the page says which."""

import re
import sys

import pytest

import graphmode.nn as ours
from graphmode.nn.refused import REFUSED

from .judging import Verdict
from .samples import FUNCTIONS, MODULES
from .tables import files_about, main, other_classes, page, row, rows_of
from .verdicts import judge_module


@pytest.mark.parametrize("name", other_classes(set(MODULES)))
def test_a_class_outside_of_module_db_is_tested_or_refused(name):
    if hasattr(ours, name):
        assert files_about(name)
    else:
        with pytest.raises(AttributeError, match=re.escape(f"graphmode.nn has no {name}: {REFUSED[name]}")):
            getattr(ours, name)


def test_the_page_tells_what_came_of_each_and_keeps_what_was_not_judged_again():
    wrong = Verdict("Tanh", tried=4, agreed=3, skipped={"empty": 2}, error=0.5, ratio=7.0, failures=["off by 0.5"])
    first = page({("module", "ELU"): row(judge_module("ELU", 1)), ("module", "Tanh"): row(wrong)})
    rows = rows_of(first)
    assert page(rows) == first
    rows |= {
        ("function", "elu-exact"): row(None),
        ("module", "Tanh"): row(Verdict("Tanh", tried=4, agreed=4, ratio=2.0)),
    }
    second = page(rows)
    assert page(rows_of(second)) == second
    assert "| `ELU` | 2 | 2 |" in second
    assert "1 of 2 agree on all samples" in first
    assert "| `Tanh` | 4 | 3 | 5e-01 | 7.00 | 2 not judged: empty; 1 differ |" in first
    assert "2 of 2 agree on all samples" in second
    assert "| `Tanh` | 4 | 4 | 0e+00 | 2.00 |  |" in second
    assert "| `elu-exact` | | | | | absent |" in second


def test_no_class_or_function_of_the_judge_is_absent():
    functions = {info.name.removeprefix("nn.functional.") for info in FUNCTIONS.values()}
    assert [name for name in MODULES if not hasattr(ours, name)] == []
    assert [name for name in functions if not hasattr(ours.functional, name)] == []


@pytest.mark.parametrize(
    ("name", "told"), [("Nope", "no class or function Nope"), ("ELU", "is not there; judge all first")]
)
def test_what_cannot_be_judged_again_is_refused(name, told, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["tables", str(tmp_path / "layers.md"), "--only", name])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
