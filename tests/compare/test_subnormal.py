"""What XLA makes zero of on a CPU, and PyTorch keeps, is no fault of a port; what overflows otherwise is one."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.moved_results import FlushedResults

HERE = Path(__file__)


def case(forward, port, low, high, **fields) -> Case:
    """A model of two functions, without parameters, on numbers of this range."""

    class Reference(torch.nn.Module):
        def forward(self, x):
            return forward(x)

    class Port(nnx.Module):
        def __init__(self, rngs):
            pass

        def __call__(self, x):
            return port(x)

    def inputs(rng):
        return (np.linspace(low, high, 96).reshape(8, 12) + rng.uniform(0, 0.01, (8, 12)),)

    return Case(name="c", summary="s", reference=Reference, model=Port, inputs=inputs, adversarial=(), **fields)


def log_of_softplus(x):
    return torch.log(torch.nn.functional.softplus(x))  # a logarithm


def softplus_in_the_port(x):
    return jnp.log(jax.nn.softplus(x))


def twice_scaled(x):
    return torch.exp(x) * 1e-5 * 1e5


@pytest.mark.parametrize(
    ("forward", "port", "low", "word"),
    [
        (log_of_softplus, softplus_in_the_port, -100, "is not finite in"),
        (twice_scaled, lambda x: jax.lax.optimization_barrier(jnp.exp(x) * 1e-5) * 1e5, -87, "times PyTorch's error"),
    ],
)
def test_what_hangs_on_subnormal_numbers_is_told_and_no_fault(forward, port, low, word):
    report = check(case(forward, port, low, low + 14), locate=False)
    assert report.passed, str(report)
    (parity,) = report.parity
    (told,) = [each for each in parity.warnings if "makes zero of numbers below" in each]
    assert word in told
    if forward is log_of_softplus:
        line = next(i for i, text in enumerate(HERE.read_text().splitlines(), 1) if "# a logarithm" in text)
        assert f"from log at {HERE.name}:{line} on" in told


@pytest.mark.parametrize(
    ("forward", "port", "low"),
    [
        (torch.nn.functional.logsigmoid, lambda x: jnp.log(jax.nn.sigmoid(x)), -100),
        (torch.nn.functional.softplus, lambda x: jnp.log(1 + jnp.exp(x)), 80),
    ],
)
def test_what_a_port_alone_loses_is_a_fault(forward, port, low):
    report = check(case(forward, port, low, low + 14, modes=("inference",)), locate=False)
    assert report.equal, str(report)
    assert not report.precise
    assert not any("makes zero of" in each for parity in report.parity for each in parity.warnings)


@pytest.mark.parametrize(("slip", "is_precise"), [(0.0, True), (1e-5, False)])
def test_what_both_sides_lose_is_not_judged_and_the_rest_is(slip, is_precise):
    def exponential(x):
        return jnp.exp(x) * (1 + slip if x.dtype == jnp.float32 else 1)

    report = check(case(torch.exp, exponential, 50, 95, modes=("inference",)), locate=False)
    assert report.equal
    assert report.precise == is_precise


def test_subnormal_numbers_are_zero_within():
    small = torch.tensor([1e-30, -1e-30, 1.0])
    with FlushedResults() as flushed:
        assert (small * 1e-10).tolist() == [0.0, -0.0, torch.tensor(1e-10).item()]
    assert flushed.count == 1
    with FlushedResults(flushes=False):
        assert (small * 1e-10)[0] > 0
