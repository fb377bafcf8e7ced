"""Tables that are read by several indices."""

import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from told_causes import causes

TAGS, TIME = 5, 6


class Path(torch.nn.Module):
    """The score of a path: of each tag and of each after the one before it."""

    def __init__(self):
        super().__init__()
        self.transitions = torch.nn.Parameter(torch.randn(TAGS, TAGS))
        self.own = torch.nn.Parameter(torch.randn(TAGS))

    def forward(self, tags):
        score = self.own[tags[0]]
        for t in range(1, len(tags)):
            score = score + self.transitions[tags[t - 1], tags[t]] + self.own[tags[t]]
        return score


class Port(nnx.Module):
    def __init__(self, rngs):
        self.transitions, self.own = nnx.Param(jnp.zeros((TAGS, TAGS))), nnx.Param(jnp.zeros(TAGS))

    def steps(self, before, after):
        return self.transitions[...][before, after]

    def __call__(self, tags):
        return self.own[...][tags].sum(0) + self.steps(tags[:-1], tags[1:]).sum(0)


class Backwards(Port):
    def steps(self, before, after):
        return self.transitions[...][after, before]


class Transposed(Port):
    def steps(self, before, after):
        return self.transitions[...].T[before, after]


@pytest.mark.parametrize("port", [Backwards, Transposed])
def test_indices_the_other_way_round_are_named(port):
    found = causes(Path, port, lambda rng: (rng.integers(0, TAGS, (TIME, 4)),))
    assert found == [("index-order", "takes the indices of axes 0 and 1 the other way round")]
