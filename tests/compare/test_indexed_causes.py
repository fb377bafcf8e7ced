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


class Pairs(torch.nn.Module):
    """The products of all pairs of rows."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(TAGS * (TAGS - 1) // 2, 3)

    def forward(self, x):
        z = x @ x.mT
        i, j = torch.tril_indices(TAGS, TAGS, -1)
        return self.fc(z[:, i, j])


class UpperPairs(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(TAGS * (TAGS - 1) // 2, 3, rngs=rngs)

    def __call__(self, x):
        i, j = jnp.triu_indices(TAGS, 1)
        return self.fc((x @ x.mT)[:, i, j])


def test_the_pairs_of_the_other_triangle_are_named():
    ((id, says),) = causes(Pairs, UpperPairs, lambda rng: (rng.standard_normal((2, TAGS, TIME)),))
    assert (id, says) == (
        "index-order",
        "takes the pairs in the order of their indices of axis 2, as those of the other triangle",
    )


class Edges(torch.nn.Module):
    """Weights of edges, of which those that come to one node are 1 in all."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(TIME, TIME)

    def forward(self, x, source, target, weight):
        h = self.fc(x)
        whole = torch.zeros(len(x), dtype=x.dtype).index_add(0, target, weight)
        share = weight / whole[target]
        return torch.zeros_like(h).index_add(0, target, share[:, None] * h[source])


class BySource(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(TIME, TIME, rngs=rngs)

    def __call__(self, x, source, target, weight):
        h = self.fc(x)
        whole = jnp.zeros(len(x)).at[source].add(weight)
        share = weight / whole[source]
        return jnp.zeros_like(h).at[target].add(share[:, None] * h[source])


def test_a_sum_by_other_indices_is_named_with_all_that_takes_them():
    def graph(rng):
        edges = rng.integers(0, TAGS, (2, 30))
        return rng.standard_normal((TAGS, TIME)), *edges, rng.uniform(0.5, 1, 30)

    says = "takes its input 1 for its input 2 in index_add and __getitem__, and what takes it between them"
    assert causes(Edges, BySource, graph) == [("wiring", says)]
