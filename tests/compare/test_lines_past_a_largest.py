"""The line of a wrong port that takes the largest off before an exponential, to add it again: no reference has to."""

import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from told_lines import checked, lines_with

import graphmode as gm


class Likelihood(torch.nn.Module):
    """Of what is left when some have gone, of one row or of several."""

    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(4, 1)

    def forward(self, x, gone):
        scores = self.scores(x)[..., 0]
        total = torch.logsumexp(scores, -1).exp()
        taken = torch.where(gone, scores, -torch.inf).exp().sum(-1)
        return torch.log(total - 0.5 * taken)


class LikelihoodPort(nnx.Module):
    def __init__(self, rngs):
        self.scores = gm.nn.Linear(4, 1, rngs=rngs)

    def __call__(self, x, gone):
        scores = self.scores(x)[..., 0]
        largest = scores.max(-1, keepdims=True)
        weights = jnp.exp(scores - largest)
        taken = (jnp.where(gone, weights, 0) / jnp.cosh(x[..., 0])).sum(-1)  # of the gone
        return jnp.log(weights.sum(-1) - 0.5 * taken) + largest[..., 0]


@pytest.mark.parametrize("shape", [(6,), (3, 6)])
def test_the_largest_that_is_taken_off_and_added_again_is_not_told(shape):
    astray, _ = checked(
        Likelihood, LikelihoodPort, lambda rng: (rng.standard_normal((*shape, 4)), rng.random(shape) < 0.5)
    )
    assert [line.split()[0] for line in astray.port] == lines_with(__file__, "of the gone")
