"""A port's graph run once more: what this platform computes is a part of it, operation by operation."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from graphmode.compare import Case
from graphmode.compare.parity.causes.graph import Graph
from graphmode.compare.parity.examination import Examination
from jax import lax

import graphmode.nn as gnn


class Original(torch.nn.Module):
    """Of a form that runs otherwise on each platform."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.linear(x)) + 1


class Branching(nnx.Module):
    def __init__(self, rngs):
        self.linear = gnn.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        def elsewhere(h):
            return jnp.sin(h)

        return lax.platform_dependent(self.linear(x), cpu=jnp.tanh, default=elsewhere) + 1


def test_the_branch_of_this_platform_is_a_part_of_the_graph():
    case = Case(
        name="branching",
        summary="another form on each platform",
        model=lambda rngs: Branching(rngs),
        reference=Original,
        inputs=lambda rng: {"x": rng.standard_normal((4, 8)).astype("float32")},
    )
    exam = Examination(case, seed=0, draws=1, locate=False)
    question = next(t.question for t in exam.truths if t.question.mode == "inference")
    graph = Graph(exam.port_side("default", "float32"), question)
    seen = {}

    def visit(operation, given, in_float64):
        seen[operation.eqn.primitive.name] = results = in_float64(given)
        return results

    graph.evaluate(visit)
    assert "tanh" in seen
    assert "sin" not in seen
    assert "cond" not in seen
    (inside,) = seen["tanh"]
    assert inside.dtype == jnp.float64
    assert np.abs(np.asarray(inside) - np.asarray(inside, np.float32)).max() > 0
