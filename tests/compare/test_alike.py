"""Values that are equal where rounding could part them: told, and held against nobody."""

import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.moved_results import MovedResults

import graphmode as gm

WIDTH = 5


class Concordance(torch.nn.Module):
    """The share of pairs of scores in order, one of equal ones counting half."""

    def __init__(self):
        super().__init__()
        self.score = torch.nn.Linear(WIDTH, 1)

    def forward(self, x):
        score = torch.tanh(self.score(x))[:, 0]
        more, equal = score[:, None] > score, score[:, None] == score
        return (more + 0.5 * equal).triu(1).mean(), score


class Port(nnx.Module):
    half = 0.5

    def __init__(self, rngs):
        self.score = gm.nn.Linear(WIDTH, 1, rngs=rngs)

    def __call__(self, x):
        score = jnp.tanh(self.score(x))[:, 0]
        more, equal = score[:, None] > score, score[:, None] == score
        return jnp.triu(more + self.half * equal, 1).mean(), score


class CountsNoTie(Port):
    half = 0.0


@pytest.mark.parametrize(("port", "is_told"), [(Port, False), (CountsNoTie, True)])
def test_a_tie_that_rounding_could_part_is_told(port, is_told):
    case = Case(
        name="c",
        summary="s",
        reference=Concordance,
        model=port,
        inputs=lambda rng: (rng.standard_normal((6, WIDTH)),),
        modes=("inference",),
        adversarial=("zeros",),
    )
    (parity,) = check(case, draws=1).parity
    assert parity.equal
    assert any("on 'zeros'" in warning and "equal there" in warning for warning in parity.warnings) == is_told


def test_noise_of_the_number_s_own_leaves_equal_what_is():
    x = torch.tensor([0.3, 0.7, 0.3, 0.0, -0.3, 1e40], dtype=torch.float64)
    for seed in range(5):
        with MovedResults("float64", seed, alike=True):
            moved = torch.tanh(x)
        assert moved[0] == moved[2] == -moved[4]
        assert moved[3] == 0
        assert moved[5] == 1
        assert ((moved - torch.tanh(x)).abs() < 1e-15).all()
    assert moved[1] != torch.tanh(x)[1]
