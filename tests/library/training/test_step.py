"""`gm.train_step` beside the loop that it stands for, in float64: losses, parameters, running statistics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch_loops import (
    as_tensors,
    assert_same,
    batches,
    cross_entropy,
    in_jax,
    in_torch,
    pair,
    torch_cross_entropy,
)

import graphmode as gm

pytestmark = pytest.mark.usefixtures("double")

OPTIMIZERS = {
    "SGD": (gm.optim.sgd, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "AdamW": (gm.optim.adamw, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}
STEPS = {
    "plain": {},
    "accumulate": {"accumulate": 4},
    "clip_norm": {"clip_norm": 0.3},
    "clip_value": {"clip_value": 0.02},
    "both": {"clip_norm": 0.3, "clip_value": 0.02},
    "accumulate and clip": {"accumulate": 2, "clip_norm": 0.3},
}


@pytest.mark.parametrize("options", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_ten_steps(optimizer, options):
    make, theirs, arguments = OPTIMIZERS[optimizer]
    net, model = pair()
    step = gm.train_step(model, cross_entropy, make(**arguments), **options)
    given = batches(10)
    state, metrics = in_jax(step, given)
    renamed = {{"accumulate": "parts"}.get(name, name): value for name, value in options.items()}
    losses, norms = in_torch(net, theirs(net.parameters(), **arguments), given, **renamed)
    np.testing.assert_allclose(metrics["loss"], losses, rtol=1e-10)
    assert_same(step, state, net)
    assert int(state.step) == 10
    assert int(state.bad_step) == -1
    assert step.traces == 1
    if "clip_norm" in options:
        assert min(norms) < options["clip_norm"] * 2
        assert max(norms) > options["clip_norm"], "nothing was clipped"
        np.testing.assert_allclose(metrics["grad_norm"], norms, rtol=1e-10)
    else:
        assert "grad_norm" not in metrics


def test_a_norm_below_the_limit_is_left_alone():
    net, model = pair()
    step = gm.train_step(model, cross_entropy, gm.optim.sgd(lr=0.1), clip_norm=1e3)
    state, _ = in_jax(step, batches(3))
    in_torch(net, torch.optim.SGD(net.parameters(), lr=0.1), batches(3))
    assert_same(step, state, net)


def test_a_scheduled_learning_rate_is_a_metric():
    _, model = pair()
    step = gm.train_step(model, cross_entropy, gm.optim.sgd(lr=lambda count: 0.1 / (count + 1)))
    _, metrics = in_jax(step, batches(3))
    np.testing.assert_allclose(metrics["lr"], [0.1, 0.05, 0.1 / 3])


@pytest.mark.parametrize("frozen", [r"^conv|^norm", lambda name, variable: not name.startswith("head")])
def test_frozen_parameters_are_not_updated_and_have_no_state(frozen):
    net, model = pair()
    step = gm.train_step(model, cross_entropy, gm.optim.adamw(lr=0.01, weight_decay=0.1), frozen=frozen)
    state, _ = in_jax(step, batches(5))
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name.startswith("head"))
    trained = [p for p in net.parameters() if p.requires_grad]
    in_torch(net, torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1), batches(5))
    assert_same(step, state, net)  # running statistics of the frozen norm included
    assert {name for of in state.optimizer.slots.values() for name in of} == {"head.weight", "head.bias"}
    assert state.optimizer.step.shape == (2,)


def test_a_mapping_of_losses_is_summed_and_each_is_a_metric():
    net, model = pair()

    def losses(model, batch):
        logits = model(batch["image"])
        return {
            "classes": gm.nn.functional.cross_entropy(logits, batch["label"]),
            "size": 0.1 * jnp.mean(logits**2),
        }

    parts = []

    def theirs(net, batch):
        logits = net(batch["image"])
        parts.append((torch.nn.functional.cross_entropy(logits, batch["label"]), 0.1 * (logits**2).mean()))
        return sum(parts[-1])

    step = gm.train_step(model, losses, gm.optim.sgd(lr=0.1))
    state, metrics = in_jax(step, batches(5))
    total, _ = in_torch(net, torch.optim.SGD(net.parameters(), lr=0.1), batches(5), loss=theirs)
    assert_same(step, state, net)
    np.testing.assert_allclose(metrics["loss"], total, rtol=1e-10)
    np.testing.assert_allclose(metrics["classes"], [a.item() for a, _ in parts], rtol=1e-10)
    np.testing.assert_allclose(metrics["size"], [b.item() for _, b in parts], rtol=1e-10)


def test_metrics_are_averaged_over_accumulated_parts():
    net, model = pair()

    def with_accuracy(model, batch):
        logits = model(batch["image"])
        hits = jnp.mean(jnp.argmax(logits, -1) == batch["label"])
        return gm.nn.functional.cross_entropy(logits, batch["label"]), {"accuracy": hits}

    step = gm.train_step(model, with_accuracy, gm.optim.sgd(lr=0.1), accumulate=2)
    (batch,) = batches(1, rows=16)
    _, metrics = in_jax(step, [batch])
    image, label = as_tensors(batch).values()
    hits = [(net(image[rows]).argmax(1) == label[rows]).double().mean() for rows in (slice(0, 8), slice(8, 16))]
    np.testing.assert_allclose(metrics["accuracy"], [float(sum(hits)) / 2], rtol=1e-12)


class TorchHeads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(3, 2)
        self.b = torch.nn.Linear(3, 2)


class Heads(nnx.Module):
    def __init__(self) -> None:
        self.a = gm.nn.Linear(3, 2, rngs=nnx.Rngs(0))
        self.b = gm.nn.Linear(3, 2, rngs=nnx.Rngs(1))


def branching(model, batch):
    taken = batch["taken"].any()
    squared = jax.lax.cond(taken, lambda x: jnp.mean(model.b(x) ** 2), lambda x: jnp.zeros((), x.dtype), batch["x"])
    return gm.training.Loss(jnp.mean(model.a(batch["x"]) ** 2) + squared, {"squared": squared}, {"b": taken})


def torch_branching(net, batch):
    value = (net.a(batch["x"]) ** 2).mean()
    return value + (net.b(batch["x"]) ** 2).mean() if batch["taken"].any() else value


@pytest.mark.parametrize("parts", [1, 2])
def test_a_branch_that_is_not_taken_leaves_its_parameters_and_their_moments(parts):
    torch.manual_seed(0)
    net, model = TorchHeads(), Heads()
    gm.weights.load(model, net.state_dict())
    rng = np.random.default_rng(0)
    rows = [[False] * 4, [True, False, False, False], [False] * 4, [False, False, True, True], [False] * 4]
    given = [{"x": rng.standard_normal((4, 3)), "taken": np.array(taken)} for taken in rows]
    step = gm.train_step(model, branching, gm.optim.adamw(lr=0.01, weight_decay=0.5), accumulate=parts)
    state, metrics = in_jax(step, given)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.5)
    losses, _ = in_torch(net, optimizer, given, loss=torch_branching, parts=parts)
    np.testing.assert_allclose(metrics["loss"], losses, rtol=1e-10)
    assert_same(step, state, net)
    taken_by_torch = [int(optimizer.state[p]["step"]) for p in (net.a.weight, net.b.weight)]
    assert taken_by_torch == [5, 2]
    assert sorted(np.asarray(state.optimizer.step).tolist()) == [2, 2, 5, 5]


def test_a_gradient_may_be_absent_for_good():
    _, model = pair()
    before = np.asarray(model.head.weight[...])
    absent = lambda model, batch: gm.training.Loss(cross_entropy(model, batch), {}, {"head": False})  # noqa: E731
    step = gm.train_step(model, absent, gm.optim.adamw(lr=0.01, weight_decay=0.5))
    state, _ = in_jax(step, batches(2))
    np.testing.assert_array_equal(step.model(state).head.weight[...], before)


@pytest.mark.parametrize("parts", [1, 2])
def test_what_the_loss_never_uses_neither_decays_nor_counts_as_pytorchs_none(parts):
    torch.manual_seed(0)
    net, model = TorchHeads(), Heads()
    gm.weights.load(model, net.state_dict())
    given = [{"x": np.random.default_rng(i).standard_normal((4, 3))} for i in range(3)]
    detached = lambda model, b: jnp.mean((model.a(b["x"]) + jax.lax.stop_gradient(model.b(b["x"]))) ** 2)  # noqa: E731
    step = gm.train_step(model, detached, gm.optim.adamw(lr=0.01, weight_decay=0.5), accumulate=parts)
    state, _ = in_jax(step, given)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.5)
    in_torch(net, optimizer, given, loss=lambda n, b: ((n.a(b["x"]) + n.b(b["x"]).detach()) ** 2).mean(), parts=parts)
    assert_same(step, state, net)
    assert sorted(np.asarray(state.optimizer.step).tolist()) == [0, 0, 3, 3]
    assert step.traces == 1


def test_a_gradient_that_is_computed_and_zero_is_there_as_in_pytorch():
    torch.manual_seed(0)
    net, model = TorchHeads(), Heads()
    gm.weights.load(model, net.state_dict())
    given = [{"x": np.random.default_rng(i).standard_normal((4, 3))} for i in range(3)]
    touched = lambda model, b: jnp.mean(model.a(b["x"]) ** 2) + 0.0 * jnp.sum(model.b(b["x"]))  # noqa: E731
    step = gm.train_step(model, touched, gm.optim.adamw(lr=0.01, weight_decay=0.5))
    state, _ = in_jax(step, given)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.5)
    in_torch(net, optimizer, given, loss=lambda n, b: (n.a(b["x"]) ** 2).mean() + 0.0 * n.b(b["x"]).sum())
    assert_same(step, state, net)


def test_evaluation_mode_is_kept():
    net, model = pair()
    net.eval()
    step = gm.train_step(nnx.view(model, use_running_average=True), cross_entropy, gm.optim.sgd(lr=0.1))
    state, _ = in_jax(step, batches(3))
    in_torch(net, torch.optim.SGD(net.parameters(), lr=0.1), batches(3))
    assert_same(step, state, net)


@pytest.mark.parametrize(
    ("averaging", "theirs"),
    [
        (gm.optim.swa(), {}),
        (gm.optim.ema(0.9), {"multi_avg_fn": torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)}),
    ],
    ids=["swa", "ema"],
)
def test_averaged_parameters_are_those_of_averaged_model(averaging, theirs):
    net, model = pair()
    step = gm.train_step(model, cross_entropy, gm.optim.sgd(lr=0.1), averaging=averaging)
    state, _ = in_jax(step, batches(4))
    averaged = torch.optim.swa_utils.AveragedModel(net, **theirs)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in batches(4):
        in_torch(net, optimizer, [batch])
        averaged.update_parameters(net)
    ours = step.model(state, averaged=True)
    for name, value in averaged.module.named_parameters():
        torch.testing.assert_close(gm.weights.to_state_dict(ours)[name], value.data, rtol=1e-10, atol=1e-12)
    assert_same(step, state, net)


@pytest.mark.parametrize("steps_per_launch", [1, 3])
def test_averages_from_an_epoch_on_are_those_of_pytorchs_loop(steps_per_launch):
    """Epochs of three batches, whose last parameters enter from the third epoch on."""
    net, model = pair()
    epochs, n, swa_start = 5, 3, 1
    averaging = gm.optim.swa(start=(swa_start + 1) * n, every=n)
    step = gm.train_step(
        model, cross_entropy, gm.optim.sgd(lr=0.1), averaging=averaging, steps_per_launch=steps_per_launch
    )
    given = batches(epochs * n)
    launches = [given[i : i + n] for i in range(0, len(given), n)]
    stacked = [{name: np.stack([batch[name] for batch in one]) for name in one[0]} for one in launches]
    state, averaged = step.init(), torch.optim.swa_utils.AveragedModel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(epochs):
        for batch in launches[epoch] if steps_per_launch == 1 else [stacked[epoch]]:
            state, _ = step(state, batch)
        in_torch(net, optimizer, launches[epoch])
        if epoch > swa_start:
            averaged.update_parameters(net)
        assert int(state.average[1]) == int(averaged.n_averaged)
        ours = gm.weights.to_state_dict(step.model(state, averaged=True))
        for name, value in averaged.module.named_parameters():
            torch.testing.assert_close(ours[name], value.data, rtol=1e-10, atol=1e-12)
    assert int(averaged.n_averaged) == 3


def test_a_plain_nnx_model_is_stepped_in_pytorchs_layout():
    """muon looks at rows and columns: a kernel of nnx.Linear is transposed, which its type alone tells."""
    torch.manual_seed(0)
    net, model = torch.nn.Linear(6, 3, bias=False), nnx.Linear(6, 3, use_bias=False, rngs=nnx.Rngs(0))
    gm.weights.load(model, net.state_dict())
    rng = np.random.default_rng(0)
    given = [{"x": rng.standard_normal((4, 6)), "y": rng.standard_normal((4, 3))} for _ in range(3)]
    step = gm.train_step(model, lambda m, b: jnp.mean((m(b["x"]) - b["y"]) ** 2), gm.optim.muon(lr=0.1))
    state, _ = in_jax(step, given)
    theirs = lambda net, b: ((net(b["x"]) - b["y"]) ** 2).mean()  # noqa: E731
    in_torch(net, torch.optim.Muon(net.parameters(), lr=0.1), given, loss=theirs)
    assert_same(step, state, net, 3e-2)  # PyTorch's Muon rounds to bfloat16


def test_the_loop_of_these_tests_is_pytorchs():
    net, _ = pair()
    first = torch_cross_entropy(net, as_tensors(batches(1)[0])).item()
    net, _ = pair()
    assert in_torch(net, torch.optim.SGD(net.parameters(), lr=0.1), batches(1))[0] == [first]
