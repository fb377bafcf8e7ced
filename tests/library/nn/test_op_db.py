"""PyTorch's own test cases for its functions, through those of the same name here."""

import os

import pytest

import graphmode.nn as ours

from .verdicts import FUNCTIONS, judge_function

MANY = int(os.environ.get("GRAPHMODE_TEST_SAMPLES", "3"))  # of up to 1,440; `make tables` judges them all
THERE = [name for name, info in FUNCTIONS.items() if hasattr(ours.functional, info.name.removeprefix("nn.functional."))]


@pytest.mark.slow
@pytest.mark.parametrize("name", THERE)
def test_many_samples_agree(name):
    verdict = judge_function(name, MANY)
    assert not verdict.failures, "\n".join(verdict.failures)
