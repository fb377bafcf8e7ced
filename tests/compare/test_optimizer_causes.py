"""Why an optimizer steps otherwise: its settings, what it does to gradients, its learning rates."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import optax
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check, lockstep
from graphmode.compare.parity.causes import explain_optimizer, explain_optimizer_digits
from graphmode.compare.parity.optimizer import examine_optimizer
from graphmode.compare.report.divergence_text import OPTIMIZER
from graphmode.compare.wide_counts import with_wide_counts

from graphmode import nn
from graphmode.optim import adagrad, adam, adamw, clip_grad_norm


@pytest.mark.parametrize(
    ("make", "port", "cause"),
    [
        (lambda p: torch.optim.Adam(p, 1e-3), optax.adam(2e-3), "learning-rate"),
        (lambda p: torch.optim.Adam(p, 1e-3), optax.adam(1e-3, eps=1e-6), "optimizer-epsilon"),
        (lambda p: torch.optim.Adam(p, weight_decay=0.1), optax.adamw(1e-3, weight_decay=0.1), "weight-decay"),
        (lambda p: torch.optim.AdamW(p, 1e-3), optax.adamw(1e-3), "weight-decay"),
        (lambda p: torch.optim.SGD(p, 0.1, 0.9), optax.sgd(0.1, momentum=0.9, nesterov=True), "nesterov"),
        (lambda p: torch.optim.RMSprop(p, eps=1e-4), optax.rmsprop(0.01, 0.99, 1e-4), "optimizer-epsilon-place"),
        (lambda p: torch.optim.Adam(p, eps=1e-4), optax.adam(1e-3, eps=0.0, eps_root=1e-4), "optimizer-epsilon-place"),
        (lambda p: torch.optim.Adagrad(p, 0.1), adagrad(0.1, initial_accumulator_value=0.1), "optimizer-start"),
        (lambda p: torch.optim.Adagrad(p, 0.1), optax.adagrad(0.1), "optimizer-start"),
        (lambda p: torch.optim.Adam(p, 1e-3), optax.adam(1e-3), None),
        (lambda p: torch.optim.Adam(p, 1e-3), optax.adagrad(1e-3), None),
    ],
)
def test_the_setting_of_an_optimizer_is_named(make, port, cause):
    case = with_optimizer(make, port)
    found = [each.id for each in explain_optimizer(case, seed=0, device="cpu")]
    assert found == ([] if cause is None else [cause])


def test_a_setting_that_is_left_out_is_said_to_be_zero():
    case = with_optimizer(lambda p: torch.optim.Adagrad(p, 0.1, lr_decay=0.3), adagrad(0.1))
    (found,) = explain_optimizer(case, seed=0, device="cpu")
    assert (found.says, found.fix) == ("has lr_decay=0", "give 0.3")


def grouped(parameters, decay):
    """A weight decay for matrices alone."""
    parameters = list(parameters)
    matrices, others = ([p for p in parameters if (p.ndim >= 2) == wanted] for wanted in (True, False))
    groups = [{"params": others, "weight_decay": 0.0}, {"params": matrices, "weight_decay": decay}]
    return torch.optim.AdamW(groups, 1e-3)


def clipping(parameters):
    """Clips the gradients in place, before each step."""
    parameters = list(parameters)
    optimizer = torch.optim.Adam(parameters, 1e-3)
    optimizer.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_norm_(parameters, 0.01) and None)
    return optimizer


def with_optimizer(make, port):
    return Case(
        name="o",
        summary="s",
        reference=lambda: torch.nn.Linear(2, 2),
        model=lambda rngs: nnx.Linear(2, 2, rngs=rngs),
        inputs=lambda rng: (rng.standard_normal((2, 2)),),
        optimizer=(make, port),
    )


def test_a_setting_of_a_group_is_said_to_be_of_that_group():
    case = with_optimizer(lambda p: grouped(p, 0.3), optax.adamw(1e-3, weight_decay=0.0))
    (cause,) = explain_optimizer(case, seed=0, device="cpu")
    assert (cause.id, cause.fix) == ("weight-decay", "give 0.3")
    assert cause.says == "has weight_decay=0, for a parameter of 2 axes, of whose group the numbers are"


def test_a_reference_that_clips_in_place_leaves_the_gradients_of_the_port_alone():
    port = optax.chain(optax.stateless(lambda g, p: clip_grad_norm(g, 0.01)[0]), adam(1e-3))
    found = examine_optimizer(with_optimizer(clipping, port), seed=0, dtype="float32", device="cpu")
    assert found.equal, found
    assert found.precise, found


def hung(make, *, before=None, after=None):
    """An optimizer with hooks around its step."""

    def build(parameters):
        optimizer = make(parameters)
        if before is not None:
            optimizer.register_step_pre_hook(lambda *_: before(parameters) and None)
        if after is not None:
            schedule = after(optimizer)
            optimizer.register_step_post_hook(lambda *_: schedule.step())
        return optimizer

    return build


class ClippingSGD(torch.optim.SGD):
    """Clips in a step of its own."""

    def step(self, closure=None):
        torch.nn.utils.clip_grad_value_([p for group in self.param_groups for p in group["params"]], 0.1)
        return super().step(closure)


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def by_norm(parameters):
    torch.nn.utils.clip_grad_norm_(parameters, 0.5)


def by_value(parameters):
    torch.nn.utils.clip_grad_value_(parameters, 0.1)


def gm_clip(limit):
    return optax.stateless(lambda g, p: clip_grad_norm(g, limit)[0])


SGD = optax.sgd(0.1, momentum=0.9)


@pytest.mark.parametrize(
    ("make", "port", "says"),
    [
        (
            hung(sgd, before=by_norm),
            SGD,
            "leaves gradients as they are, where the reference clips their norm to 0.5 before each step",
        ),
        (
            lambda p: ClippingSGD(p, 0.1, momentum=0.9),
            SGD,
            "leaves gradients as they are, where the reference clips their values to 0.1 before each step",
        ),
        (
            hung(sgd, before=by_norm),
            optax.chain(gm_clip(2.0), SGD),
            "clips the norm of gradients to 2, where the reference clips their norm to 0.5",
        ),
        (
            hung(sgd, before=by_norm),
            optax.chain(optax.clip(0.5), SGD),
            "clips the values of gradients to 0.5, where the reference clips their norm to 0.5",
        ),
        (
            hung(sgd, before=by_norm),
            optax.chain(optax.clip_by_global_norm(0.5), SGD),
            "divides by the norm alone as it clips, where the reference adds 1e-06 to it",
        ),
        (
            hung(sgd, before=by_norm),
            optax.chain(SGD, optax.clip_by_global_norm(0.5)),
            (
                "clips the norm of what a step moves to 0.5, after the optimizer, where the reference clips their norm "
                "to 0.5 before it"
            ),
        ),
        (
            sgd,
            optax.chain(optax.clip(0.2), SGD),
            "clips the values of gradients to 0.2, where the reference does not",
        ),
        (
            hung(lambda p: torch.optim.Adam(p, 1e-3), before=by_value),
            optax.chain(optax.clip(0.05), optax.adam(1e-3)),
            "clips the values of gradients to 0.05, where the reference clips their values to 0.1",
        ),
        (
            hung(sgd, before=lambda parameters: [p.grad.mul_(p.grad.abs()) for p in parameters]),
            SGD,
            "leaves gradients as they are, where the reference changes them before each step",
        ),
    ],
)
def test_what_is_done_to_gradients_is_named(make, port, says):
    (cause,) = explain_optimizer(with_optimizer(make, port), seed=0, device="cpu")
    assert (cause.id, cause.says) == ("gradient-clipping", says)


def decayed(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


def cosine(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)


def exponential(first, factor):
    return optax.exponential_decay(first, 1, factor)


@pytest.mark.parametrize(
    ("make", "port", "says"),
    [
        (
            hung(sgd, after=decayed),
            SGD,
            "steps with learning rates 0.1, 0.1, 0.1, where the reference has 0.1, 0.05, 0.025",
        ),
        (
            hung(sgd, after=cosine),
            optax.sgd(lambda count: 0.05 * (1 + jnp.cos(jnp.pi * (count + 1) / 10)), momentum=0.9),
            (
                "steps with learning rates 0.0975528, 0.0904508, 0.0793893, where the reference has 0.1, 0.0975528, "
                "0.0904508: its schedule is a step ahead"
            ),
        ),
        (
            hung(lambda p: torch.optim.Adam(p, 0.1), after=decayed),
            optax.adam(lambda count: 0.1 * 0.5 ** (count - 1).clip(0)),
            (
                "steps with learning rates 0.1, 0.1, 0.05, where the reference has 0.1, 0.05, 0.025: its schedule is "
                "a step behind"
            ),
        ),
        (
            hung(lambda p: torch.optim.Adam(p, 0.1), after=cosine),
            optax.adam(optax.cosine_decay_schedule(0.1, 20)),
            "steps with learning rates 0.1, 0.0993844, 0.0975528, where the reference has 0.1, 0.0975528, 0.0904508",
        ),
        (
            sgd,
            optax.sgd(exponential(0.1, 0.5), momentum=0.9),
            "steps with learning rates 0.1, 0.05, 0.025, where the reference has 0.1, 0.1, 0.1",
        ),
    ],
)
def test_a_schedule_of_another_shape_is_told_by_its_learning_rates(make, port, says):
    (cause,) = explain_optimizer(with_optimizer(make, port), seed=0, device="cpu")
    assert (cause.id, cause.says) == ("learning-rate-schedule", says)


@pytest.mark.parametrize(
    "port",
    [
        optax.chain(optax.normalize_by_update_norm(), optax.sgd(0.1)),
        optax.sign_sgd(0.01),
        optax.chain(optax.add_noise(1e-3, 0.5, 0), SGD),
        optax.chain(optax.centralize(), SGD),
    ],
)
def test_what_is_another_optimizer_is_not_taken_for_clipping_or_a_schedule(port):
    case = with_optimizer(lambda p: torch.optim.SGD(p, 0.1), port)
    assert explain_optimizer(case, seed=0, device="cpu") == []


def test_what_is_hung_on_an_optimizer_and_left_out_is_said_to_be_that():
    def build(parameters):
        optimizer = torch.optim.Adam(parameters, 1e-3)
        optimizer.register_step_post_hook(lambda *_: [p.data.clamp_(-0.5, 0.5) for p in parameters] and None)
        return optimizer

    (cause,) = explain_optimizer(with_optimizer(build, optax.adam(1e-3)), seed=0, device="cpu")
    assert cause.id == "optimizer-hooks"


def test_torchs_optimizers_are_left_as_they_were():
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        kind([torch.zeros(1, requires_grad=True)])  # the first of a class wraps its step
    usual = torch.optim.SGD.step, torch.optim.AdamW.step, "step" in vars(torch.optim.AdamW)
    explain_optimizer(with_optimizer(sgd, optax.sign_sgd(0.1)), seed=0, device="cpu")
    explain_optimizer(with_optimizer(lambda p: torch.optim.AdamW(p), optax.sign_sgd(0.1)), seed=0, device="cpu")
    assert usual == (torch.optim.SGD.step, torch.optim.AdamW.step, "step" in vars(torch.optim.AdamW))


class Descent:
    """Has what an optimizer has, and is none of PyTorch's classes."""

    def __init__(self, parameters):
        self.param_groups = [{"params": list(parameters), "lr": 0.1}]

    def step(self):
        (group,) = self.param_groups
        for parameter in group["params"]:
            parameter.data -= group["lr"] * parameter.grad


