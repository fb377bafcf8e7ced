"""What a step, its loss and a checkpoint of PyTorch's are not: refused by name, with what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import graphmode as gm
from graphmode.training import Evaluation

BATCH = np.ones((4, 3), np.float32)


def make_step(loss=lambda model, batch: jnp.mean(model(batch) ** 2)):
    return gm.train_step(gm.nn.Linear(3, 1, rngs=nnx.Rngs(0)), loss, gm.optim.adam())


@pytest.mark.parametrize(
    "run",
    [
        lambda step, state: jax.jit(lambda batch: step(step.init(), batch)[1])(BATCH),
        lambda step, state: jax.jit(lambda batch: step(state, batch)[1])(BATCH),
        lambda step, state: jax.lax.scan(step, state, np.stack([BATCH] * 2)),
    ],
    ids=["init in jit", "step in jit", "step in scan"],
)
def test_a_step_within_another_graph(run):
    step = make_step()
    state = step.init()
    with pytest.raises(TypeError, match=r"while a graph is traced, .* steps_per_launch=K\) makes a graph of K steps"):
        run(step, state)
    state, _ = step(state, BATCH)  # as it was


def test_a_metric_that_is_text():
    step = make_step(lambda model, batch: (jnp.mean(model(batch)), {"name": "first"}))
    with pytest.raises(TypeError, match="the metric 'name' is 'first', and a scalar was wanted"):
        step(step.init(), BATCH)
    step = make_step()
    with pytest.raises(TypeError, match="the metric 'name' is 'first', and a scalar was wanted"):
        Evaluation([BATCH], lambda model, batch: {"name": "first"}).run(step, step.init())
    with pytest.raises(TypeError, match="metrics is a dict; give a function"):
        Evaluation([BATCH], {"name": 1.0})


@pytest.mark.parametrize("source", [None, 3, []])
def test_a_checkpoint_of_pytorchs_that_is_none(source):
    with pytest.raises(TypeError, match=f"source is a {type(source).__name__}; give the path"):
        gm.training.from_torch_checkpoint(source, make_step())


class Counting(nnx.Module):
    def __init__(self):
        self.inner = gm.nn.Linear(3, 1, rngs=nnx.Rngs(0))
        self.inner.calls, self.scale, self.rows = 0, 2.0, None

    def __call__(self, x):
        self.inner.calls += 1
        self.rows = x.shape[0]  # new, and made again by each call
        self.scale = 2.0
        return self.inner(x) * self.scale


def test_a_number_that_each_step_forgets_is_told_once(caplog):
    step = gm.train_step(Counting(), lambda model, x: jnp.mean(model(x)), gm.optim.sgd(), shapes=2)
    state, _ = step(step.init(), BATCH)
    state, _ = step(state, BATCH[:2])
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "the loss sets the model's inner.calls to 1"
    ]
    assert step.model(state).inner.calls == 0
