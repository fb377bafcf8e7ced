"""What a launch does with memory and with time: donation, several steps at once, one compilation a shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch_loops import (
    assert_same,
    batches,
    cross_entropy,
    host,
    in_jax,
    in_torch,
    pair,
)

import graphmode as gm


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("unroll", [1, 2, True])
def test_several_steps_a_launch_are_the_single_steps(unroll):
    net, model = pair()
    given = batches(8)
    stacked = [jax.tree.map(lambda *x: np.stack(x), *given[i : i + 4]) for i in (0, 4)]
    step = gm.train_step(model, cross_entropy, gm.optim.adamw(lr=0.01), steps_per_launch=4, unroll=unroll)
    state, found = step.init(), []
    for batch in stacked:
        state, metrics = step(state, batch)
        assert {name: value.shape for name, value in metrics.items()} == {"loss": (4,), "lr": (4,)}
        found += metrics["loss"].tolist()
    losses, _ = in_torch(net, torch.optim.AdamW(net.parameters(), lr=0.01), given)
    np.testing.assert_allclose(found, losses, rtol=1e-10)
    assert_same(step, state, net)
    assert int(state.step) == 8
    assert step.traces == 1


@pytest.mark.usefixtures("double")
def test_dropout_draws_in_a_launch_as_it_does_step_by_step():
    given = batches(4)
    single = gm.train_step(pair(dropout=0.5)[1], cross_entropy, gm.optim.sgd(lr=0.1))
    one, metrics = in_jax(single, given)
    several = gm.train_step(pair(dropout=0.5)[1], cross_entropy, gm.optim.sgd(lr=0.1), steps_per_launch=4)
    other, stacked = several(several.init(), jax.tree.map(lambda *x: np.stack(x), *given))
    np.testing.assert_allclose(stacked["loss"], metrics["loss"], rtol=1e-12)
    for a, b in zip(host(one), host(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    evaluated = in_jax(gm.train_step(pair()[1], cross_entropy, gm.optim.sgd(lr=0.1)), given)[1]
    assert np.abs(metrics["loss"] - evaluated["loss"]).min() > 1e-6, "nothing was dropped"
    assert len(set(np.round(metrics["loss"], 9))) == 4


@pytest.mark.usefixtures("double")
def test_a_step_that_is_not_finite_ends_its_launch():
    given = batches(4)
    given[2]["image"][0] = np.nan
    step = gm.train_step(pair()[1], cross_entropy, gm.optim.adamw(), steps_per_launch=4)
    state, metrics = step(step.init(), jax.tree.map(lambda *x: np.stack(x), *given))
    single = gm.train_step(pair()[1], cross_entropy, gm.optim.adamw())
    wanted, _ = in_jax(single, given[:2])
    assert (int(state.step), int(state.bad_step)) == (2, 2)
    assert np.isfinite(metrics["loss"]).tolist() == [True, True, False, True]
    for a, b in zip(host(state)[:-1], host(wanted)[:-1], strict=True):  # all but bad_step
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def squared_error(model, batch):
    return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)


def linear_batch(rows=4, value=1.0):
    return {"x": np.full((rows, 3), value, np.float32), "y": np.ones((rows, 2), np.float32)}


def linear_step(**options):
    return gm.train_step(gm.nn.Linear(3, 2, rngs=nnx.Rngs(0)), squared_error, gm.optim.adamw(), **options)


def test_the_state_is_consumed_and_nothing_else():
    _, model = pair(dtype=torch.float32)
    given = batches(3, dtype="float32")
    before = host(nnx.state(model))
    step = gm.train_step(model, cross_entropy, gm.optim.adamw())
    state = step.init()
    after, _ = step(state, given[0])
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((state.params, state.optimizer)))
    taken = step.model(after)
    values = host(nnx.state(taken))
    last, _ = step(after, given[1])
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((after.params, after.optimizer)))
    for tree, kept in ((nnx.state(taken), values), (nnx.state(model), before)):
        assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(tree))
        for a, b in zip(host(tree), kept, strict=True):
            np.testing.assert_array_equal(a, b)
    taken(given[0]["image"])
    step(last, given[2])


def test_the_model_given_and_the_step_know_nothing_of_each_other():
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    metadata, value = dict(model.kernel.get_metadata()), np.asarray(model.kernel[...])
    step = gm.train_step(model, squared_error, gm.optim.sgd())
    assert model.kernel.get_metadata() == metadata
    model.kernel[...] = jnp.zeros((3, 2))
    np.testing.assert_array_equal(step.init().params["kernel"][...], value)
    assert set(gm.weights.to_state_dict(step.model(step.init()))) == {"weight", "bias"}


def test_two_parameters_on_one_buffer_are_two():
    class Two(nnx.Module):
        def __init__(self):
            values = jnp.ones((3, 2))
            self.a, self.b = nnx.Param(values), nnx.Param(values)

        def __call__(self, x):
            return x @ self.a + 2 * (x @ self.b)

    step = gm.train_step(Two(), squared_error, gm.optim.sgd(lr=0.01))
    state, _ = step(step.init(), linear_batch())
    state, _ = step(state, linear_batch())
    assert not np.allclose(state.params["a"][...], state.params["b"][...])


@pytest.mark.usefixtures("double")
def test_a_tied_weight_is_one_parameter():
    class TorchTied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(3, 3)
            self.second = torch.nn.Linear(3, 3)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(torch.tanh(self.first(x)))

    class Tied(nnx.Module):
        def __init__(self):
            self.first = gm.nn.Linear(3, 3, rngs=nnx.Rngs(0))
            self.second = gm.nn.Linear(3, 3, rngs=nnx.Rngs(1))
            self.second.weight = self.first.weight

        def __call__(self, x):
            return self.second(jnp.tanh(self.first(x)))

    torch.manual_seed(0)
    net, model = TorchTied(), Tied()
    gm.weights.load(model, net.state_dict())
    rng = np.random.default_rng(0)
    given = [{"x": rng.standard_normal((4, 3)), "y": rng.standard_normal((4, 3))} for _ in range(5)]
    step = gm.train_step(model, squared_error, gm.optim.adamw(lr=0.01, weight_decay=0.5), clip_norm=0.1)
    state, metrics = in_jax(step, given)
    theirs = lambda net, b: ((net(b["x"]) - b["y"]) ** 2).mean()  # noqa: E731
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.5)
    _, norms = in_torch(net, optimizer, given, loss=theirs, clip_norm=0.1)
    np.testing.assert_allclose(metrics["grad_norm"], norms, rtol=1e-10)
    assert_same(step, state, net)
    assert len(state.optimizer.slots["exp_avg"]) == len(list(net.parameters())) == 3
    taken = step.model(state)
    assert taken.first.weight is taken.second.weight


class Compilations:
    """Counts what XLA compiles."""

    def __init__(self):
        self.count = 0
        self.listening = True
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event, duration, **_):
        self.count += self.listening and event == "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compilations():
    counter = Compilations()
    yield counter
    counter.listening = False


class Pooled(nnx.Module):
    def __init__(self):
        self.head = gm.nn.Linear(1, 2, rngs=nnx.Rngs(0))

    def __call__(self, values, mask):
        return self.head((values * mask).sum(1, keepdims=True) / jnp.maximum(mask.sum(1, keepdims=True), 1))


def test_a_thousand_ragged_batches_are_compiled_once_a_bucket(compilations):
    rng = np.random.default_rng(0)
    sequences = [rng.standard_normal(rng.integers(1, 33)).astype(np.float32) for _ in range(4_000)]
    buckets = gm.bucket_lengths([len(s) for s in sequences], buckets=4)
    assert len(buckets) == 4

    def loss(model, batch):
        return jnp.mean((model(batch["values"], batch["mask"]) - 1) ** 2)

    step = gm.train_step(Pooled(), loss, gm.optim.sgd(), shapes=len(buckets))
    state = step.init()
    steps, before = 0, compilations.count
    for _, batch in gm.batches_by_bucket(sequences, lengths=buckets, batch_size=4):
        state, _ = step(state, {"values": batch.values, "mask": batch.mask.astype(np.float32)})
        steps += 1
    assert steps >= 1_000
    assert int(state.step) == steps
    assert step.traces == 4
    assert compilations.count - before == 4
    with pytest.raises(ValueError, match=r"shapes=5"):
        step(state, {"values": np.ones((4, 99), np.float32), "mask": np.ones((4, 99), np.float32)})
    assert step.traces == 4


KINDS = {
    "numpy": lambda x: x,
    "float64 of numpy": lambda x: x.astype(np.float64),
    "on the device": jnp.asarray,
    "committed": lambda x: jax.device_put(x, jax.devices()[0]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_compilation_for_batches_of_one_kind(kind, compilations):
    step = linear_step()
    given = [jax.tree.map(KINDS[kind], linear_batch()) for _ in range(4)]
    state = step.init()
    before = compilations.count
    for batch in given:
        state, _ = step(state, batch)
    assert compilations.count - before == 1
    assert step.traces == 1


class WeaklyTyped(nnx.Module):
    """A parameter and a buffer made of Python numbers, whose dtype is weak."""

    def __init__(self):
        self.scale = nnx.Param(jnp.asarray(1.0))
        self.seen = nnx.BatchStat(jnp.asarray(0.0))

    def __call__(self, x):
        self.seen.set_value(jnp.full((), 2.0))
        return x[:, :2] * self.scale


def test_weak_dtypes_are_no_further_compilation(compilations):
    weak = jnp.full((4, 3), 2.0)
    assert weak.weak_type
    step = gm.train_step(WeaklyTyped(), squared_error, gm.optim.sgd())
    state = step.init()
    jax.block_until_ready(weak.astype(weak.dtype))
    before = compilations.count
    for x in (linear_batch()["x"], weak, weak):
        state, _ = step(state, {"x": x, "y": linear_batch()["y"]})
    assert step.traces == 1
    assert compilations.count - before == 1