def test_an_optimizer_of_no_class_of_torchs_is_looked_into_all_the_same():
    (cause,) = explain_optimizer(with_optimizer(Descent, optax.sgd(0.3)), seed=0, device="cpu")
    assert (cause.id, cause.says) == ("learning-rate", "has lr=0.3")
    assert explain_optimizer(with_optimizer(Descent, optax.sign_sgd(0.1)), seed=0, device="cpu") == []


@pytest.mark.parametrize(
    ("port", "causes"),
    [(optax.adamw(1e-3, weight_decay=0.01), ["shared-factor"]), (adamw(lr=1e-3, weight_decay=0.01), None)],
    ids=["optax", "gm.optim"],
)
def test_digits_that_all_elements_lose_together_are_told(port, causes):
    report = check(with_optimizer(lambda p: torch.optim.AdamW(p, 1e-3), port))
    assert report.passed == (causes is None)
    if causes:
        (each,) = report.divergences
        assert (each.module, each.dtype, [cause.id for cause in each.causes]) == (OPTIMIZER, "float32", causes)
        (finding,) = each.findings
        assert finding.error > 1e-7, "of the step in float32"


def in_float16(beta):
    """Momentum whose mean loses digits in every element."""

    def update(gradients, mean, params=None):
        mean = jax.tree.map(lambda m, g: (beta * m + g).astype(jnp.float16).astype(g.dtype), mean, gradients)
        return jax.tree.map(lambda m: -0.1 * m, mean), mean

    return optax.GradientTransformation(lambda params: jax.tree.map(jnp.zeros_like, params), update)


