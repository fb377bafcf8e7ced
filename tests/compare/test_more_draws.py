"""What few random inputs miss: a port that is right on them is asked for its outputs on more."""

import jax.numpy as jnp
import torch
from flax import nnx
from graphmode.compare import Case, check

ROWS, WIDTH = 4, 3


class Highest(torch.nn.Module):
    """The place of the largest sum, or -1 where that is not large."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        sums = (x * self.scale).sum(-1)
        return torch.where(sums.max() > -2.5, sums.argmax(), torch.tensor(-1))


class HighestPort(nnx.Module):
    def __init__(self, rngs):
        self.scale = nnx.Param(jnp.ones(WIDTH))

    def __call__(self, x):
        sums = (x * self.scale[...]).sum(-1)
        return jnp.where(sums.max() > -2.5, sums.argmax(), -1)


class OfAny(HighestPort):
    """One input in some twenty has no large sum, and none of the first three that this seed draws."""

    def __call__(self, x):
        return (x * self.scale[...]).sum(-1).argmax()


def case(port):
    draw = lambda rng: ((rng.standard_normal((ROWS, WIDTH)) - 0.7),)  # noqa: E731
    return Case(name="c", summary="s", reference=Highest, model=port, inputs=draw, modes=("inference",), adversarial=())


def test_what_one_input_in_many_shows_is_found():
    assert check(case(HighestPort)).passed
    report = check(case(OfAny), seed=1)
    wrong = {tensor.input for parity in report.parity for tensor in parity.tensors if not tensor.equal}
    assert len(wrong) == 1
    assert "of more" in wrong.pop()
