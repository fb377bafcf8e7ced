"""What moves the results of operations off kinks: gradients stay what they are beside one."""

import subprocess
import sys

import pytest
import torch
from graphmode.compare.moved_results import MovedResults, NoExactValues
from torch.nn import functional as F

NEAR = 1e-7


@pytest.mark.parametrize(
    "function",
    [
        F.relu,
        lambda x: F.max_pool2d(F.relu(x), 2),
        lambda x: x.amax(-1),
        lambda x: x.max(),
        lambda x: x.median(),
        lambda x: sum(x.aminmax(dim=-1)),
        lambda x: x * x.floor(),
        lambda x: x * (x > 0).double() * (x.sign() == 1),
        lambda x: F.group_norm(x.abs().sqrt(), 2),
    ],
    ids=["relu", "pool of relu", "amax", "max", "median", "aminmax", "floor", "mask", "smooth"],
)
def test_away_from_kinks_gradients_are_the_same(function):
    start = torch.randn(3, 4, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    start = torch.where(start.abs() < 0.05, start + 0.2, start)

    def gradient():
        x = start.clone().requires_grad_()
        y = function(x)
        weights = torch.linspace(0.5, 1.5, y.numel(), dtype=torch.float64).reshape(y.shape)
        return torch.autograd.grad(y, x, weights)[0]

    usual = gradient()
    with NoExactValues(NEAR, 0):
        moved = gradient()
    assert usual.abs().max() > 0
    assert (usual - moved).abs().max() <= 1e-4


@pytest.mark.parametrize(
    "function",
    [F.relu, torch.abs, lambda x: torch.maximum(x, -x), lambda x: x.amax(-1)],
    ids=["relu", "abs", "maximum", "amax"],
)
def test_at_a_kink_they_are_others(function):
    x = torch.zeros(2, 8, dtype=torch.float64, requires_grad=True)

    def gradient():
        return torch.autograd.grad(function(x * 1.0).sum(), x)[0]

    usual = gradient()
    with NoExactValues(NEAR, 0):
        moved = gradient()
    assert (usual - moved).abs().max() > 0.1


def test_what_is_cut_off_stays_so():
    x = torch.linspace(-2, 2, 41, dtype=torch.float64)
    for cut in (F.relu, lambda x: x.clamp(min=0), lambda x: x.clip(0, 9), lambda x: torch.clamp_min(x, 0)):
        with NoExactValues(NEAR, 0):
            assert ((cut(x) > 0) == (x > 0)).all()
    for cut in (lambda x: x.clamp(max=1), lambda x: x.clamp(-9, 1), lambda x: F.hardtanh(x, -9, 1)):
        with NoExactValues(NEAR, 0):
            assert ((cut(x) < 1) == (x < 1)).all()


def test_what_is_exact_is_not_moved():
    whole, others = torch.arange(60, dtype=torch.float64), torch.linspace(0.01, 0.99, 60, dtype=torch.float64)

    def rounded():
        return [whole.exp()[1:], whole.sqrt()[50:], (whole / 7)[1:7], others.exp(), others / 3, torch.fft.fft(others)]

    with MovedResults("float64", 0):
        assert whole.exp()[0] == 1
        assert (whole * whole).sqrt().tolist() == whole.tolist()
        assert (whole / 2)[::2].tolist() == list(range(30))
        moved = rounded()
    assert all((a != b).any() for a, b in zip(moved, rounded(), strict=True))


def test_truth_values_and_sparse_tensors_are_taken():
    x = torch.eye(3, dtype=torch.float64)
    for moved in (MovedResults("float64", 0), NoExactValues(NEAR, 0)):
        with moved:
            assert torch.allclose((x > 0) / 3, (x / 3).float(), atol=1e-3)
            assert torch.allclose(x.to_sparse() @ x / 3, x / 3, atol=1e-3)


def test_what_moves_results_imports_no_compiler():
    code = (
        "import sys, torch; from graphmode.compare.moved_results import MovedResults\n"
        "with MovedResults('float64', 0): torch.tanh(torch.ones(3))\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