@pytest.mark.parametrize(
    ("port", "causes"), [(optax.adam(1e-3, eps=1e-3), ["shared-factor"]), (in_float16(0.9), [])], ids=["adam", "others"]
)
def test_digits_that_are_lost_in_numbers_of_a_larger_epsilon_are_told(port, causes):
    case = with_optimizer(
        lambda p: torch.optim.Adam(p, 1e-3, eps=1e-3) if causes else torch.optim.SGD(p, 0.1, 0.9), port
    )
    found = explain_optimizer_digits(case, seed=0, dtype="float32", device="cpu")
    assert [cause.id for cause in found] == causes


def warming(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda count: min((count + 1) / 7, 1))


@pytest.mark.parametrize(("steps", "first", "right"), [(6, 1, True), (7, 1, False), (6, 0, False), (6, 2, False)])
def test_a_schedule_that_optax_computes_of_an_int32_is_judged_in_float64(steps, first, right):
    port = optax.sgd(optax.linear_schedule(0.1 * first / 7, 0.1, steps), momentum=0.9)
    case = with_optimizer(hung(sgd, after=warming), port)
    found = examine_optimizer(case, seed=0, dtype="float32", device="cpu")
    assert found.equal is right, found
    assert found.precise is right
    trained = lockstep(replace(case, modes=("train_step",)), steps=3)
    assert trained.passed is right, str(trained)


