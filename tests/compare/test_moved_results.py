"""What rounding does inside a PyTorch program, and the inputs of a check's own on which it decides."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.dtypes import HALF_ULP
from graphmode.compare.moved_results import MovedResults

LENGTH = 40  # of float32's roundings there is none there in the mean of one number, of float64's one
ULP = 2 * HALF_ULP["float64"]


def moved(function, *args):
    with MovedResults("float64", seed=0):
        return function(*args)


@pytest.mark.parametrize(
    "function",
    [
        torch.exp,
        torch.Tensor.sum,
        lambda x: x.clone().mul_(3),
        lambda x: torch.nn.functional.softmax(x, -1),
        lambda x: torch.fft.rfft(x),
        lambda x: torch.std_mean(x, -1)[1],
        lambda x: torch.zeros_like(x).scatter_add(-1, torch.zeros_like(x, dtype=torch.int64), x),
    ],
    ids=["exp", "sum", "in place", "softmax", "complex", "of several results", "scattered sum"],
)
def test_what_rounds_is_moved_in_its_last_digits(function):
    x = torch.rand(8, 12, dtype=torch.float64) + 0.5
    exact = function(x)
    apart = (moved(function, x) - exact).abs()
    assert apart.max() > 0
    assert (apart <= 2 * ULP * exact.abs()).all()


@pytest.mark.parametrize(
    "function",
    [
        torch.clone,
        torch.relu,
        lambda x: x.T[:3].unsqueeze(0),
        lambda x: torch.cat([x, x]).max(0).values,
        lambda x: torch.where(x > 1, x, torch.ones_like(x)),
        lambda x: x.reshape(4, -1)[[1, 0]],
        lambda x: x - x,
        lambda x: torch.exp(x.float()),
        lambda x: (x > 1).double().sum(-1) * 3 + 1,
    ],
    ids=["a copy", "relu", "views", "the largest", "a choice", "an index", "zero", "float32", "counts"],
)
def test_what_does_not_round_is_not_moved(function):
    x = torch.rand(8, 12, dtype=torch.float64) + 0.5
    before = x.clone()
    torch.testing.assert_close(moved(function, x), function(x), rtol=0, atol=0)
    assert torch.equal(x, before)


def judged(reference, port, *adversarial, rows=4):
    """In inference: the gradient of a root at zero, say, is another matter."""
    case = Case(
        name="c",
        summary="s",
        reference=reference,
        model=port,
        inputs=lambda rng: (rng.uniform(-1, 2, (rows, LENGTH)),),
        modes=("inference",),
        adversarial=adversarial,
    )
    (parity,) = check(case, draws=1).parity
    return parity


class Standardised(torch.nn.Module):
    """Of small inputs all logarithms are one number, which rounding parts from its mean."""

    def forward(self, x):
        logs = x.square().clamp(min=1e-5).log()
        return (logs - logs.mean(-1, keepdim=True)) / (logs.std(-1, keepdim=True) + 1e-5)


class OtherOrder(nnx.Module):
    offset = 0.0

    def __init__(self, rngs):
        pass

    def __call__(self, x):
        logs = jnp.log(jnp.maximum(jnp.square(x), 1e-5))
        count = x.shape[-1]
        centred = logs - logs.sum(-1, keepdims=True) / count + self.offset
        std = jnp.sqrt(jnp.square(centred).sum(-1, keepdims=True) / (count - 1))
        return centred / (std + 1e-5)


class Off(OtherOrder):
    offset = 1e-12  # 1e-7 of the scale where all are one number, and nothing elsewhere


@pytest.mark.parametrize(("port", "passes"), [(OtherOrder, True), (Off, False)])
def test_a_right_port_is_not_accused_of_what_rounding_makes_inside_a_module(port, passes):
    parity = judged(Standardised, port, "zeros", "1e-06 as large")
    assert "zeros" in parity.inputs
    assert parity.equal == passes, str(parity.tensors)
    assert parity.precise


class Counts(torch.nn.Module):
    """Of so many steps that float32 hardly tells one from the next."""

    def forward(self, x):
        return torch.floor(x.sum(-1) * 2**18).long()


class OtherCounts(nnx.Module):
    dtype = None

    def __init__(self, rngs):
        pass

    def __call__(self, x):
        halves = x.reshape(len(x), 2, -1).astype(self.dtype or x.dtype).sum(-1)
        return jnp.floor(halves.sum(-1).astype(x.dtype) * 2**18).astype(int)


class NarrowCounts(OtherCounts):
    @property
    def dtype(self):
        return None if jax.config.jax_enable_x64 else jnp.bfloat16


@pytest.mark.parametrize(("port", "passes"), [(OtherCounts, True), (NarrowCounts, False)])
def test_integers_that_pytorch_gets_wrong_one_rounding_apart_are_no_lost_digits(port, passes):
    parity = judged(Counts, port, rows=64)
    assert parity.equal
    assert parity.precise == passes, str(parity.tensors)
    (tensor,) = parity.tensors
    assert not passes or "as PyTorch's do" in tensor.note


class Square(torch.nn.Module):
    """Whose root has no number below zero, where one rounding leads on inputs of zeros."""

    def forward(self, x):
        return 2 - torch.sqrt(1 - torch.exp(-x.square()))


class OtherSquare(nnx.Module):
    offset = 0.0

    def __init__(self, rngs):
        pass

    def __call__(self, x):
        return 2 - jnp.sqrt(1 - jnp.exp(-jnp.square(x))) + self.offset * jnp.where(jnp.abs(x) < 1e-12, 1, 0)


class OffAtZero(OtherSquare):
    offset = 0.01


@pytest.mark.parametrize(("port", "passes"), [(OtherSquare, True), (OffAtZero, False)])
def test_what_rounding_leads_out_of_the_domain_excuses_no_other_number(port, passes):
    parity = judged(Square, port, "zeros")
    assert parity.equal == passes, str(parity.tensors)
