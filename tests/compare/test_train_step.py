"""Steps of training on small models: a correct port and its optimizer pass, and every planted fault is caught."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, check

from graphmode.weights import Drop

LR = 0.02


class Reference(torch.nn.Module):
    """The bias before the normalisation has a gradient of zero but for rounding, of which Adam makes steps."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 16)
        self.bn = torch.nn.BatchNorm1d(16)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x):
        return self.head(torch.relu(self.bn(self.fc(x))))


class BatchNorm(nnx.Module):
    def __init__(self, features):
        self.weight = nnx.Param(jnp.ones(features))
        self.bias = nnx.Param(jnp.zeros(features))
        self.running_mean = nnx.BatchStat(jnp.zeros(features))
        self.running_var = nnx.BatchStat(jnp.ones(features))
        self.use_running_average = False

    def __call__(self, x):
        mean, var = self.running_mean[...], self.running_var[...]
        if not self.use_running_average:
            mean, var = x.mean(0), x.var(0)
            self.move(mean, var * len(x) / (len(x) - 1))
        return (x - mean) / jnp.sqrt(var + 1e-5) * self.weight[...] + self.bias[...]

    def move(self, mean, var):
        self.running_mean[...] = 0.9 * self.running_mean[...] + 0.1 * mean
        self.running_var[...] = 0.9 * self.running_var[...] + 0.1 * var


class Forgets(BatchNorm):
    def move(self, mean, var):
        pass


