"""Every public class of `torch.nn` is judged, tested or refused, and the page says which."""

import re

import pytest

import graphmode.nn as ours
from graphmode.nn.refused import REFUSED

from .judging import Verdict
from .samples import FUNCTIONS, MODULES
from .tables import files_about, other_classes, page
from .verdicts import judge_module


@pytest.mark.parametrize("name", other_classes(set(MODULES)))
def test_a_class_outside_of_module_db_is_tested_or_refused(name):
    if hasattr(ours, name):
        assert files_about(name)
    else:
        with pytest.raises(AttributeError, match=re.escape(f"graphmode.nn has no {name}: {REFUSED[name]}")):
            getattr(ours, name)


def test_the_page_tells_what_came_of_each():
    wrong = Verdict("Tanh", tried=4, agreed=3, skipped={"empty": 2}, error=0.5, ratio=7.0, failures=["off by 0.5"])
    whole = page({("module", "ELU"): judge_module("ELU", 1), ("module", "Tanh"): wrong, ("function", "elu"): None})
    assert "1 of 2 agree on all samples" in whole
    assert "| `Tanh` | 4 | 3 | 5e-01 | 7.00 | 2 not judged: empty; 1 differ |" in whole
    assert "| `elu` | | | | | absent |" in whole
    assert "| `ELU` | 2 | 2 |" in whole


def test_no_class_or_function_of_the_judge_is_absent():
    functions = {info.name.removeprefix("nn.functional.") for info in FUNCTIONS.values()}
    assert [name for name in MODULES if not hasattr(ours, name)] == []
    assert [name for name in functions if not hasattr(ours.functional, name)] == []
