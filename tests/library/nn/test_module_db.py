"""PyTorch's own test cases for its layers, through the layers of the same name here."""

import os

import pytest

import graphmode.nn as ours

from .verdicts import MODULES, judge_module

MANY = int(os.environ.get("GRAPHMODE_TEST_SAMPLES", "3"))  # of up to 1,714; `make tables` judges them all
THERE = [name for name in MODULES if hasattr(ours, name)]


@pytest.mark.slow
@pytest.mark.parametrize("name", THERE)
def test_many_samples_agree(name):
    verdict = judge_module(name, MANY)
    assert not verdict.failures, "\n".join(verdict.failures)
    assert verdict.agreed == verdict.tried > 0
