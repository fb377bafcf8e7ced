"""Every configuration of PyTorch's `optim_db`, 50 steps in float64 and in float32 beside PyTorch's own."""

import pytest
import torch
from optimizer_cases import REFUSED, Problem, configurations, in_double, in_jax, in_torch, largest_error

ALL = configurations()
STEPPED = [c for c in ALL if c.optimizer not in REFUSED]


def test_all_of_pytorchs_configurations_are_here():
    assert len(ALL) >= 91
    assert {c.optimizer for c in ALL} == {n for n in torch.optim.__all__ if n[0].isupper()} - {"Optimizer"}


@pytest.mark.parametrize("configuration", STEPPED, ids=lambda c: c.id)
def test_fifty_steps_in_float64(configuration):
    problem = Problem(configuration.shapes, seed=1)
    with in_double():
        theirs = in_torch(configuration, problem, torch.float64)
        ours = in_jax(configuration, problem, "float64")
    assert largest_error(ours, theirs) <= (3e-2 if configuration.optimizer == "Muon" else 1e-10)
