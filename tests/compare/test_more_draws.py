"""What few random inputs miss: a port that is right on them is asked for its outputs on more."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
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


class Two(torch.nn.Module):
    """The places of the two largest, of which PyTorch promises no order where they are equal."""

    def forward(self, x):
        return x.topk(2).indices, (x > 4.5).sum()


class TwoPort(nnx.Module):
    limit = 4.5

    def __init__(self, rngs):
        pass

    def __call__(self, x):
        return jax.lax.top_k(x, 2)[1], (x > self.limit).sum()


class TwoOfLess(TwoPort):
    limit = 3.5


def few_equal(rng):
    """Numbers of which some are equal, and few above 4: of the first draws' none."""
    x = rng.permutation(12).astype(float) / 3
    return (np.where(rng.random() < 0.2, np.full(12, x[0]), x),)


def test_what_the_order_of_equal_elements_makes_is_not_held_against_a_port():
    right = Case(
        name="c", summary="s", reference=Two, model=TwoPort, inputs=few_equal, modes=("inference",), adversarial=()
    )
    assert check(right, seed=1).passed
    assert not check(replace(right, model=TwoOfLess), seed=1).passed


class Lost(torch.nn.Module):
    """How much of a sum to one is left out: nothing, but for rounding, where all are large enough."""

    def forward(self, x):
        return ((torch.softmax(x, -1) * (x > -1)).sum() - ROWS).abs()


class LostPort(nnx.Module):
    def __init__(self, rngs):
        pass

    def __call__(self, x):
        shares = jnp.exp(x) * (x > -1)
        return jnp.abs((shares.sum(-1) / jnp.exp(x).sum(-1)).sum() - ROWS)


class LostAll(LostPort):
    """Off by little, on the draws on which nothing is left out, too."""

    def __call__(self, x):
        return super().__call__(x) + 1e-5


def test_what_is_zero_but_for_rounding_on_one_draw_is_judged_beside_what_it_is_on_others():
    case = Case(
        name="c", summary="s", reference=Lost, model=LostPort, modes=("inference",), adversarial=(),
        inputs=lambda rng: (rng.standard_normal((ROWS, WIDTH)),),
    )  # fmt: skip
    assert check(case, seed=1).passed
    assert not check(replace(case, model=LostAll), seed=1).passed
