"""Every configuration of PyTorch's `optim_db`: 50 steps in float64, and float32 errors beside PyTorch's own."""

import pytest
import torch
from graphmode.compare.parity.yardstick import EQUAL_TOLERANCE, PRECISE_RATIO

from .optimizer_cases import REFUSED, configurations, stepped
from .optimizer_verdicts import float32_ratios, float64_errors


def test_all_of_pytorchs_configurations_are_here():
    assert len(configurations()) >= 91
    assert {c.optimizer for c in configurations()} == {n for n in torch.optim.__all__ if n[0].isupper()} - {"Optimizer"}


@pytest.mark.parametrize("configuration", stepped(), ids=lambda c: c.id)
def test_fifty_steps_in_float64(configuration):
    parameters, state = float64_errors(configuration.optimizer, (1,))[configuration.id]
    assert parameters is None or parameters <= EQUAL_TOLERANCE
    assert state <= EQUAL_TOLERANCE


@pytest.mark.parametrize("configuration", stepped(), ids=lambda c: c.id)
def test_float32_is_as_precise_as_pytorchs(configuration):
    ratios = float32_ratios(configuration.optimizer)[configuration.id]
    assert any(what.startswith("early parameters") for what in ratios)
    assert any(what.startswith("late parameters") for what in ratios)
    assert {what: ratio for what, ratio in ratios.items() if not ratio <= PRECISE_RATIO} == {}


@pytest.mark.parametrize("optimizer", REFUSED)
def test_what_has_no_counterpart_says_what_to_use(optimizer):
    with pytest.raises(NotImplementedError, match=r"[Uu]se (optax\.lbfgs|gm\.optim\.adam)"):
        REFUSED[optimizer](lr=0.1)