class Port(nnx.Module):
    def __init__(self, rngs, norm=BatchNorm):
        self.fc = nnx.Linear(6, 16, rngs=rngs)
        self.bn = norm(16)
        self.head = nnx.Linear(16, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(jax.nn.relu(self.bn(self.fc(x))))


class DropsAGradient(Port):
    def __call__(self, x):
        h = jax.nn.relu(self.bn(self.fc(x)))
        return h @ self.head.kernel[...] + jax.lax.stop_gradient(self.head.bias[...])


class Attention(torch.nn.Module):
    """The bias of the keys has no gradient but rounding."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return torch.softmax(q @ k.mT / 8**0.5, -1) @ v


class AttentionPort(nnx.Module):
    def __init__(self, rngs):
        self.qkv = nnx.Linear(8, 24, rngs=rngs)

    def __call__(self, x):
        q, k, v = jnp.split(self.qkv(x), 3, -1)
        return jax.nn.softmax(q @ k.mT / 8**0.5, -1) @ v


def adam(learning_rate, *, weight_decay=0.0, coupled=False, corrected=True, late=0, eps=1e-8):
    """Adam with `1 - beta**t` as `expm1`, which keeps its digits in float32; `torch.optim.Adam` and `AdamW`."""

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return jnp.zeros((), jnp.int32), zeros, zeros

    def correction(count, beta):
        return -jnp.expm1((count - late) * math.log(beta)) if corrected else 1.0

    def update(gradients, state, params):
        count, m, v = state
        count += 1
        if coupled:
            gradients = jax.tree.map(lambda g, p: g + weight_decay * p, gradients, params)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, gradients)
        v = jax.tree.map(lambda v, g: 0.999 * v + (1 - 0.999) * g**2, v, gradients)
        root = jnp.sqrt(correction(count, 0.999))

        def step(m, v, p):
            change = m / correction(count, 0.9) / (jnp.sqrt(v) / root + eps)
            return -learning_rate * (change if coupled else change + weight_decay * p)

        return jax.tree.map(step, m, v, params), (count, m, v)

    return optax.GradientTransformation(init, update)


def sgd(**options):
    return lambda parameters: torch.optim.SGD(parameters, lr=LR, **options)


def case(optimizer, reference=Reference, model=Port, **fields) -> Case:
    settings = {
        "name": "trained",
        "summary": "",
        "reference": reference,
        "model": model,
        "inputs": lambda rng: (rng.standard_normal((40, 6)),),
        "weights": (Drop("bn.num_batches_tracked", "momentum is a number"),) if reference is Reference else (),
        "optimizer": optimizer,
        "modes": ("train_step",),
    }
    return Case(**{**settings, **fields})


CORRECT = {
    "sgd": (sgd(), optax.sgd(LR)),
    "momentum": (sgd(momentum=0.9), optax.sgd(LR, momentum=0.9)),
    "nesterov": (sgd(momentum=0.9, nesterov=True), optax.sgd(LR, momentum=0.9, nesterov=True)),
    "decay": (
        sgd(momentum=0.9, weight_decay=0.1),
        optax.chain(optax.add_decayed_weights(0.1), optax.sgd(LR, momentum=0.9)),
    ),
    "adam": (lambda parameters: torch.optim.Adam(parameters, lr=1e-3), adam(1e-3)),
    "adamw": (
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1),
        adam(1e-3, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_port_passes(name):
    report = check(case(CORRECT[name]))
    assert report.passed, str(report)
    (parity,) = report.parity
    assert {(t.kind, t.mode) for t in parity.tensors} == {
        (kind, "train_step") for kind in ("output", "parameter", "buffer", "update")
    }
    assert {t.name for t in parity.tensors if t.kind == "parameter"} == {
        name for name, _ in Reference().named_parameters()
    }
    judged = {t.name for t in parity.tensors if t.ratio is not None}
    assert judged == {"output", "fc.weight", "head.weight", "optimizer"}
    assert parity.inputs == ["random 0", "random 1", "random 2"]


@pytest.mark.parametrize("name", ["momentum", "adamw"])
@pytest.mark.parametrize("seed", [1, 2])
def test_gradients_of_rounding_alone_accuse_nobody(name, seed):
    attention = case(CORRECT[name], Attention, AttentionPort, inputs=lambda rng: (rng.standard_normal((3, 5, 8)),))
    for one in (attention, case(CORRECT[name])):
        report = check(one, seed=seed)
        assert report.passed, str(report)


FAULTS = {
    "learning rate": (sgd(momentum=0.9), optax.sgd(LR * (1 + 1e-6), momentum=0.9)),
    "momentum lost": (sgd(momentum=0.9), optax.sgd(LR)),
    "dampening": (sgd(momentum=0.9, dampening=0.1), optax.sgd(LR, momentum=0.9)),
    "nesterov": (sgd(momentum=0.9), optax.sgd(LR, momentum=0.9, nesterov=True)),
    "decay of sgd decoupled": (
        sgd(momentum=0.9, weight_decay=0.1),
        optax.chain(optax.trace(0.9), optax.add_decayed_weights(0.1), optax.scale(-LR)),
    ),
    "decay of adam decoupled": (
        lambda parameters: torch.optim.Adam(parameters, lr=1e-3, weight_decay=0.1),
        adam(1e-3, weight_decay=0.1),
    ),
    "decay of adam coupled": (
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1),
        adam(1e-3, weight_decay=0.1, coupled=True),
    ),
    "no decay": (lambda parameters: torch.optim.AdamW(parameters, lr=1e-3), adam(1e-3)),
    "no bias correction": (CORRECT["adam"][0], adam(1e-3, corrected=False)),
    "bias correction off by one": (CORRECT["adam"][0], adam(1e-3, late=-1)),
    "epsilon": (CORRECT["adam"][0], adam(1e-3, eps=1e-7)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_optimizer_is_caught(fault):
    (parity,) = check(case(FAULTS[fault])).parity
    assert {t.kind for t in parity.tensors if not t.equal} >= {"parameter", "update"}


def test_running_statistics_that_stand_still_are_caught():
    (parity,) = check(case(CORRECT["momentum"], model=lambda rngs: Port(rngs, Forgets))).parity
    assert {t.name for t in parity.tensors if not t.equal} == {"bn.running_mean", "bn.running_var"}


def test_a_dropped_gradient_is_caught():
    (parity,) = check(case(CORRECT["momentum"], model=DropsAGradient)).parity
    assert "head.bias" in {t.name for t in parity.tensors if t.kind == "parameter" and not t.equal}


def test_the_bias_correction_of_optax_is_not_precise():
    optimizer = (CORRECT["adam"][0], optax.adam(1e-3))
    (parity,) = check(case(optimizer)).parity
    assert parity.equal
    (update,) = [t for t in parity.tensors if not t.precise]
    assert (update.kind, update.name) == ("update", "optimizer")
    assert update.ratio > 20


def test_the_default_modes_follow_the_optimizer():
    assert case(CORRECT["sgd"], modes=()).modes == ("inference", "forward_backward", "train_step")
    assert case(None, modes=()).modes == ("inference", "forward_backward")
    assert dataclasses.replace(case(CORRECT["sgd"]), modes=("inference",)).modes == ("inference",)


def test_a_loss_is_trained_on_and_frozen_parameters_stay():
    class Frozen(Reference):
        def __init__(self):
            super().__init__()
            self.head.bias.requires_grad_(False)

    loss = (lambda y: (y**2).mean(), lambda y: (y**2).mean())
    assert check(case(CORRECT["momentum"], loss=loss)).passed
    (parity,) = check(case(CORRECT["momentum"], Frozen, loss=loss, weights=case(None, modes=()).weights)).parity
    (trained,) = [t for t in parity.tensors if not t.equal and t.kind == "parameter" and t.name == "head.bias"]
    assert trained.note == "the reference freezes it"


class Bare(nnx.Module):
    def __init__(self, rngs):
        pass

    def __call__(self, x):
        return x


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimizer": None}, "modes has train_step, which needs optimizer=(lambda parameters"),
        ({"optimizer": optax.sgd(LR)}, "give a pair"),
        ({"optimizer": (sgd(), 0.1)}, "an optax transformation"),
        ({"optimizer": (lambda parameters: 3, optax.sgd(LR))}, "optimizer[0] gives int"),
        ({"reference": torch.nn.Identity, "model": Bare, "weights": ()}, "parameters that learn, and the reference"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(fields, words):
    with pytest.raises(CaseError, match=re.escape(words)):
        check(case(**{"optimizer": CORRECT["sgd"], **fields}))


def test_an_optimizer_that_takes_no_single_array_is_left_to_the_model():
    def everything(params):
        return jax.tree_util.tree_map_with_path(lambda path, _: bool(path[0]), params)

    masked = optax.masked(optax.sgd(LR), everything)
    (parity,) = check(case((sgd(), masked))).parity
    assert parity.passed, parity
    assert any("not judged by itself" in note for note in parity.notes)
    assert not any(t.kind == "update" for t in parity.tensors)


def test_a_run_starts_from_the_same_state_each_time():
    from graphmode.compare.torch_side import TorchSide

    side = TorchSide(Reference(), case(CORRECT["momentum"]), dtype="float32", device="cpu")
    inputs = (np.ones((4, 6), np.float32) * np.arange(4, dtype=np.float32)[:, None],)
    cotangents = {"output": np.ones((4, 10), np.float32)}
    first, second = (dict(side.run(inputs, "train_step", cotangents).parameters) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert any(np.any(moved) for moved in first.values())
