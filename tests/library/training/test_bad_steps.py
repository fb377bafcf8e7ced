"""What a step refuses, and what it does with a loss or a gradient that is not finite."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from torch_loops import assert_identical, assert_same, batches, cross_entropy, host, in_jax, in_torch, pair

import graphmode as gm


class Model(nnx.Module):
    def __init__(self):
        self.linear = gm.nn.Linear(3, 2, rngs=nnx.Rngs(0))
        self.seen = nnx.BatchStat(jnp.zeros((), jnp.int32))

    def __call__(self, x):
        self.seen.set_value(self.seen[...] + 1)
        return self.linear(x)


def test_a_gradient_that_is_nan_stops_a_large_layer_too():
    """Of 4096 float32 elements and more `jnp.max` may lose a NaN."""
    step = gm.train_step(
        gm.nn.Linear(128, 128, rngs=nnx.Rngs(0)),
        lambda model, x: jnp.mean(jnp.where(x > 0, jnp.sqrt(x * jnp.sum(model.weight[...] ** 2)), 0.0)),
        gm.optim.sgd(lr=0.1),
    )
    state, metrics = step(step.init(), jnp.array([0.0, 1.0]))
    assert jnp.isfinite(metrics["loss"])
    assert int(state.bad_step) == 0
    assert all(np.isfinite(leaf).all() for leaf in host(state.params))


def squared_error(model, batch):
    return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)


GOOD = {"x": np.ones((4, 3), np.float32), "y": np.ones((4, 2), np.float32)}

ARGUMENTS = {
    "model": ({"model": 3}, TypeError, "model is a int; give an nnx.Module"),
    "torch model": ({"model": torch.nn.Linear(3, 2)}, TypeError, "model is a Linear; give an nnx.Module"),
    "loss": ({"loss": None}, TypeError, "loss is a NoneType; give a function"),
    "optimizer": ({"optimizer": "adam"}, TypeError, "optimizer is a str; give one of gm.optim or of optax"),
    "torch optimizer": (
        {"optimizer": torch.optim.SGD(torch.nn.Linear(1, 1).parameters())},
        TypeError,
        "optimizer is a SGD",
    ),
    "precision": ({"precision": "half"}, ValueError, "precision is 'half'; choose 'float32' or 'bfloat16'"),
    "on_nonfinite": ({"on_nonfinite": "skip"}, ValueError, "on_nonfinite is 'skip'; choose 'stop' or 'ignore'"),
    "accumulate": ({"accumulate": 0}, ValueError, "accumulate is 0"),
    "accumulate, no integer": ({"accumulate": 1.5}, TypeError, "accumulate is 1.5"),
    "steps": ({"steps_per_launch": 0}, ValueError, "steps_per_launch is 0"),
    "shapes": ({"shapes": True}, TypeError, "shapes is True"),
    "unroll": ({"unroll": 0}, ValueError, "unroll is 0"),
    "clip_norm": ({"clip_norm": 0}, ValueError, "clip_norm is 0; give a number above 0, or None"),
    "clip_norm, nan": ({"clip_norm": np.nan}, ValueError, "clip_norm is nan"),
    "clip_value": ({"clip_value": "1"}, ValueError, "clip_value is '1'"),
    "scaling": ({"loss_scaling": gm.training.LossScaling()}, ValueError, "it is for 'float16'"),
    "scaling, no such": (
        {"loss_scaling": 2.0, "precision": "float16"},
        TypeError,
        "loss_scaling is a float; give gm.training.LossScaling()",
    ),
    "placement": ({"placement": "data"}, TypeError, "placement is a str; give gm.training.data_parallel()"),
    "frozen, nothing": ({"frozen": "encoder"}, ValueError, "frozen is 'encoder', which holds no parameter; there are"),
    "complex": (
        {"model": nnx.Linear(3, 2, param_dtype=jnp.complex64, rngs=nnx.Rngs(0))},
        TypeError,
        "the parameter bias is complex64, and a step trains floating ones",
    ),
    "frozen, all": ({"frozen": "."}, ValueError, "the model has no parameters to train"),
    "frozen, broken": ({"frozen": "("}, ValueError, "frozen is '(', which is no regular expression"),
    "averaging": ({"averaging": "ema"}, TypeError, "averaging is 'ema'; give gm.optim.ema(decay) or gm.optim.swa()"),
    "frozen, no pattern": ({"frozen": 3}, TypeError, "frozen is a int; give a regular expression"),
}


@pytest.mark.parametrize(("arguments", "error", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_bad_arguments_are_refused_at_once(arguments, error, message):
    given = {"model": Model(), "loss": squared_error, "optimizer": gm.optim.sgd()} | arguments
    with pytest.raises(error, match=re.escape(message)):
        gm.train_step(**given)


def rows(count):
    return {"x": np.ones((count, 3), np.float32), "y": np.ones((count, 2), np.float32)}


BATCHES = {
    "other rows": ({}, rows(6), ValueError, "another shape than before (batch['x']: float32[6, 3]"),
    "other dtype": ({}, GOOD | {"x": np.ones((4, 3), np.int32)}, ValueError, "batch['x']: int32[4, 3]"),
    "one more": ({}, GOOD | {"z": np.ones(4)}, ValueError, "another shape than before"),
    "one less": ({}, {"x": GOOD["x"]}, ValueError, "another shape than before"),
    "a tuple": ({}, (GOOD["x"], GOOD["y"]), ValueError, "another shape than before"),
    "a tensor": ({}, GOOD | {"x": torch.ones(4, 3)}, TypeError, "batch['x'] is a Tensor, and an array was wanted"),
    "a string": ({}, GOOD | {"name": "a"}, TypeError, "batch['name'] is a str, and an array was wanted"),
    "strings": ({}, GOOD | {"name": np.array(["a"] * 4)}, TypeError, "batch['name'] is an array of <U1, and numbers"),
    "objects": ({}, GOOD | {"name": np.array([None] * 4)}, TypeError, "batch['name'] is an array of object"),
    "a number": ({}, GOOD | {"weight": 1.0}, TypeError, "batch['weight'] is a float, and an array was wanted"),
    "no axis": (
        {},
        GOOD | {"weight": np.float32(1)},
        ValueError,
        "batch['weight'] has shape [], and [batch, ...] was wanted: give what all rows share",
    ),
    "rows differ": (
        {"accumulate": 2},
        GOOD | {"y": np.ones((3, 2), np.float32)},
        ValueError,
        "batch['x'] has 4, batch['y'] has 3; what accumulate and placement cut has as many rows",
    ),
    "nothing": ({}, {}, ValueError, "batch holds no arrays"),
    "no rows": ({}, rows(0), ValueError, "the batch has no rows"),
    "not divisible": ({"accumulate": 2}, rows(5), ValueError, "the batch has 5 rows, which accumulate=2 does not"),
}


@pytest.mark.parametrize(("options", "batch", "error", "message"), BATCHES.values(), ids=BATCHES)
def test_a_bad_batch_is_refused_and_the_state_is_as_it_was(options, batch, error, message):
    step = gm.train_step(Model(), squared_error, gm.optim.sgd(), **options)
    state, _ = step(step.init(), GOOD)
    before = host(state)
    with pytest.raises(error, match=re.escape(message)):
        step(state, batch)
    assert_identical(host(state), before)
    state, _ = step(state, GOOD)
    assert int(state.step) == 2
    assert step.traces == 1


@pytest.mark.parametrize(
    "name", ["a tensor", "strings", "no axis", "rows differ", "nothing", "no rows", "not divisible"]
)
def test_the_first_batch_is_looked_at_too(name):
    options, batch, error, message = BATCHES[name]
    step = gm.train_step(Model(), squared_error, gm.optim.sgd(), **options)
    state = step.init()
    with pytest.raises(error, match=re.escape(message)):
        step(state, batch)
    state, _ = step(state, GOOD)
    assert (int(state.step), step.traces) == (1, 1)


def test_batches_of_several_steps_are_looked_at():
    step = gm.train_step(Model(), squared_error, gm.optim.sgd(), steps_per_launch=2)
    state = step.init()
    with pytest.raises(ValueError, match=r"first axis is 2 steps per launch"):
        step(state, jax.tree.map(lambda x: np.stack([x] * 3), GOOD))
    with pytest.raises(ValueError, match=re.escape("[steps_per_launch, batch, ...] was wanted")):
        step(state, {"x": np.ones(2, np.float32)})


def test_where_nothing_is_cut_arrays_have_axes_of_their_own():
    """As the edges of a graph beside its nodes, of which there may be none."""

    def loss(model, batch):
        source, target = batch["edges"]
        passed = jnp.zeros_like(batch["x"]).at[target].add(batch["x"][source])
        return jnp.mean((model(batch["x"] + passed) - batch["y"]) ** 2)

    step = gm.train_step(Model(), loss, gm.optim.sgd(), shapes=2)
    state = step.init()
    for count in (7, 0):
        state, _ = step(state, GOOD | {"edges": np.zeros((2, count), np.int32)})
    assert (int(state.step), step.traces) == (2, 2)


def grows(model, batch):
    model.linear.extra = nnx.Param(jnp.ones(3))
    return squared_error(model, batch)


def shrinks(model, batch):
    del model.seen
    return jnp.mean((model.linear(batch["x"])) ** 2)


def widens(model, batch):
    value = squared_error(model, batch)
    model.seen.set_value(model.seen[...] + value)
    return value


LOSSES = {
    "rows": (lambda m, b: (m(b["x"]) ** 2).mean(1), TypeError, "the loss has shape [4], and a scalar was wanted"),
    "none": (lambda m, b: None, TypeError, "the loss is a NoneType, and a scalar was wanted"),
    "a number": (lambda m, b: 1.0, TypeError, "the loss is a float"),
    "integer": (lambda m, b: jnp.int32(1), TypeError, "the loss is int32, and a floating scalar was wanted"),
    "empty": (lambda m, b: {}, ValueError, "empty mapping"),
    "a part": (lambda m, b: {"a": m(b["x"])}, TypeError, "the loss 'a' has shape [4, 2]"),
    "metric": (lambda m, b: (m(b["x"]).mean(), {"a": m(b["x"])}), TypeError, "the metric 'a' has shape [4, 2]"),
    "metrics": (lambda m, b: (m(b["x"]).mean(), [1]), TypeError, "metrics as a list; give a mapping"),
    "reserved": (lambda m, b: {"loss": m(b["x"]).mean()}, ValueError, "'loss', which is a metric of the step's own"),
    "present": (
        lambda m, b: gm.training.Loss(m(b["x"]).mean(), {}, {"encoder": True}),
        ValueError,
        "present has 'encoder', which is no parameter or module; there are linear.bias, linear.weight",
    ),
    "grows": (grows, ValueError, "the loss changes which variables the model has: adds ['linear.extra'], removes []"),
    "shrinks": (shrinks, ValueError, "adds [], removes ['seen']"),
    "widens": (widens, ValueError, "the loss makes the variable seen float32[], and it was int32[]"),
}


@pytest.mark.parametrize(("loss", "error", "message"), LOSSES.values(), ids=LOSSES)
def test_a_bad_loss_is_refused_and_the_state_is_as_it_was(loss, error, message):
    step = gm.train_step(Model(), loss, gm.optim.sgd())
    state = step.init()
    before = host(state)
    with pytest.raises(error, match=re.escape(message)):
        step(state, GOOD)
    assert_identical(host(state), before)
    good = gm.train_step(Model(), squared_error, gm.optim.sgd())
    state, _ = good(state, GOOD)
    assert int(state.step) == 1


def test_what_is_sown_has_no_place_in_the_state():
    class Sows(Model):
        def __call__(self, x):
            self.sow(nnx.Intermediate, "hidden", x)
            return super().__call__(x)

    step = gm.train_step(Sows(), squared_error, gm.optim.sgd())
    with (
        pytest.warns(DeprecationWarning, match="sow"),
        pytest.raises(ValueError, match=re.escape("adds ['hidden") + ".*nnx.pop inside the loss"),
    ):
        step(step.init(), GOOD)


def test_a_batch_that_the_model_refuses_is_no_shape_of_batches():
    step = gm.train_step(Model(), squared_error, gm.optim.sgd())
    state = step.init()
    with pytest.raises(ValueError, match=r"linear \(Linear\): input has shape \(4, 5\)"):
        step(state, GOOD | {"x": np.ones((4, 5), np.float32)})
    state, _ = step(state, GOOD)
    assert int(state.step) == 1


def test_a_consumed_state_and_what_is_none_are_named():
    step = gm.train_step(Model(), squared_error, gm.optim.sgd())
    state = step.init()
    after, _ = step(state, GOOD)
    for call in (lambda state: step(state, GOOD), step.model):
        with pytest.raises(ValueError, match="state was consumed by an earlier step"):
            call(state)
        with pytest.raises(TypeError, match="state is a dict; give the one of init"):
            call(GOOD)
    with pytest.raises(ValueError, match="averaged is True, and the step averages nothing"):
        step.model(after, averaged=True)
    step(after, GOOD)


def test_a_state_of_another_model_is_named():
    class Wider(nnx.Module):
        def __init__(self):
            self.linear = gm.nn.Linear(3, 5, rngs=nnx.Rngs(0))

    class Deeper(Model):
        def __init__(self):
            super().__init__()
            self.more = gm.nn.Linear(2, 2, rngs=nnx.Rngs(0))

    step = gm.train_step(Model(), squared_error, gm.optim.sgd())
    told = {Wider(): r"it has float32\[5\] as linear.bias, and the model float32\[2\]",
            Deeper(): r"it has a variable more.bias, and the model has none"}  # fmt: skip
    for other, words in told.items():
        state = gm.train_step(other, squared_error, gm.optim.sgd()).init()
        with pytest.raises(ValueError, match=f"state is of another model: {words}; give one of this step"):
            step(state, GOOD)
    assert step.traces == 0


@pytest.mark.usefixtures("double")
def test_a_label_out_of_range_stops_before_its_step():
    net, model = pair()
    given = batches(6)
    given[3]["label"][0] = 7
    step = gm.train_step(model, cross_entropy, gm.optim.adamw(lr=0.01))
    state, seen = step.init(), []
    for batch in given:
        before = host(state)
        state, metrics = step(state, batch)
        seen.append((int(state.step), int(state.bad_step), bool(np.isfinite(metrics["loss"]))))
        if len(seen) > 4:
            assert_identical(host(state), before)
    assert seen == [(1, -1, True), (2, -1, True), (3, -1, True), (3, 3, False), (3, 3, True), (3, 3, True)]
    in_torch(net, torch.optim.AdamW(net.parameters(), lr=0.01), given[:3])
    assert_same(step, state, net)  # running statistics too


def nan_in_gradient(model, batch):
    """A finite loss, the gradient of which is not: the root of zero."""
    return squared_error(model, batch) + jnp.sqrt(jnp.sum((model.linear.bias * batch["zero"][0]) ** 2))


POISONED = {
    "input": (squared_error, {"x": np.full((4, 3), np.nan, np.float32)}),
    "infinite": (squared_error, {"y": np.full((4, 2), np.inf, np.float32)}),
    "gradient alone": (nan_in_gradient, {"zero": np.zeros(4, np.float32)}),
}


@pytest.mark.parametrize("options", [{}, {"clip_norm": 1.0}, {"accumulate": 2}], ids=["plain", "clip", "accumulate"])
@pytest.mark.parametrize("optimizer", [gm.optim.adamw(), optax.adam(1e-3)], ids=["ours", "optax"])
@pytest.mark.parametrize(("loss", "poison"), POISONED.values(), ids=POISONED)
def test_the_first_step_that_is_not_finite_changes_nothing(loss, poison, optimizer, options):
    good = GOOD | {"zero": np.ones(4, np.float32)}
    step = gm.train_step(Model(), loss, optimizer, **options)
    state = step.init()
    for _ in range(2):
        state, _ = step(state, good)
    before = host(state)
    for batch in (good | poison, good, good | poison):
        state, _ = step(state, batch)
        assert int(state.bad_step) == 2
        assert_identical(host(state)[:-1], before[:-1])  # all but bad_step
    assert not any(np.isnan(x).any() for x in before if x.dtype.kind == "f")


def test_what_the_loss_itself_does_to_a_parameter_is_undone_too():
    def decays(model, batch):
        model.linear.bias[...] = model.linear.bias[...] + 1
        return squared_error(model, batch)

    step = gm.train_step(Model(), decays, gm.optim.sgd())
    state, _ = step(step.init(), GOOD)
    before = host(state.params)
    state, _ = step(state, GOOD | {"x": np.full((4, 3), np.nan, np.float32)})
    assert_identical(host(state.params), before)


@pytest.mark.usefixtures("double")
def test_ignore_goes_on_as_pytorch_does():
    net, model = pair()
    given = batches(4)
    given[2]["image"][0, 0, 0, 0] = np.nan
    step = gm.train_step(model, cross_entropy, gm.optim.sgd(lr=0.1), on_nonfinite="ignore")
    state, metrics = in_jax(step, given)
    losses, _ = in_torch(net, torch.optim.SGD(net.parameters(), lr=0.1), given)
    np.testing.assert_allclose(metrics["loss"], losses, rtol=1e-10)  # NaN equals NaN
    assert np.isnan(losses).tolist() == [False, False, True, True]
    assert (int(state.step), int(state.bad_step)) == (4, -1)
    ours = gm.weights.to_state_dict(step.model(state))
    for name, value in net.state_dict().items():
        assert torch.equal(torch.isnan(ours[name]), torch.isnan(value)), name
