"""A port that is right forward and not backward, whose gradient no known difference explains: the line is told."""

import functools
import importlib
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity.causes import astray_backward
from graphmode.compare.report.divergence_text import leaves
from looked_into import look
from told_lines import divergence_of, lines_of
from told_lines import lines_with as marked

import graphmode as gm

explaining = importlib.import_module("graphmode.compare.parity.causes.explain")
STEPS = 4


lines_with = functools.partial(marked, __file__)


class Advantages(torch.nn.Module):
    """Values of states, and targets that are made of them without gradients; a gate in a loop."""

    def __init__(self):
        super().__init__()
        self.value, self.gate = torch.nn.Linear(6, 5), torch.nn.Parameter(torch.full((5,), 0.3))

    def forward(self, x, rewards):
        values = torch.tanh(self.value(x))
        state, states = torch.zeros_like(values), []
        for _ in range(STEPS):
            share = torch.sigmoid(state + self.gate)
            state = share * state + (1 - share) * values  # the loop's
            states.append(state)
        with torch.no_grad():
            targets = rewards + 0.9 * values.roll(1, 0)
            targets = targets / (1 + targets.abs())  # the targets'
        entropy = -(torch.exp(state) * torch.log1p(torch.exp(state))).sum()  # the entropy's
        return ((values - targets) ** 2).sum() + torch.stack(states).sum() + entropy


@jax.custom_vjp
def blend(share, a, b):
    return share * a + (1 - share) * b


blend.defvjp(
    lambda share, a, b: (blend(share, a, b), (share, a, b)), lambda r, g: (g * r[1] ** 2, g * r[0], g * (1 - r[0]))
)


class AdvantagesPort(nnx.Module):
    def __init__(self, rngs, fault=""):
        self.value, self.gate = gm.nn.Linear(6, 5, rngs=rngs), nnx.Param(jnp.full(5, 0.3))
        self.fault = fault

    def __call__(self, x, rewards):
        stopped = jax.lax.stop_gradient
        values = jnp.tanh(self.value(x))

        def step(state, _):
            share = jax.nn.sigmoid(state + self.gate[...])
            blended = share * state + (1 - share) * values
            state = blend(share, state, values) if self.fault == "backward" else blended  # its backward is wrong
            return state, state

        state, states = jax.lax.scan(step, jnp.zeros_like(values), None, length=STEPS)
        targets = rewards + 0.9 * jnp.roll(values, 1, 0)
        targets = targets / (1 + jnp.abs(targets))
        if self.fault != "through":
            targets = stopped(targets)
        large = jnp.exp(state)
        weight = stopped(large) if self.fault == "stops" else large  # stops it
        if self.fault == "hidden":
            weight = stopped(1.5 * large) / 1.5  # hides it
        entropy = -jnp.sum(weight * jnp.log1p(large))
        missed = jnp.sum((values - targets) ** 2)  # lets it through
        return missed + jnp.sum(states) + entropy


def case_with(fault):
    return Case(
        name="advantages",
        summary="s",
        reference=Advantages,
        model=lambda rngs: AdvantagesPort(rngs, fault),
        inputs=lambda rng: (rng.standard_normal((7, 6)), rng.standard_normal((7, 5))),
        modes=("forward_backward",),
        adversarial=(),
    )


def found(fault):
    case = case_with(fault)
    (divergence,) = look(case).divergences()
    return astray_backward(look(case), divergence, float("inf"), seconds=60.0)


@pytest.mark.parametrize(
    ("fault", "port", "reference", "says"),
    [
        ("stops", "stops it", "", "stops the gradient where the reference's goes on"),
        ("hidden", "hides it", "", "stops the gradient where the reference's goes on"),
        ("through", "lets it through", "the targets'", "lets the gradient through where the reference's does not go"),
    ],
)
def test_the_line_that_stops_a_gradient_or_does_not_is_told_and_why(fault, port, reference, says):
    line, cause = found(fault)
    assert [each.partition(" ")[0] for each in line.port] == lines_with(port)
    assert line.gradient == ("stops" if fault == "hidden" else fault)
    assert says in leaves(line)
    assert (cause.id, cause.says) == ("stop-gradient", says)
    if reference:
        assert [cause.reference] == line.reference == lines_with(reference)


def test_the_line_of_a_wrong_derivative_is_told_without_a_cause():
    with mock.patch.object(explaining, "SUSPECT_S", 1.0):  # there is no cause to be found
        report = check(case_with("backward"), hasty=True)
    (divergence,) = report.divergences
    assert not divergence.causes
    assert lines_of(divergence) == lines_with("its backward is wrong")
    assert "its gradient leaves the reference's" in str(report)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.scale * gradient, None


class Reversing(torch.nn.Module):
    """Reverses gradients by a factor that is 0 in the first call."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 4), torch.nn.Linear(4, 3)
        self.register_buffer("done", torch.zeros(()))

    def forward(self, x):
        scale = torch.tanh(self.done / 4)
        self.done += 1
        return self.last(Reverse.apply(torch.tanh(self.first(x)), scale))


@jax.custom_vjp
def reverse(x, scale):
    return x


reverse.defvjp(lambda x, scale: (x, scale), lambda scale, g: (-scale * g, jnp.zeros_like(scale)))


class ReversesHalf(nnx.Module):
    def __init__(self, rngs):
        self.first, self.last = gm.nn.Linear(6, 4, rngs=rngs), gm.nn.Linear(4, 3, rngs=rngs)
        self.done = nnx.BatchStat(jnp.zeros(()))

    def __call__(self, x):
        scale = jnp.tanh(self.done[...] / 4)
        self.done[...] += 1
        h = jnp.tanh(self.first(x))
        return self.last(jnp.concatenate([reverse(h[:8], scale), h[8:]]))  # reverses half


def of_rows(rng):
    return (rng.standard_normal((16, 6)),)


def test_what_only_the_first_call_stops_is_not_told_to_be_stopped():
    divergence = divergence_of(Reversing, ReversesHalf, of_rows, modes=("forward_backward",))
    assert not divergence.causes
    assert divergence.astray.gradient == "differs"
    assert lines_of(divergence) == lines_with("reverses half")


class Penalty(torch.nn.Module):
    """Of rows that are not of length one."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 4)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(h) + ((h.norm(dim=1) - 1) ** 2).mean()


class PenaltyOfNothing(nnx.Module):
    def __init__(self, rngs):
        self.first, self.last = gm.nn.Linear(6, 6, rngs=rngs), gm.nn.Linear(6, 4, rngs=rngs)

    def __call__(self, x):
        h = jnp.tanh(self.first(x))
        lengths = jax.lax.stop_gradient(jnp.linalg.norm(h, axis=1))  # stops the lengths
        return self.last(h) + ((lengths - 1) ** 2).mean()


def test_the_line_of_a_known_stop_is_that_which_stops_it():
    divergence = divergence_of(Penalty, PenaltyOfNothing, of_rows, modes=("forward_backward",))
    assert [cause.id for cause in divergence.causes] == ["stop-gradient"]
    assert lines_of(divergence) == lines_with("stops the lengths")