def test_a_state_whose_branches_want_its_dtype_keeps_it():
    def update(gradients, count, params=None):
        after = jax.lax.cond(count > 0, lambda n: n + 1, lambda n: jnp.ones((), jnp.int32), count)
        return jax.tree.map(lambda g: -g / after, gradients), after

    own = with_wide_counts(optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update))
    with jax.enable_x64(True):
        updates, count = own.update(jnp.ones(2), jnp.zeros((), jnp.int32))
    assert (count.dtype, updates.dtype) == (jnp.int32, jnp.float64)


@pytest.mark.parametrize(
    "port",
    [
        optax.sgd(lambda count: 0.1 * jnp.minimum((count.astype(jnp.float32) + 1) / 7, 1), momentum=0.9),
        optax.sgd(optax.linear_schedule(0.1 / 7, 0.1, 6), momentum=0.9, accumulator_dtype=jnp.float32),
    ],
)
def test_a_cast_to_float32_in_an_optimizer_is_named(port):
    (cause,) = explain_optimizer(with_optimizer(hung(sgd, after=warming), port), seed=0, device="cpu")
    assert cause.id == "hidden-cast", cause


class Unused(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


class UnusedPort(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.head = nnx.Linear(3, 3, rngs=rngs), nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, x):
        return self.fc(x)


@pytest.mark.parametrize(("eps", "causes"), [(1e-8, []), (1e-6, ["optimizer-epsilon"])])
def test_what_has_no_gradient_and_is_decayed_is_told_beside_an_optimizer_that_is_wrong(eps, causes):
    port = optax.adamw(1e-3, eps=eps, weight_decay=0.01)
    case = replace(with_optimizer(lambda p: torch.optim.AdamW(p, 1e-3), port), reference=Unused, model=UnusedPort)
    case = replace(case, inputs=lambda rng: (rng.standard_normal((2, 3)),), modes=("train_step",))
    report = check(case, hasty=True)
    told = [cause for each in report.divergences for cause in each.causes]
    assert [cause.id for cause in told] == [*causes, "absent-gradient"], report
    assert told[-1].says.startswith("moves head.weight, head.bias, which the reference leaves where they are")


def test_what_has_a_gradient_of_zero_is_not_said_to_have_none():
    port = optax.adamw(1e-3, weight_decay=0.01)

    def groups(parameters):
        each = [{"params": [p], "weight_decay": 0.01 if p.shape[0] != 2 else 0.0} for p in parameters]
        return torch.optim.AdamW(each, 1e-3)

    class Zero(Unused):
        def forward(self, x):
            return self.fc(x) + 0 * self.head(x).sum()

    case = replace(with_optimizer(groups, port), reference=Zero, model=UnusedPort, modes=("train_step",))
    report = check(replace(case, inputs=lambda rng: (rng.standard_normal((2, 3)),)), hasty=True)
    assert "absent-gradient" not in [cause.id for each in report.divergences for cause in each.causes], report
    assert not report.passed


def without_decay_of_vectors(parameters):
    matrices, vectors = ([p for p in parameters if (p.ndim > 1) == wanted] for wanted in (True, False))
    groups = [{"params": vectors, "weight_decay": 0.0}, {"params": matrices, "weight_decay": 0.01}]
    return torch.optim.AdamW([group for group in groups if group["params"]], 1e-3)


@pytest.mark.parametrize("is_left_out", [True, False])
def test_a_weight_decay_of_vectors_alone_is_named(is_left_out):
    def mask(params):
        return jax.tree.map(lambda p: p.ndim > 1 or not is_left_out, params)

    case = with_optimizer(without_decay_of_vectors, optax.adamw(1e-3, weight_decay=0.01, mask=mask))
    case = replace(case, model=lambda rngs: nn.Linear(2, 2, rngs=rngs), modes=("train_step",))
    report = check(case, hasty=True)
    assert report.parity[-1].equal == is_left_out, report
    told = [(cause.says, cause.fix) for each in report.divergences for cause in each.causes]
    assert is_left_out or told == [("has weight_decay=0.01, for a parameter of one axis", "give 0")]
