"""A port's graph run once more: what this platform computes is a part of it, operation by operation."""

from __future__ import annotations

import inspect

import jax
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


class Turning(nnx.Module):
    """A branch that values choose, and a loop that they end."""

    def __init__(self, rngs):
        self.linear = gnn.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        h = self.linear(x)
        h = lax.cond(h.sum() < 1e9, jnp.tanh, jnp.sin, h)
        _, h = lax.while_loop(lambda carry: carry[0] < 3, lambda carry: (carry[0] + 1, carry[1] - 1 / 3), (0, h))
        return h


class Turned(Original):
    def forward(self, x):
        return torch.tanh(self.linear(x)) - 1


def test_the_branch_that_is_taken_and_each_turn_of_a_loop_are_seen_where_they_are_asked_for():
    case = Case(
        name="c",
        summary="s",
        reference=Turned,
        model=Turning,
        inputs=lambda rng: (rng.normal(size=(3, 8)).astype(np.float32),),
        adversarial=(),
        modes=("inference",),
    )
    exam = Examination(case, seed=0, dtype="float32", device="cpu")
    graph = Graph(exam.port_side("default", "float64"), exam.truths[0].question)
    seen = {}
    for opened in (False, True):
        names = []

        def visit(operation, given, in_float64, names=names):
            names.append(operation.eqn.primitive.name)
            return in_float64(given)

        (values,) = graph.evaluate(visit, opened=opened)
        wanted = exam.truths[0].reference.outputs["output"]
        np.testing.assert_allclose(np.asarray(values), wanted, rtol=1e-12)
        seen[opened] = names
    assert {"cond", "while"} <= set(seen[False])
    assert not {"cond", "while"} & set(seen[True])
    assert (seen[True].count("tanh"), seen[True].count("sin")) == (1, 0)
    assert seen[True].count("sub") == 3  # a turn each


class Rectified(nnx.Module):
    """A function that JAX traces once and two lines call."""

    def __init__(self, rngs):
        self.linear = gnn.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        h = jax.nn.relu(x)
        h = self.linear(h)
        return jax.nn.relu(h)


class Rectifying(Original):
    def forward(self, x):
        return torch.relu(self.linear(torch.relu(x)))


def test_what_is_inside_a_function_of_jax_has_the_line_that_calls_it():
    case = Case(
        name="rectified",
        summary="one function twice",
        reference=Rectifying,
        model=Rectified,
        inputs=lambda rng: (rng.normal(size=(3, 8)).astype(np.float32),),
        modes=("inference",),
    )
    exam = Examination(case, seed=0, draws=1, locate=False)
    graph = Graph(exam.port_side("default", "float32"), exam.truths[0].question)
    called = inspect.getsourcelines(Rectified.__call__)[1]
    wanted = [f"test_graph.py:{called + 1}", f"test_graph.py:{called + 3}"]
    assert [each.source for each in graph.operations() if each.eqn.primitive.name == "max"] == wanted
    run = []

    def visit(operation, given, in_float64):
        run.append(operation)
        return in_float64(given)

    graph.evaluate(visit)
    assert [each.source for each in run if each.eqn.primitive.name == "max"] == wanted
    assert {each.module for each in run} == {"", "linear"}


class EachTurning(nnx.Module):
    """A loop whose rows end one after the other."""

    def __init__(self, rngs):
        self.linear = gnn.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        def until_small(row):
            return lax.while_loop(lambda row: jnp.abs(row).max() > 0.1, lambda row: row * 0.5, row)

        return jax.vmap(until_small)(self.linear(x))


class EachTurned(Original):
    def forward(self, x):
        rows = list(self.linear(x))
        for i in range(len(rows)):
            while rows[i].abs().max() > 0.1:
                rows[i] = rows[i] * 0.5
        return torch.stack(rows)


def test_a_row_that_has_come_to_its_end_is_kept_while_others_turn():
    case = Case(
        name="c",
        summary="s",
        reference=EachTurned,
        model=EachTurning,
        inputs=lambda rng: (rng.normal(size=(3, 8)) * 4.0 ** np.arange(3)[:, None],),
        adversarial=(),
        modes=("inference",),
    )
    exam = Examination(case, seed=0, dtype="float32", device="cpu")
    graph = Graph(exam.port_side("default", "float64"), exam.truths[0].question)
    (values,) = graph.evaluate(opened=True)
    np.testing.assert_allclose(np.asarray(values), exam.truths[0].reference.outputs["output"], rtol=1e-12)
